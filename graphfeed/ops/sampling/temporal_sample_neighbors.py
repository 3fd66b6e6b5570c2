"""Sample one hop in time: in-edges of nodes among those that are before the time of the query; not relabelled."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.sample_neighbors import NO_TYPES, Picks, check_fanouts, make_table_for
from graphfeed.ops.sampling.time_order import earliest_times, ensure_order, linked_order
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.csc import ensure_columns, ensure_edge_types, ensure_length
from graphfeed.ops.verified import has_passed

EMPTY = torch.empty(0, dtype=torch.int64)
ABSENT = {"order": EMPTY.to(torch.int32), "types": NO_TYPES}


class TemporalGraph(NamedTuple):
    """The arrays of a graph for temporal sampling.

    An edge's rank is the position that it has once the edges of each column are sorted by time. A field that is None
    is not there: without times, all edges are before any time.
    """

    indptr: torch.Tensor
    """Column starts, int32 or int64."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64."""
    times: torch.Tensor | None = None
    """int64, by rank: each edge's time, rising in each column, or in each edge type of it."""
    order: torch.Tensor | None = None
    """By rank: the edge's place in its column; None if ranks are positions."""
    links: torch.Tensor | None = None
    """int64, by rank: the edge's place and its source, as `link_sources` returns them. Saves all hops `order`."""
    earliest: torch.Tensor | None = None
    """int64, by rank: a second time of each edge, never above the first; it has to lie in the window as well."""
    cumulative: torch.Tensor | None = None
    """Fixed-point weights by rank, as `cumulate_weights` returns them."""
    edge_times: torch.Tensor | None = None
    """int64, by position: the time at which the next hop queries each edge's source; None takes the column's."""
    types: torch.Tensor | None = None
    """Edge types, ascending inside each column."""
    num_types: int = 1
    """How many edge types there are."""

    def as_kernel_args(self, like: torch.Tensor, *names: str) -> tuple[Any, ...]:
        """Return fields as the kernels of a tensor's device take them; a field that is None is empty."""
        fields = ((name, getattr(self, name)) for name in names)
        return as_kernel_args(like, *(ABSENT.get(name, EMPTY) if field is None else field for name, field in fields))

    def kernels(self, op: str, seeds: torch.Tensor, **others: torch.Tensor) -> ModuleType:
        """Return the kernels of an op for the seeds' device, or raise if they can't read the graph or the others."""
        fields = {f"graph.{name}": field for name, field in self._asdict().items()}
        tensors = {name: field for name, field in fields.items() if isinstance(field, torch.Tensor)}
        return kernels(op, seeds, **tensors, **others)


class HopQuery(NamedTuple):
    """The parameters of one temporal hop, in the order in which kernels take them."""

    seeds: torch.Tensor
    """Node ids."""
    firsts: torch.Tensor
    """int64, one per seed: the first time that lies in its window; empty without windows."""
    limits: torch.Tensor
    """int64, one per seed: its time."""
    fanouts: torch.Tensor
    """int64: one number, or one per edge type; on the CPU."""
    replace: bool
    """Whether an edge may be chosen more than once."""

    @property
    def as_kernel_args(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return (*as_kernel_args(self.seeds, *self[:-1]), self.replace)


def ensure_temporal(graph: TemporalGraph) -> None:
    """Raise unless the arrays that one hop follows fit together; what ops made of checked arrays is not checked."""
    ensure_columns("graph.indptr", graph.indptr)
    ensure_length("graph.indices", graph.indices, graph.indptr)
    for name in ("times", "earliest", "edge_times"):
        values = getattr(graph, name)
        if values is not None:
            check_vector(f"graph.{name}", values, (torch.int64,))
            if values.numel() != graph.indices.numel():
                raise ValueError(
                    f"graph.{name} must have {graph.indices.numel()} values, one per edge, but has {values.numel()}"
                )
    if graph.order is not None and not is_part_of(graph.order, graph):
        ensure_order(graph.indptr, graph.order)
    if graph.cumulative is not None:
        ensure_cumulative(graph.indptr, graph.cumulative)
    if graph.types is not None:
        ensure_edge_types(graph.indptr, graph.types, graph.num_types)


def is_part_of(order: torch.Tensor, graph: TemporalGraph) -> bool:
    """Tell whether an order is that of checked links: `linked_order` returns another tensor at each call."""
    if graph.links is None or not has_passed("links", (graph.indptr, graph.links)):
        return False
    own = linked_order(graph.links)
    alike = order.dtype == own.dtype and order.shape == own.shape and order.stride() == own.stride()
    return alike and order.data_ptr() == own.data_ptr()


def check_method(graph: TemporalGraph, replace: bool, latest: bool) -> None:
    """Raise if the latest edges are wanted together with what they exclude."""
    if latest and replace:
        raise ValueError("the latest edges are taken once each; leave replace out, or sample uniformly")
    if latest and graph.cumulative is not None:
        raise ValueError("the latest edges are taken whatever their weights; leave the weights out")


def check_hop(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    windows: torch.Tensor | None,
    replace: bool,
) -> HopQuery:
    """Return the query of one hop, or raise if its parameters don't fit the graph or each other."""
    ensure_temporal(graph)
    check_vector("seeds", seeds)
    check_fanouts(fanouts, graph.num_types, graph.types, replace)
    check_ids("seeds", seeds, graph.indptr.numel() - 1)
    check_moments(seeds.numel(), times, windows)
    firsts = EMPTY if windows is None else earliest_times(times, windows)
    return HopQuery(seeds.contiguous(), firsts, times.contiguous(), fanouts.to("cpu", torch.int64), replace)


def check_moments(num_seeds: int, times: torch.Tensor, windows: torch.Tensor | None) -> None:
    """Raise unless each seed has a time, and a window if there are windows."""
    check_vector("times", times, (torch.int64,))
    for name, values in (("times", times), ("windows", times if windows is None else windows)):
        if values.numel() != num_seeds:
            raise ValueError(f"{name} must have {num_seeds} values, one per seed, but has {values.numel()}")
    if windows is not None:
        check_vector("windows", windows, (torch.int64,))
        if windows.numel() and int(windows.min()) < 0:
            raise ValueError(f"windows must be 0 or more, but one is {int(windows.min())}")


def count_picks(graph: TemporalGraph, query: HopQuery) -> Picks:
    """Return where each column's edges start, and room for them."""
    seeds = query.seeds
    module = graph.kernels("sampling.temporal_sample_neighbors", seeds, times=query.limits, windows=query.firsts)
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    arrays = graph.as_kernel_args(seeds, "indptr", "times", "earliest", "cumulative", "types")
    module.count_temporal_neighbors(*arrays, *query.as_kernel_args, *as_kernel_args(seeds, offsets))
    return Picks(offsets, buffers.empty(int(offsets[-1]), torch.int64, seeds.device))


def pick_in_time(graph: TemporalGraph, query: HopQuery, key: int, latest: bool) -> Picks:
    """Do as `temporal_sample_neighbors`, with parameters that are checked already."""
    module = graph.kernels("sampling.temporal_sample_neighbors", query.seeds)
    picks = count_picks(graph, query)
    table = make_table_for(picks.offsets, query.fanouts)
    arrays = graph.as_kernel_args(query.seeds, "indptr", "times", "earliest", "cumulative", "types", "order")
    results = as_kernel_args(query.seeds, picks.offsets, table, picks.positions)
    module.fill_temporal_neighbors(*arrays, *query.as_kernel_args, latest, np.uint64(key), *results)
    return picks


def temporal_sample_neighbors(
    graph: TemporalGraph,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    key: int,
    *,
    replace: bool = False,
    latest: bool = False,
    windows: torch.Tensor | None = None,
) -> Picks:
    """Choose in-edges of each seed as `sample_neighbors` does, but only among those before the seed's time.

    An edge is eligible if its time lies in the open interval from `time - window` to `time`, its second time does too,
    and its weight is not 0. The draws depend on the key, the node's id and its time alone. A column costs a binary
    search more than in `sample_neighbors`. With a second time and a window, the edges in between are read as well.

    Args:
        graph: Sorted by time within each edge type if `fanouts` has a number per type, else within each column.
        seeds: Node ids, int32 or int64.
        times: int64, one per seed.
        fanouts: One number, or one per edge type; -1 takes each eligible edge once.
        key: Key of this hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the edges of the highest times instead of random ones; among equal times, those that
            come last in the graph.
        windows: int64, one per seed, 0 or more; None takes all edges before the time.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is wrong, the number of times is not that of the seeds,
            or a window is negative.
    """
    check_method(graph, replace, latest)
    return pick_in_time(graph, check_hop(graph, seeds, times, fanouts, windows, replace), key, latest)
