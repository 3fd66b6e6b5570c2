"""The arrays of a graph in memory, and the checks that they are one."""

import threading
from collections.abc import Mapping

import torch

from graphfeed import ops
from graphfeed.ops.checks import check_vector
from graphfeed.storage.shared import Shareable

WEIGHTS_LOCK = threading.Lock()


class GraphArrays(Shareable):
    """Compressed sparse columns with types and attributes: what a graph holds, without what is asked of it."""

    def __init__(
        self,
        csc_indptr: torch.Tensor,
        indices: torch.Tensor,
        node_type_offset: torch.Tensor | None,
        type_per_edge: torch.Tensor | None,
        node_type_to_id: dict[str, int] | None,
        edge_type_to_id: dict[str, int] | None,
        node_attributes: dict[str, torch.Tensor],
        edge_attributes: dict[str, torch.Tensor],
    ) -> None:
        self.csc_indptr = csc_indptr
        self.indices = indices
        self.node_type_offset = node_type_offset
        self.type_per_edge = type_per_edge
        self.node_type_to_id = node_type_to_id
        self.edge_type_to_id = edge_type_to_id
        self.node_attributes = node_attributes
        self.edge_attributes = edge_attributes
        self._cumulative: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def total_num_nodes(self) -> int:
        """Number of nodes of all types."""
        return self.csc_indptr.numel() - 1

    @property
    def total_num_edges(self) -> int:
        """Number of edges of all types."""
        return self.indices.numel()

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes; by node type, in the order of their ids, if the graph has types."""
        if self.node_type_to_id is None or self.node_type_offset is None:
            return self.total_num_nodes
        offsets = self.node_type_offset.tolist()
        by_id = sorted(self.node_type_to_id.items(), key=lambda item: item[1])
        return {kind: offsets[number + 1] - offsets[number] for kind, number in by_id}

    @property
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges; by edge type if the graph has types (then a pass over the edges)."""
        if self.edge_type_to_id is None or self.type_per_edge is None:
            return self.total_num_edges
        counts = torch.bincount(self.type_per_edge, minlength=len(self.edge_type_to_id)).tolist()
        return {kind: counts[number] for kind, number in self.edge_type_to_id.items()}

    def node_attribute(self, name: str) -> torch.Tensor:
        """Return a node attribute; a KeyError lists those that there are."""
        return look_up(self.node_attributes, name, "Node")

    def edge_attribute(self, name: str) -> torch.Tensor:
        """Return an edge attribute, in the order of `indices`; a KeyError lists those that there are."""
        return look_up(self.edge_attributes, name, "Edge")

    def prepare_weights(self, probs_name: str) -> torch.Tensor:
        """Return an edge attribute as fixed-point running sums, made at the first call (8 bytes an edge)."""
        weights = self.edge_attribute(probs_name)
        with WEIGHTS_LOCK:
            known = self._cumulative.get(probs_name)
            if known is None or known[0] is not weights:
                known = (weights, ops.cumulate_weights(self.csc_indptr, weights))
                self._cumulative[probs_name] = known
        return known[1]

    def __repr__(self) -> str:
        """Return the numbers of nodes, edges and types; costs no pass over the edges."""
        types = ""
        if self.node_type_to_id is not None and self.edge_type_to_id is not None:
            types = f", node_types={list(self.node_type_to_id)}, edge_types={len(self.edge_type_to_id)}"
        return f"{type(self).__name__}(num_nodes={self.total_num_nodes}, num_edges={self.total_num_edges}{types})"


def look_up(attributes: Mapping[str, torch.Tensor], name: str, domain: str) -> torch.Tensor:
    """Return an attribute by name, or say which there are."""
    if name not in attributes:
        raise KeyError(f"{domain} attribute {name} does not exist; the graph has {sorted(attributes)}")
    return attributes[name]


def check_types(
    csc_indptr: torch.Tensor,
    indices: torch.Tensor,
    node_type_offset: torch.Tensor | None,
    type_per_edge: torch.Tensor | None,
    node_type_to_id: Mapping[str, int] | None,
    edge_type_to_id: Mapping[str, int] | None,
) -> None:
    """Raise unless the types are given all or not at all, and agree with each other and with the edges."""
    num_nodes, num_edges = csc_indptr.numel() - 1, indices.numel()
    given = {
        "node_type_offset": node_type_offset,
        "type_per_edge": type_per_edge,
        "node_type_to_id": node_type_to_id,
        "edge_type_to_id": edge_type_to_id,
    }
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return
    if missing:
        raise ValueError(f"a graph with types needs all of {list(given)}, but {missing} is None")
    assert node_type_offset is not None
    assert type_per_edge is not None
    assert node_type_to_id is not None
    assert edge_type_to_id is not None
    for name, ids in (("node_type_to_id", node_type_to_id), ("edge_type_to_id", edge_type_to_id)):
        if sorted(ids.values()) != list(range(len(ids))):
            raise ValueError(f"{name} must number its types 0 .. {len(ids) - 1}, but is {dict(ids)}")
    for kind in edge_type_to_id:
        parts = kind.split(":")
        if len(parts) != 3:
            raise ValueError(f"edge_type_to_id has {kind!r}; an edge type is 'source:relation:destination'")
        for part in (parts[0], parts[2]):
            if part not in node_type_to_id:
                raise ValueError(f"Unrecognized node type {part!r} in {kind!r}; there are {list(node_type_to_id)}")
    if type_per_edge.numel() != num_edges:
        raise ValueError(f"type_per_edge must have {num_edges} values, one an edge, but has {type_per_edge.numel()}")
    check_vector("node_type_offset", node_type_offset)
    offsets = node_type_offset.tolist()
    bounds = (offsets[0], offsets[-1]) if offsets else ()
    if len(offsets) != len(node_type_to_id) + 1 or bounds != (0, num_nodes) or offsets != sorted(offsets):
        raise ValueError(
            f"node_type_offset must have {len(node_type_to_id) + 1} values that rise from 0 to {num_nodes}, "
            f"but is {offsets}"
        )
    ops.check_edge_types(csc_indptr, type_per_edge, len(edge_type_to_id))
    if num_edges:
        kinds = [kind.split(":") for kind in sorted(edge_type_to_id, key=edge_type_to_id.__getitem__)]
        ends = torch.tensor([[node_type_to_id[source], node_type_to_id[end]] for source, _, end in kinds])
        ops.check_joined(csc_indptr, indices, type_per_edge, node_type_offset, ends)


def check_attributes(domain: str, attributes: Mapping[str, torch.Tensor], rows: int) -> None:
    """Raise unless each attribute has a row for each node, or for each edge."""
    for name, values in attributes.items():
        if len(values) != rows:
            raise ValueError(
                f"{domain}_attributes[{name!r}] must have {rows} rows, one for each {domain}, but has {len(values)}"
            )
