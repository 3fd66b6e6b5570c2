"""The arrays of a graph, checked once and in the form that kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch

from graphfeed.ops.arguments import ID_DTYPES, NOTHING, as_ids, brief, check_length, check_tensors, check_vector
from graphfeed.ops.backend import as_int64, as_types, package_for
from graphfeed.ops.memory.pinned import is_page_locked
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, check_index
from graphfeed.ops.sampling.time_order import TimeOrder, check_edge_places, check_links
from graphfeed.ops.sampling.weights import GuidedSums, as_guided, check_cumulative
from graphfeed.ops.structure.csc import check_columns, check_csc, check_joined


@dataclass(frozen=True, eq=False)
class Graph:
    """The arrays of a graph: in-edges in compressed sparse columns, and what is derived from them for sampling.

    All nodes are in one id space, in which each node type has a contiguous range. A graph without types has one node
    type and one edge type. `Graph.checked` reads all arrays to check them. `Graph.unchecked` trusts its caller:
    sampling from invalid arrays reads memory out of bounds. Both convert what CPU kernels can't read: column starts to
    int64, edge types to uint8 or int32. Arrays of a GPU, and page-locked ones, are not converted.

    Example:
        >>> graph = Graph.checked(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
        >>> graph.num_nodes, graph.num_edges, graph.num_types
        (3, 3, 1)
    """

    indptr: torch.Tensor
    """Column starts, int64 on the CPU, int32 or int64 elsewhere, shape (nodes + 1,)."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64. Empty if it is not known, where only positions are sampled."""
    types: torch.Tensor | None
    """Edge type of each edge, ascending within each column. None: the graph has no types."""
    first_ids: tuple[int, ...]
    """The first id of each node type, followed by the number of nodes."""
    sources: tuple[int, ...]
    """The source node type of each edge type."""
    destinations: tuple[int, ...]
    """The destination node type of each edge type."""
    order: tuple[int, ...]
    """The edge types in the order in which new sources are numbered."""
    sums: GuidedSums | None
    """Running sums of weights, with or without guides. None: draws are uniform."""
    by_column: TimeOrder | None
    """The edges of each column in the order of time, for hops with one fan-out. None: sampling ignores time."""
    by_type: TimeOrder | None
    """The edges of each type in a column in the order of time, for hops with a fan-out per edge type."""
    edge_times: torch.Tensor | None
    """int64, by position: the time at which the next hop samples the source of each edge. None, or `ALWAYS` for an
    edge, stands for the time of the column."""
    large_columns: HighDegreeIndex | None
    """For LABOR, an index that avoids reading large columns and changes no result. It is only used on the CPU, without
    types, times, weights and replacement."""
    indptr_dtype: torch.dtype
    """dtype of the results' column starts."""

    @classmethod
    def unchecked(  # noqa: PLR0913 - one for each field
        cls,
        indptr: torch.Tensor,
        indices: torch.Tensor = NOTHING,
        *,
        types: torch.Tensor | None = None,
        first_ids: Sequence[int] | None = None,
        ends: Sequence[Sequence[int]] | torch.Tensor | None = None,
        order: Sequence[int] | None = None,
        cumulative: torch.Tensor | GuidedSums | None = None,
        by_column: TimeOrder | None = None,
        by_type: TimeOrder | None = None,
        edge_times: torch.Tensor | None = None,
        large_columns: HighDegreeIndex | None = None,
        indptr_dtype: torch.dtype | None = None,
    ) -> Self:
        """Return the record of arrays that are known to be valid.

        Args:
            ends: Source and destination node type of each edge type, shape (edge types, 2). Needed with `types`.
            first_ids, order: By default, there is one node type, and edge types are numbered in ascending order.
            cumulative: Running sums of weights, as `cumulate_weights` returns them, optionally with guides.
            by_type: By default, `by_column`.
            indptr_dtype: By default, the dtype of `indptr`.
            indptr, indices, types, by_column, edge_times, large_columns: As the fields.
        """
        pairs = [(0, 0)] if ends is None else [(int(source), int(end)) for source, end in ends]
        sources, destinations = zip(*pairs, strict=True) if pairs else ((), ())
        first, other = by_column or by_type, by_type or by_column
        ranked = first and in_one_piece(first)
        return cls(
            indptr if is_page_locked(indptr) else as_int64(indptr, indptr) if indptr.is_cpu else indptr.contiguous(),
            indices.contiguous(),
            None if types is None else as_types(types, types) if types.is_cpu else types.contiguous(),
            (0, indptr.numel() - 1) if first_ids is None else tuple(map(int, first_ids)),
            sources,
            destinations,
            tuple(range(len(pairs))) if order is None else tuple(map(int, order)),
            None if cumulative is None else as_guided(cumulative),
            ranked,
            ranked if other is first else other and in_one_piece(other),
            None if edge_times is None else edge_times.contiguous(),
            large_columns,
            indptr_dtype or indptr.dtype,
        )

    @classmethod
    def checked(cls, indptr: torch.Tensor, indices: torch.Tensor, **arrays: Any) -> Self:
        """Check arrays, which takes a pass over each; return their record. The arguments are those of `unchecked`.

        Raises:
            TypeError: An array is not a tensor, or has a wrong dtype.
            ValueError: The arrays are not a valid graph in compressed sparse columns, an array per edge has another
                length, an edge type joins other node types, or sums and times are not in order.
        """
        cumulative = arrays.get("cumulative")
        if arrays.get("types") is not None or arrays.get("ends") is not None:
            check_given_types(indptr, indices, arrays)
        else:
            check_csc(indptr, indices)
        if arrays.get("indptr_dtype") not in (None, *ID_DTYPES):
            raise TypeError(f"indptr_dtype must be torch.int32 or torch.int64, but is {brief(arrays['indptr_dtype'])}")
        if cumulative is not None:
            check_cumulative(indptr, as_guided(cumulative).cumulative)
        for name, kind in (("by_column", TimeOrder), ("by_type", TimeOrder), ("large_columns", HighDegreeIndex)):
            if not isinstance(arrays.get(name), kind | None):
                raise TypeError(f"{name} must be a {kind.__name__}, but is {brief(arrays[name])}")
        for name in ("by_column", "by_type"):
            if arrays.get(name) is not None:
                check_order(indptr, name, arrays[name])
        if arrays.get("edge_times") is not None:
            check_per_edge("edge_times", arrays["edge_times"], indices.numel())
        if arrays.get("large_columns") is not None:
            check_index(arrays["large_columns"])
        return cls.unchecked(indptr, indices, **arrays)

    @cached_property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @cached_property
    def num_edges(self) -> int:
        return self.indices.numel()

    @cached_property
    def num_types(self) -> int:
        """The number of edge types; 1 without types."""
        return len(self.sources)

    @cached_property
    def num_node_types(self) -> int:
        return len(self.first_ids) - 1

    def ranked(self, *, by_type: bool) -> TimeOrder | None:
        """Return the edges in the order of time for a hop with one fan-out, or with one per edge type."""
        return self.by_type if by_type else self.by_column


def check_given_types(indptr: torch.Tensor, indices: torch.Tensor, arrays: dict[str, Any]) -> None:
    """Raise unless the types of edges and nodes are valid and agree with the edges."""
    types: Any = arrays.get("types")
    check_tensors(indptr=indptr, indices=indices, types=types)
    if arrays.get("ends") is None:
        raise ValueError("ends is missing; give the source and destination node type of each edge type")
    ends = as_ids("ends", arrays["ends"])
    given, order = arrays.get("first_ids"), arrays.get("order")
    first_ids = torch.tensor([0, indptr.numel() - 1], device="cpu") if given is None else as_ids("first_ids", given)
    check_columns("first_ids", first_ids, indptr.numel() - 1)
    package_for("sampling.sample_hops", indices, indptr=indptr, types=types)
    check_joined(indptr, indices, types, first_ids, ends)
    numbers = list(range(len(ends))) if order is None else as_ids("order", order).tolist()
    if sorted(numbers) != list(range(len(ends))):
        raise ValueError(f"order must hold each of the {len(ends)} edge types once, but is {brief(order)}")


def check_order(indptr: torch.Tensor, name: str, given: TimeOrder) -> None:
    """Raise unless the arrays of an order of time have one valid entry per edge."""
    num_edges = int(indptr[-1])
    for part in ("times", "earliest"):
        if getattr(given, part) is not None:
            check_per_edge(f"{name}.{part}", getattr(given, part), num_edges)
    if given.links is not None:
        check_links(indptr, given.links)
    if given.order is not None:
        check_edge_places("order", indptr, given.order)
    if given.cumulative is not None:
        check_cumulative(indptr, given.cumulative)


def check_per_edge(name: str, times: torch.Tensor, num_edges: int) -> None:
    check_vector(name, times, (torch.int64,))
    check_length(name, times, num_edges, "edge")


def in_one_piece(order: TimeOrder) -> TimeOrder:
    """Return contiguous arrays that CPU kernels can read. They don't read the order of links, which is in the links."""
    return TimeOrder(**{
        name: part if part is None or (name == "order" and order.links is not None) else as_int64(part, part)
        for name, part in order._asdict().items()
    })  # fmt: skip
