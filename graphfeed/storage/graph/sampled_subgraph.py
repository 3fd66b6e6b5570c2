"""Sampled subgraphs: the edges of one hop, relabelled, with the original ids of its nodes and edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, overload

import torch

from graphfeed.ops import CompletedFuture
from graphfeed.ops.arguments import as_ids, brief, checked, ignores, kind_of, mark_below, note
from graphfeed.ops.rows import delete_from_columns, delete_rows
from graphfeed.ops.structure import PairedEdges, isin, match_pairs_of_each
from graphfeed.storage.graph.by_type import ByType, TensorOrDict
from graphfeed.storage.graph.layer_data import PyGLayerData, PyGLayerHeteroData, make_layer_data
from graphfeed.storage.graph.type_names import by_type_name, ends_of, from_type_dict, to_type_dict
from graphfeed.storage.memory.tensor_repr import tensor_repr
from graphfeed.storage.memory.tensor_tree import Movable

Layer = TypeVar("Layer", bound="SampledSubgraph")
MOST_TYPES = 4
"""Number of types that the repr of a subgraph shows."""


@dataclass(repr=False)
class CSCFormatBase(Movable):
    """The edges of a hop in compressed sparse columns (CSC).

    Attributes:
        indptr: Start of the edges of each column, then the number of edges, shape (columns + 1,).
        indices: Row of each edge, shape (edges,).

    Raises:
        ValueError: `indptr` does not end at the number of `indices`.

    Example:
        >>> CSCFormatBase(indptr=torch.tensor([0, 1]), indices=torch.tensor([3]))
        CSCFormatBase(indptr=tensor([0, 1]),
                      indices=tensor([3]),
        )
    """

    indptr: torch.Tensor
    indices: torch.Tensor

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"{name} must be a torch.Tensor, but is {kind_of(value)}; make one with torch.as_tensor"
                )
        if self.indptr.numel() == 0:
            raise ValueError("indptr must have one more entry than there are columns, but is empty")
        # On a GPU, reading a value would synchronize.
        if self.indptr.device.type == "cpu" and int(self.indptr[-1]) != len(self.indices):
            raise ValueError(
                f"indptr must end with the number of edges, {len(self.indices)} (the length of indices), "
                f"but ends with {int(self.indptr[-1])}"
            )

    @classmethod
    def unchecked(cls, indptr: torch.Tensor, indices: torch.Tensor) -> "CSCFormatBase":
        """Create an instance from valid arrays without checks, whose time would add up over edge types."""
        made = cls.__new__(cls)
        made.__dict__.update(indptr=indptr, indices=indices)
        return made

    def __repr__(self) -> str:
        return tensor_repr(type(self).__name__, vars(self))


if TYPE_CHECKING:

    class CSCAndDict(CSCFormatBase, dict[Any, CSCFormatBase]):
        """Has the attributes of both, for type checkers alone."""

    CSCOrDict: TypeAlias = CSCAndDict | Any
else:
    CSCOrDict = CSCFormatBase | dict[str, CSCFormatBase]


@dataclass(repr=False)
class SampledSubgraph(Movable):
    """One hop of a mini-batch: in-edges of the columns, with relabelled rows and columns.

    Without types, the ids are tensors; with types, dicts by node type or by edge type "src:rel:dst". Every type of the
    graph is present, even without edges or nodes. Printing a subgraph shows its size; `print(subgraph.details())`
    shows the values.

    Attributes:
        sampled_csc: The edges, a `CSCFormatBase` or a dict by edge type: columns are destinations, and `indices` are
            positions in the row ids of the source type.
        original_column_node_ids: Ids of the destinations: the seeds of this hop.
        original_row_node_ids: Ids of the sources; they begin with the column ids.
        original_edge_ids: Id of each edge: its row in the edge list of its type if the graph stores it, else its
            position in the graph.
        edge_weights: Weight of each edge, from samplers whose edges are not those of the graph: numbers of visits, or
            scores.

    Raises:
        ValueError: An edge type is not of the form "src:rel:dst".
    """

    sampled_csc: CSCOrDict
    original_column_node_ids: TensorOrDict = None
    original_row_node_ids: TensorOrDict = None
    original_edge_ids: TensorOrDict = None
    edge_weights: TensorOrDict = None

    def __post_init__(self) -> None:
        if not isinstance(self.sampled_csc, (CSCFormatBase, dict)):
            given = kind_of(self.sampled_csc)
            raise TypeError(f"sampled_csc must be a CSCFormatBase, or a dict of those by edge type, but is {given}")
        for edge_type in self.sampled_csc if isinstance(self.sampled_csc, dict) else ():
            if edge_type.count(":") != 2:
                raise ValueError(f"edge types must be of the form 'src:rel:dst', but one is {brief(edge_type)}")

    @overload
    def exclude_edges(self, edges: ByType, *, async_op: Literal[False] = False) -> Self: ...

    @overload
    def exclude_edges(self, edges: ByType, *, async_op: Literal[True]) -> CompletedFuture[Self]: ...

    @ignores("assume_num_node_within_int32")
    @checked
    def exclude_edges(self, edges: ByType, *, async_op: bool = False) -> Self | CompletedFuture[Self]:
        """Return the subgraph without the given edges. Row and column ids stay, even those without remaining edges.

        Args:
            edges: Pairs of source and destination ids of the graph, shape (N, 2); by edge type if the graph has types.
                All edges between these pairs are removed. Missing types keep all edges.
            async_op: Whether to return a future with the subgraph, which is computed before this method returns.

        Raises:
            ValueError: The edges have a wrong shape.

        Example:
            >>> ids = torch.tensor([10, 11])
            >>> layer = SampledSubgraph(CSCFormatBase(torch.tensor([0, 2]), torch.tensor([0, 1])), ids[:1], ids)
            >>> layer.exclude_edges(torch.tensor([[11, 10]])).sampled_csc.indices
            tensor([0])
        """
        (result,) = exclude_from_each([self], edges)
        return CompletedFuture(result) if async_op else result

    def _paired(self, edges: ByType) -> dict[Any, PairedEdges]:
        """Return the edges of the subgraph with the edges to exclude, by type."""
        typed = isinstance(self.sampled_csc, dict)
        if isinstance(edges, Mapping) != typed or isinstance(edges, tuple):
            wanted = "a dict by edge type, as the subgraph has types" if typed else "a tensor of shape (N, 2)"
            raise TypeError(f"edges must be {wanted}, but is {kind_of(edges)}")
        named, paired = by_type_name(to_type_dict(edges)), {}
        rows, columns = to_type_dict(self.original_row_node_ids), to_type_dict(self.original_column_node_ids)
        for edge_type, csc in to_type_dict(self.sampled_csc).items():
            if edge_type not in named:
                continue
            source, end = ends_of(edge_type)
            own = as_ids("edges" if edge_type is None else f"edges[{edge_type!r}]", named[edge_type])
            # Without column ids, the id of a column is its position.
            ids = columns.get(end)
            if ids is None:
                ids = torch.arange(len(csc.indptr) - 1, device=csc.indptr.device)
            paired[edge_type] = PairedEdges(csc.indptr, csc.indices, ids, own, rows.get(source))
        return paired

    def _with_ids(self, ids: ByType, places: Mapping[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
        """Return positions of edges by type, extended by the positions of the edges with the given ids."""
        joined, wanted, sampled = dict(places), to_type_dict(ids), to_type_dict(self.original_edge_ids)
        for edge_type in [own for own in to_type_dict(self.sampled_csc) if own in wanted]:
            own = sampled.get(edge_type)
            if own is None:
                raise ValueError("edges are removed by their ids, but the subgraph has no original_edge_ids")
            found = isin(own, as_ids("the ids of edges", wanted[edge_type]).to(own)).nonzero().squeeze(1)
            joined[edge_type] = torch.unique(torch.cat([joined.get(edge_type, found[:0]), found]))
        return joined

    def _without(self, gone: Mapping[Any, torch.Tensor]) -> Self:
        """Return the subgraph without the edges at the given positions, by type."""
        parts, ids = to_type_dict(self.sampled_csc), to_type_dict(self.original_edge_ids)
        weights = to_type_dict(self.edge_weights)
        for edge_type, places in gone.items():
            indptr, indices = parts[edge_type].indptr, parts[edge_type].indices
            starts = delete_from_columns(indptr, places, num_edges=indices.numel())
            parts[edge_type] = CSCFormatBase(starts, delete_rows(indices, places))
            if ids.get(edge_type) is not None:
                ids[edge_type] = delete_rows(ids[edge_type], places)
            if weights.get(edge_type) is not None:
                weights[edge_type] = delete_rows(weights[edge_type], places)
        # Row and column ids stay, even those without edges.
        given = map(from_type_dict, (parts, ids, weights))
        return replace(self, **dict(zip(("sampled_csc", "original_edge_ids", "edge_weights"), given, strict=True)))

    @overload
    def to_pyg(self, x: torch.Tensor) -> PyGLayerData: ...

    @overload
    def to_pyg(self, x: dict[str, torch.Tensor]) -> PyGLayerHeteroData: ...

    def to_pyg(self, x: ByType) -> PyGLayerData | PyGLayerHeteroData:
        """Return the input of PyG's bipartite convolutions: a `PyGLayerData`, or `PyGLayerHeteroData` with types.

        PyG itself is not needed. A model that calls this compiles as a single graph, also with `fullgraph=True`.

        Args:
            x: Features, one row per row id; by node type if the graph has types. Types may be left out.
        """
        return make_layer_data(self, x)

    def details(self) -> str:
        """Return a string with all fields and values, one field per line, in reverse alphabetical order."""
        shown = {name: value for name, value in vars(self).items() if name != "edge_weights" or value is not None}
        return tensor_repr(type(self).__name__, dict(sorted(shown.items(), reverse=True)))

    def __repr__(self) -> str:
        """Return the numbers of rows, columns and edges, by type if there are types, without reading tensors."""
        csc = self.sampled_csc
        shown = {"rows": self.original_row_node_ids, "columns": self.original_column_node_ids}
        if isinstance(csc, CSCFormatBase):
            shown |= {"columns": csc.indptr[1:], "edges": csc.indices}
        else:
            shown["edges"] = {edge_type: own.indices for edge_type, own in csc.items()}
        texts = [f"{name}={count_text(own)}" for name, own in shown.items() if own is not None]
        return f"{type(self).__name__}({', '.join(texts)})"


def count_text(values: ByType) -> str:
    if isinstance(values, torch.Tensor):
        return str(len(values))
    # Types without rows are left out, and only the first types are shown.
    counts = [f"{type_name!r}: {len(own)}" for type_name, own in values.items() if len(own)]
    more = [f"... {len(counts) - MOST_TYPES} more"] if len(counts) > MOST_TYPES else []
    return f"{{{', '.join(counts[:MOST_TYPES] + more)}}}"


def exclude_from_each(layers: Sequence[Layer], edges: ByType, ids: ByType | None = None) -> list[Layer]:
    """Exclude edges from several subgraphs by their endpoints, like `exclude_edges`, and also by their ids.

    Without `ids`, it synchronizes with a GPU only once.
    """
    paired = [layer._paired(edges) for layer in layers]
    # A single call for all subgraphs, to synchronize once.
    gone = iter(match_pairs_of_each([own for parts in paired for own in parts.values()]))
    found = [dict(zip(own, gone, strict=False)) for own in paired]
    if ids is not None:
        found = [layer._with_ids(ids, own) for layer, own in zip(layers, found, strict=True)]
    return [layer._without(own) for layer, own in zip(layers, found, strict=True)]


known_ends = lru_cache(maxsize=4096)(ends_of)


def mark_sampled(
    cscs: Mapping[Any, CSCFormatBase], rows: Mapping[Any, torch.Tensor], num_nodes: Mapping[Any, int]
) -> None:
    """Mark a sampled hop on a GPU as valid, so that checking it needs no synchronization."""
    # The indices of `cscs` are positions in `rows`, whose ids are below `num_nodes`.
    for node_type, ids in rows.items():
        if not ids.is_cpu:
            mark_below(ids, num_nodes[node_type])
    for edge_type, csc in cscs.items():
        if not csc.indices.is_cpu:
            note("ends at", csc.indptr, csc.indices.numel())
            mark_below(csc.indices, rows[known_ends(edge_type)[0]].numel())
