"""The graph arrays for sampling all hops: their checks, and the form that passes expect."""

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
"""The fields of a `TemporalGraph` that are indexed by rank."""


class Shape(NamedTuple):
    """The types of a graph. An untyped graph has one node type and one edge type."""

    first_ids: Sequence[int]
    """The first id of each node type, followed by the number of nodes."""
    sources: Sequence[int]
    """The source node type and the destination node type of each edge type."""
    destinations: Sequence[int]
    order: Sequence[int]
    """The edge types in the order in which new nodes are numbered."""


class HopGraph(NamedTuple):
    """The arrays of a graph. All nodes are in one id space, in which each node type has a contiguous range.

    The fields `types`, `first_ids`, `ends` and `order` are None together, in a graph without types.
    """

    indptr: torch.Tensor
    """Column starts, int32 or int64, shape (nodes + 1,). CPU kernels need int64, so int32 is copied."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64."""
    types: torch.Tensor | None = None
    """Edge type of each edge, ascending within each column. Other dtypes than uint8 and int32 are copied."""
    first_ids: torch.Tensor | None = None
    """int64, on the CPU: the first id of each node type, followed by the number of nodes."""
    ends: torch.Tensor | None = None
    """int64, on the CPU, shape (edge types, 2): source and destination node type of each edge type."""
    order: torch.Tensor | None = None
    """int64, on the CPU: the edge types in the order in which new sources are numbered."""
    cumulative: torch.Tensor | GuidedSums | None = None
    """Running sums of weights, as `cumulate_weights` returns them, optionally with guides."""
    timed: Sequence[TemporalGraph] | None = None
    """Two graphs with the arrays by rank, including times and weights. A hop with several fan-outs reads the second,
    whose edges are sorted by edge type and time within each column; any other reads the first, whose edges are sorted
    by time alone. Their `indptr`, `indices` and `types` are ignored."""
    indptr_dtype: torch.dtype | None = None
    """dtype of the results' column starts. None: that of `indptr`."""
    large_columns: HighDegreeIndex | None = None
    """For LABOR, the result of `build_high_degree_index`. It avoids reading large columns and changes no result. It is
    only used on the CPU, without types, times, weights and replacement."""
    reads: ReadChoice | None = None
    """For arrays in memory-mapped files: decides whether they are read page by page."""

    @property
    def num_types(self) -> int:
        """The number of edge types; 1 without types."""
        return 1 if self.ends is None else self.ends.shape[0]


def check_graph(graph: HopGraph) -> None:
    """Raise unless the arrays of a graph are consistent."""
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
    """Raise if a field has a wrong type, or if only some of the fields for typed graphs are given."""
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
            raise TypeError(f"{name} of the graph is {brief(part)}, which is not valid for this field of HopGraph")


def check_timed(graph: HopGraph, timed: Sequence[TemporalGraph]) -> None:
    """Raise unless the arrays by rank are consistent with the graph."""
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


def check_hop_seeds(graph: HopGraph, shape: Shape, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless there is a tensor of seeds for each node type. Passes and `check_ranges` check the ids."""
    if not isinstance(seeds, (list, tuple)):
        raise TypeError(f"seeds must be a list of tensors, one per node type, but is {brief(seeds)}")
    if len(seeds) != len(shape.first_ids) - 1:
        raise ValueError(
            f"seeds must hold {len(shape.first_ids) - 1} tensors, one per node type, but holds {len(seeds)}"
        )
    for kind, part in enumerate(seeds):
        check_vector("seeds" if graph.types is None else f"seeds[{kind}]", part, (graph.indices.dtype,))


def check_ranges(graph: HopGraph, shape: Shape, seeds: Sequence[torch.Tensor]) -> None:
    """Raise unless the seeds are valid ids of their node types."""
    for kind, (part, first, end) in enumerate(zip(seeds, shape.first_ids, shape.first_ids[1:], strict=False)):
        check_ids("seeds" if graph.types is None else f"seeds[{kind}]", part, end - first)


def shape_of(graph: HopGraph) -> Shape:
    if graph.first_ids is None or graph.ends is None or graph.order is None:
        return Shape((0, graph.indptr.numel() - 1), (0,), (0,), (0,))
    sources, destinations = graph.ends.T.tolist()
    return Shape(graph.first_ids.tolist(), sources, destinations, graph.order.tolist())


def kernel_graph(graph: HopGraph) -> HopGraph:
    """Return the arrays of a graph in the form that CPU kernels expect; missing arrays by rank are empty."""
    sums, large, timed = None, graph.large_columns, graph.timed
    if timed is not None:
        # Everything else is by rank, so only the columns of the other arrays are read.
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
    # Links include the order.
    order = None if graph.order is None or graph.links is not None else graph.order.to(torch.int64)
    fields = {name: getattr(graph._replace(order=order), name) for name in (*BY_RANK, "edge_times")}
    present: dict[str, Any] = {name: NOTHING if own is None else own.contiguous() for name, own in fields.items()}
    return graph._replace(**present)
