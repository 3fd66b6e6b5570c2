"""Chooses which rows of other parts' nodes are stored with a part: those that its in-edges come from most often."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.partition.edge_positions import edge_positions
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.distributed.partition.report import align
from graphfeed.loader.explain import bytes_text
from graphfeed.ops.arguments import as_ids
from graphfeed.ops.checks import check_count, check_ids, check_vector
from graphfeed.ops.progress import progress_bar
from graphfeed.storage.features.cached_feature import row_type
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.features.feature_store import FeatureKey, FeatureStore
from graphfeed.storage.graph.assignment.assign import stacked_assignment
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType

HaloFeatures: TypeAlias = int | Sequence[ByType]
"""How many bytes of copies a part may have at most; or for each part the nodes' ids, by type if there are types."""
COLUMNS = ("part", "copied rows", "bytes", "look-ups of others' rows", "answered", "%")
ID_BYTES = torch.int64.itemsize


@dataclass(frozen=True)
class HaloPlan:
    """Of which nodes each part gets copies of rows, and what they save. `str` of it is a table."""

    ids: tuple[ByType, ...]
    """For each part, the nodes of other parts, ascending; by node type if the graph has types."""
    num_rows: tuple[int, ...]
    """How many nodes these are."""
    num_bytes: tuple[int, ...]
    """What their rows and ids take."""
    look_ups: tuple[int, ...]
    """The in-edges of each part that come from nodes of other parts which have features."""
    answered: tuple[int, ...]
    """Those of them that come from nodes with copies."""

    @property
    def share(self) -> float:
        """The share of the look-ups of other parts' rows that copies answer.

        It is that of look-ups one edge away from a part, if edges are sampled equally often. Nodes further away are
        more often without a copy, and a mini-batch looks a node up once, however many of its edges come from there.
        """
        return sum(self.answered) / max(sum(self.look_ups), 1)

    def __str__(self) -> str:
        """Return a table with a row per part, and the sums."""
        columns = (self.num_rows, self.num_bytes, self.look_ups, self.answered)
        rows: list[Sequence[Any]] = [(part, *numbers) for part, numbers in enumerate(zip(*columns, strict=True))]
        rows.append(("all", *map(sum, columns)))
        cells = [
            (str(name), f"{count:,}", bytes_text(size), f"{asked:,}", f"{here:,}", f"{here / max(asked, 1):.1%}")
            for name, count, size, asked, here in rows
        ]
        return "\n".join(align([COLUMNS, *cells]))


def plan_halo(
    graph: GraphArrays,
    assignment: ByType,
    num_parts: int,
    features: FeatureStore | None,
    halo_features: HaloFeatures,
) -> HaloPlan:
    """Choose the nodes of which each part gets copies of all features, in one pass over the edges.

    A node is the hotter, the more in-edges of the part come from it. The hottest are taken, and of equally hot ones
    those with lower ids, until the next would exceed the bytes. Beside the graph it takes at most 56 MiB and 56 bytes
    per node.

    Args:
        graph: The graph, in memory or mapped.
        assignment: The part of each node; by node type if the graph has types.
        num_parts: The number of parts.
        features: The features; those of edges are left out, for the edges of a column lie where the column does.
        halo_features: How many bytes of copies a part may have at most, with 8 bytes per node for its id; or for each
            part the ids of the nodes, by node type if the graph has types. Those of its own are left out.

    Raises:
        IndexError: An id beyond the nodes.
        TypeError: Ids that are no integers; or by type and the graph has no types, or the other way round.
        ValueError: There are no features of nodes, no list of ids for each part, or bytes below 0; or there are more
            than 65,536 parts.

    Example:
        >>> from graphfeed import BasicFeatureStore, TorchBasedFeature, from_coo
        >>> graph = from_coo(torch.tensor([[2, 2, 3, 0], [0, 1, 1, 2]]), num_nodes=4)
        >>> features = BasicFeatureStore({("node", None, "feat"): TorchBasedFeature(torch.zeros(4, 8))})
        >>> print(plan_halo(graph, torch.tensor([0, 0, 1, 1]), 2, features, halo_features=40))
        part  copied rows  bytes  look-ups of others' rows  answered       %
           0            1   40 B                         3         2   66.7%
           1            1   40 B                         1         1  100.0%
         all            2   80 B                         4         3   75.0%
    """
    check_num_parts(num_parts)
    parts = stacked_assignment(graph, assignment, num_parts).numpy()
    offsets, kinds = kinds_of(graph)
    sizes = row_bytes(features, kinds)
    per_node = np.array([sizes[kind] + ID_BYTES if kind in sizes else 0 for kind in kinds], dtype=np.int64)
    max_bytes, given = 0, None
    if isinstance(halo_features, Sequence):
        given = check_given(graph, parts, num_parts, halo_features)
    else:
        check_count("halo_features", halo_features, 0)
        max_bytes = halo_features
    found: list[tuple[Any, ...]] = []
    with progress_bar("finding the halo", graph.total_num_edges, "edge") as progress:
        for part in range(num_parts):
            counts = count_sources(graph, parts, part, progress.update)
            for first, last, size in zip(offsets, offsets[1:], per_node, strict=False):
                if size == 0:
                    counts[first:last] = 0  # nobody asks for rows that are not there
            own = hottest(counts, offsets, per_node, max_bytes) if given is None else given[part]
            own = own[per_node[numbers_of(offsets, own)] > 0]
            taken = int(per_node[numbers_of(offsets, own)].sum())
            found.append((split_ids(own, offsets, kinds), own.size, taken, int(counts.sum()), int(counts[own].sum())))
    return HaloPlan(*map(tuple, zip(*found, strict=True)))


def count_sources(
    graph: GraphArrays, parts: NDArray[Any], part: int, progress: Callable[[int], object]
) -> NDArray[np.int64]:
    """Return how many in-edges of a part come from each node of another part."""
    indptr, indices = graph.csc_indptr.cpu().numpy(), graph.indices.cpu().numpy()
    counts = np.zeros(parts.size, dtype=np.int64)
    for positions in edge_positions(indptr, np.flatnonzero(parts == part)):
        sources = indices[positions]
        np.add.at(counts, sources[parts[sources] != part], 1)
        progress(positions.size)
    return counts


def hottest(
    counts: NDArray[np.int64], offsets: Sequence[int], per_node: NDArray[np.int64], max_bytes: int
) -> NDArray[np.int64]:
    """Return the nodes with the highest counts that fit into some bytes, ascending."""
    nodes = np.flatnonzero(counts)
    order = nodes[np.argsort(-counts[nodes], kind="stable")]
    ends = np.cumsum(per_node[numbers_of(offsets, order)])
    return np.sort(order[: np.searchsorted(ends, max_bytes, side="right")])


def kinds_of(graph: GraphArrays) -> tuple[list[int], list[str | None]]:
    """Return the first id of each node type, and the end; and the types. A graph without types has the type None."""
    sizes = graph.num_nodes
    return graph.first_ids(), list(sizes) if isinstance(sizes, dict) else [None]


def numbers_of(offsets: Sequence[int], nodes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the number of each node's type."""
    return np.searchsorted(np.asarray(offsets[1:-1]), nodes, side="right")


def features_of_nodes(features: FeatureStore | None) -> dict[FeatureKey, Feature]:
    """Return the features of nodes."""
    keys = () if features is None else features.keys()
    return {} if features is None else {FeatureKey(*key): features[key] for key in keys if key[0] == "node"}


def row_bytes(features: FeatureStore | None, kinds: Sequence[str | None]) -> Mapping[str | None, int]:
    """Return the bytes of the rows of a node, for each node type with features."""
    found: dict[str | None, int] = {}
    for key, feature in features_of_nodes(features).items():
        if key.type not in kinds:
            raise ValueError(f"a feature is of node type {key.type!r}, but the graph has {list(kinds)}")
        found[key.type] = found.get(key.type, 0) + prod(feature.size()) * row_type(feature).itemsize
    if not found:
        raise ValueError("halo_features needs features of nodes to copy, but there are none")
    return found


def check_given(
    graph: GraphArrays, parts: NDArray[Any], num_parts: int, halo_features: Sequence[ByType]
) -> list[NDArray[np.int64]]:
    """Return the ids that were given for each part in the order of the graph's ids, without those of the part."""
    if len(halo_features) != num_parts:
        raise ValueError(f"halo_features must have ids for each of {num_parts} parts, but has {len(halo_features)}")
    offsets, kinds = kinds_of(graph)
    typed = graph.node_type_to_id is not None
    found = []
    for part, given in enumerate(halo_features):
        if isinstance(given, Mapping) != typed:
            wanted = "a dict by node type" if typed else "a tensor"
            raise TypeError(f"halo_features[{part}] must be {wanted} for this graph, but is a {type(given).__name__}")
        ids = [np.zeros(0, dtype=np.int64)]
        for kind, values in (given if isinstance(given, Mapping) else {None: given}).items():
            if kind not in kinds:
                raise ValueError(f"halo_features[{part}] is of node type {kind!r}, but the graph has {kinds}")
            first, last = offsets[kinds.index(kind)], offsets[kinds.index(kind) + 1]
            name = f"halo_features[{part}]"
            own = as_ids(name, values)
            check_vector(name, own)
            check_ids(name, own, last - first, IndexError)
            ids.append(own.cpu().numpy().astype(np.int64) + first)
        nodes = np.unique(np.concatenate(ids))
        found.append(nodes[parts[nodes] != part])
    return found


def split_ids(nodes: NDArray[np.int64], offsets: Sequence[int], kinds: Sequence[str | None]) -> ByType:
    """Return nodes by type, with ids within their type; a graph without types has one tensor."""
    ends = np.searchsorted(nodes, offsets)
    pieces = (nodes[ends[number] : ends[number + 1]] - offsets[number] for number in range(len(kinds)))
    return as_by_type({kind: torch.from_numpy(own) for kind, own in zip(kinds, pieces, strict=True)})


def as_by_type(values: Mapping[str | None, torch.Tensor]) -> ByType:
    """Return values by type; those of the type None, which a graph without types has, as they are."""
    return values[None] if None in values else {str(kind): own for kind, own in values.items()}


def from_by_type(values: ByType) -> dict[str | None, torch.Tensor]:
    """Return values by type, which is None in a graph without types."""
    return {None: values} if isinstance(values, torch.Tensor) else dict(values.items())
