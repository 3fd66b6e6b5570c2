"""Sample in-edges of nodes at times, among those that are before: one hop, not relabelled."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.sample_neighbors import NO_TABLE, NO_TYPES, Picks, check_fanouts, make_table
from graphfeed.ops.sampling.time_order import earliest_times

EMPTY = torch.empty(0, dtype=torch.int64)
ABSENT = {"order": EMPTY.to(torch.int32), "types": NO_TYPES}


class TimedColumns(NamedTuple):
    """The arrays of a graph that is sampled in time. An edge's rank is its position if each column were in that order.

    What is None is not there: no times, all edges are before any time.
    """

    indptr: torch.Tensor
    """Column starts, int32 or int64."""
    indices: torch.Tensor
    """Source node of each edge, int32 or int64."""
    times: torch.Tensor | None = None
    """int64, by rank: each edge's time, rising in each column, or in each type of it."""
    order: torch.Tensor | None = None
    """By rank: the edge's place in its column; None where ranks are positions."""
    links: torch.Tensor | None = None
    """int64, by rank: the edge's place and its source, as `link_sources` gives them; spares several hops `order`."""
    earliest: torch.Tensor | None = None
    """int64, by rank: a second time of each edge, never above the first; it has to lie in the window as well."""
    cumulative: torch.Tensor | None = None
    """Fixed-point weights by rank, as `cumulate_weights` gives them."""
    edge_times: torch.Tensor | None = None
    """int64, by position: when each edge's source is looked at in the next hop; None where its column is."""
    types: torch.Tensor | None = None
    """Edge types, ascending inside each column."""
    num_types: int = 1
    """How many edge types there are."""

    def as_kernel_args(self, like: torch.Tensor, *names: str) -> tuple[Any, ...]:
        """Return fields as the kernels of a tensor's device take them, empty where there is nothing."""
        fields = ((name, getattr(self, name)) for name in names)
        return as_kernel_args(like, *(ABSENT.get(name, EMPTY) if field is None else field for name, field in fields))

    def kernels(self, op: str, seeds: torch.Tensor, **others: torch.Tensor) -> ModuleType:
        """Return the kernels of an op where the seeds lie, or raise where those can't read the graph or the others."""
        fields = {f"columns.{name}": field for name, field in self._asdict().items()}
        tensors = {name: field for name, field in fields.items() if isinstance(field, torch.Tensor)}
        return kernels(op, seeds, **tensors, **others)


class TimedHop(NamedTuple):
    """What is asked for in one hop, in the order in which kernels take it."""

    seeds: torch.Tensor
    """Node ids."""
    firsts: torch.Tensor
    """int64, one a seed: the first time that lies in its window; empty without windows."""
    limits: torch.Tensor
    """int64, one a seed: its time."""
    fanouts: torch.Tensor
    """int64: one number, or one an edge type; on the CPU."""
    replace: bool
    """Whether an edge may be chosen more than once."""

    @property
    def as_kernel_args(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return (*as_kernel_args(self.seeds, *self[:-1]), self.replace)


def check_method(columns: TimedColumns, replace: bool, latest: bool) -> None:
    """Raise if the latest edges are to be taken in a way that makes no sense."""
    if latest and replace:
        raise ValueError("the latest edges are taken once each; leave replace out, or sample uniformly")
    if latest and columns.cumulative is not None:
        raise ValueError("the latest edges are taken whatever their weights; leave the weights out")


def check_hop(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    windows: torch.Tensor | None,
    replace: bool,
) -> TimedHop:
    """Return what one hop is asked for, or raise where that makes no sense."""
    check_vector("indptr", columns.indptr)
    check_vector("seeds", seeds)
    check_vector("times", times, (torch.int64,))
    check_fanouts(fanouts, columns.num_types, columns.types)
    check_ids("seeds", seeds, columns.indptr.numel() - 1)
    for name, values in (("times", times), ("windows", times if windows is None else windows)):
        if values.numel() != seeds.numel():
            raise ValueError(f"{name} must have {seeds.numel()} values, one a seed, but has {values.numel()}")
    if windows is not None:
        check_vector("windows", windows, (torch.int64,))
        if windows.numel() and int(windows.min()) < 0:
            raise ValueError(f"windows must be 0 or more, but one is {int(windows.min())}")
    firsts = EMPTY if windows is None else earliest_times(times, windows)
    return TimedHop(seeds.contiguous(), firsts, times.contiguous(), fanouts.to("cpu", torch.int64), replace)


def count_picks(columns: TimedColumns, hop: TimedHop) -> Picks:
    """Return where each column's edges start, and room for them."""
    module = columns.kernels("sampling.temporal_sample_neighbors", hop.seeds, times=hop.limits, windows=hop.firsts)
    offsets = buffers.empty(hop.seeds.numel() + 1, torch.int64, hop.seeds.device)
    graph = columns.as_kernel_args(hop.seeds, "indptr", "times", "earliest", "cumulative", "types")
    module.count_timed_neighbors(*graph, *hop.as_kernel_args, *as_kernel_args(hop.seeds, offsets))
    return Picks(offsets, buffers.empty(int(offsets[-1]), torch.int64, hop.seeds.device))


def pick_in_time(columns: TimedColumns, hop: TimedHop, key: int, latest: bool) -> Picks:
    """Do as `temporal_sample_neighbors` what is known to make sense."""
    module = columns.kernels("sampling.temporal_sample_neighbors", hop.seeds)
    picks = count_picks(columns, hop)
    table = NO_TABLE
    if not on_gpu(hop.seeds):
        most = int(picks.offsets.diff().max()) if hop.seeds.numel() else 0
        table = make_table(min(max(int(hop.fanouts.max()), 0), most))
    graph = columns.as_kernel_args(hop.seeds, "indptr", "times", "earliest", "cumulative", "types", "order")
    module.fill_timed_neighbors(
        *graph,
        *hop.as_kernel_args,
        latest,
        np.uint64(key),
        *as_kernel_args(hop.seeds, picks.offsets, table, picks.positions),
    )
    return picks


def temporal_sample_neighbors(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: torch.Tensor,
    key: int,
    *,
    replace: bool = False,
    latest: bool = False,
    windows: torch.Tensor | None = None,
) -> Picks:
    """Choose in-edges of each seed as `sample_neighbors` does, but only among those before its time.

    An edge is eligible if its time lies in the open interval from `time - window` to `time`, its second time too, and
    its weight is not 0. The draws depend on the key, the node's id and its time alone. Costs a binary search a column
    beside what `sample_neighbors` does; where there is a second time and a window, a pass over the edges in between.

    Args:
        columns: The graph; in the order of each type by itself if `fanouts` has a number a type, else of all together.
        seeds: Node ids, int32 or int64.
        times: int64, one a seed.
        fanouts: One number, or one an edge type; -1 takes each eligible edge once.
        key: Key of this hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the edges of the highest times, of equal ones those that come last in the graph, instead
            of random ones.
        windows: int64, one a seed, 0 or more; None takes all edges before the time.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a wrong fan-out, another number of times, or a negative window.
    """
    check_method(columns, replace, latest)
    return pick_in_time(columns, check_hop(columns, seeds, times, fanouts, windows, replace), key, latest)
