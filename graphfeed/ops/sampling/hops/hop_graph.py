"""What sampling all hops reads of a graph, checked and as passes take it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import ID_DTYPES, NOTHING, brief, check_ids, check_tensors, check_vector
from graphfeed.ops.backend import as_int64, as_types, package_for
from graphfeed.ops.memory import ReadChoice
from graphfeed.ops.sampling.high_degree_index import HighDegreeIndex, ensure_index
from graphfeed.ops.sampling.temporal_graph import TemporalGraph, ensure_temporal
from graphfeed.ops.sampling.weights import GuidedSums, ensure_cumulative, split_sums
from graphfeed.ops.structure.csc import ensure_csc, ensure_joined

BY_RANK = ("times", "order", "links", "earliest", "cumulative")
"""The arrays of a `TemporalGraph` that are by rank."""


class Shape(NamedTuple):
    """The types of a graph; one that has none has one of nodes, and one of edges from it to it."""

    first_ids: Sequence[int]
    """The first id of each node type, and the number of nodes."""
    sources: Sequence[int]
    """The node type that each edge type leads from, and the one that it leads to."""
    destinations: Sequence[int]
    order: Sequence[int]
    """The edge types in the order in which new nodes are counted."""


class HopGraph(NamedTuple):
    """The arrays of a graph: all nodes in one id space, those of each type one after the other.

    The fields `types`, `first_ids`, `ends` and `order` are None together, in a graph without types.
    """

    indptr: torch.Tensor
    """Column starts, int32 or int64, shape (nodes + 1,). The CPU's kernels take int64: int32 is copied."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64."""
    types: torch.Tensor | None = None
    """Edge type of each edge, ascending inside each column. Types that are neither uint8 nor int32 are copied."""
    first_ids: torch.Tensor | None = None
    """int64: the first id of each node type, and the number of nodes; on the CPU."""
    ends: torch.Tensor | None = None
    """int64: source and destination node type of each edge type, shape (edge types, 2); on the CPU."""
    order: torch.Tensor | None = None
    """int64: the edge types in the order in which new sources are counted; on the CPU."""
    cumulative: torch.Tensor | GuidedSums | None = None
    """Fixed-point weights, as `cumulate_weights` returns them, perhaps with guides to them."""
    timed: Sequence[TemporalGraph] | None = None
    """The times of the edges, and all else that is by rank, the weights too: sorted within each column, for hops with
    one fan-out; and within each edge type of it, for hops with one per edge type. What no hop needs may be any. Their
    `indptr`, `indices` and `types` are not read."""
    indptr_dtype: torch.dtype | None = None
    """Of the column starts of the results; None: that of `indptr`."""
    large_columns: HighDegreeIndex | None = None
    """LABOR: what `build_high_degree_index` returns. It saves reading large columns and changes no result. It is of use
    on the CPU, without types, times, weights and replacement."""
    reads: ReadChoice | None = None
    """Of arrays in mapped files that may not be in memory: whether they are read by page."""

    @property
    def num_types(self) -> int:
        """The number of edge types; 1 without types."""
        return 1 if self.ends is None else self.ends.shape[0]


def check_graph(graph: HopGraph) -> None:
    """Raise unless the arrays of a graph fit together."""
    check_kinds(graph)
    if graph.types is None:
        ensure_csc(graph.indptr, graph.indices)
    else:
        assert graph.first_ids is not None
        assert graph.ends is not None
        assert graph.order is not None
        for label, given in (("first_ids", graph.first_ids), ("order", graph.order)):
            check_vector(label, given, (torch.int64,))
        package_for("sampling.sample_hops", graph.indices, indptr=graph.indptr, types=graph.types)
        ensure_joined(graph.indptr, graph.indices, graph.types, graph.first_ids, graph.ends)
        if sorted(graph.order.tolist()) != list(range(graph.num_types)):
            raise ValueError(
                f"order must hold each of the {graph.num_types} edge types once, but is {graph.order.tolist()}"
            )
    cumulative = split_sums(graph.cumulative)[0]
    if cumulative is not None:
        ensure_cumulative(graph.indptr, cumulative)
    if graph.large_columns is not None:
        ensure_index(graph.large_columns)
    if graph.timed is not None:
        check_timed(graph, graph.timed)


def check_kinds(graph: HopGraph) -> None:
    """Raise if a field that a check of values would not look at is of another kind, or is there without the others."""
    check_tensors(indptr=graph.indptr, indices=graph.indices)
    by_type = {"types": graph.types, "first_ids": graph.first_ids, "ends": graph.ends, "order": graph.order}
    if any(part is not None for part in by_type.values()):
        check_tensors(**by_type)
    if graph.indptr_dtype not in (None, *ID_DTYPES):
        raise TypeError(f"indptr_dtype must be torch.int32 or torch.int64, but is {brief(graph.indptr_dtype)}")
    for name, part, kind in (
        ("timed", graph.timed, (list, tuple)),
        ("large_columns", graph.large_columns, HighDegreeIndex),
        ("reads", graph.reads, ReadChoice),
    ):
        if part is not None and not isinstance(part, kind):
            raise TypeError(f"{name} of the graph is {brief(part)}, which is no such part of a HopGraph")


def check_timed(graph: HopGraph, timed: Sequence[TemporalGraph]) -> None:
    """Raise unless what is by rank fits the graph."""
    if len(timed) != 2:
        raise ValueError(f"timed must hold 2 graphs, for one fan-out and for one per edge type, but holds {len(timed)}")
    for part in timed:
        if not isinstance(part, TemporalGraph):
            raise TypeError(f"timed must hold TemporalGraphs, but holds {brief(part)}")
    if timed[0].edge_times is not timed[1].edge_times:
        raise ValueError("the graphs in timed must have the same edge_times, but have different tensors")
    for part in timed if timed[0] is not timed[1] else timed[:1]:
        own = part._replace(indptr=graph.indptr, indices=graph.indices, types=None)
        fields = {f"graph.{name}": field for name, field in own._asdict().items() if isinstance(field, torch.Tensor)}
        package_for("sampling.sample_hops", graph.indptr, **fields)
        ensure_temporal(own)


def check_seeds(graph: HopGraph, shape: Shape, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless there are seeds for each node type; which nodes there are, the passes and `check_ranges` look at."""
    if not isinstance(seeds, (list, tuple)):
        raise TypeError(f"seeds must be a list of tensors, one per node type, but is {brief(seeds)}")
    if len(seeds) != len(shape.first_ids) - 1:
        raise ValueError(
            f"seeds must hold {len(shape.first_ids) - 1} tensors, one per node type, but holds {len(seeds)}"
        )
    for kind, part in enumerate(seeds):
        check_vector("seeds" if graph.types is None else f"seeds[{kind}]", part, (graph.indices.dtype,))


def check_ranges(graph: HopGraph, shape: Shape, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless seeds lie inside of their node types."""
    for kind, (part, first, end) in enumerate(zip(seeds, shape.first_ids, shape.first_ids[1:], strict=False)):
        check_ids("seeds" if graph.types is None else f"seeds[{kind}]", part, end - first)


def shape_of(graph: HopGraph) -> Shape:
    if graph.first_ids is None or graph.ends is None or graph.order is None:
        return Shape((0, graph.indptr.numel() - 1), (0,), (0,), (0,))
    sources, destinations = graph.ends.T.tolist()
    return Shape(graph.first_ids.tolist(), sources, destinations, graph.order.tolist())


def kernel_graph(graph: HopGraph) -> HopGraph:
    """Return the arrays of a graph on the CPU as kernels take them; what is not there by rank is empty."""
    sums, large, timed = None, graph.large_columns, graph.timed
    if timed is not None:
        # All else is by rank, so that nothing but the columns is read of the others.
        large, timed = None, [ranked_arrays(own) for own in timed]
    elif graph.cumulative is not None:
        cumulative, guides = split_sums(graph.cumulative)
        assert cumulative is not None
        sums = GuidedSums(cumulative.contiguous(), guides.contiguous())
    if large is not None:
        large = HighDegreeIndex(*(part.contiguous() for part in large)) if large.columns.numel() else None
    types = None if graph.types is None else as_types(graph.types, graph.types)
    columns = as_int64(graph.indptr, graph.indptr), graph.indices.contiguous(), types
    return HopGraph(*columns, cumulative=sums, timed=timed, large_columns=large)


def ranked_arrays(graph: TemporalGraph) -> TemporalGraph:
    # Links hold the order as well.
    order = None if graph.order is None or graph.links is not None else graph.order.to(torch.int64)
    fields = {name: getattr(graph._replace(order=order), name) for name in (*BY_RANK, "edge_times")}
    present: dict[str, Any] = {name: NOTHING if own is None else own.contiguous() for name, own in fields.items()}
    return graph._replace(**present)
