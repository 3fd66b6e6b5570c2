"""Sample one hop in time: in-edges of nodes among those that are before the time of the query; not relabelled."""

from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels, on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.sampling.hops.hop_graph import ranked_arrays
from graphfeed.ops.sampling.hops.hop_recipe import NOTHING, Drawing
from graphfeed.ops.sampling.hops.one_hop import one_hop_graph, pick_one_hop
from graphfeed.ops.sampling.sample_neighbors import NO_TYPES, Picks, check_fanouts
from graphfeed.ops.sampling.temporal_graph import TemporalGraph, ensure_temporal
from graphfeed.ops.sampling.time_order import earliest_times

ABSENT = {"order": NOTHING.to(torch.int32), "types": NO_TYPES}


class HopQuery(NamedTuple):
    """The parameters of one temporal hop."""

    seeds: torch.Tensor
    """Node ids."""
    times: torch.Tensor
    """int64, one per seed."""
    windows: torch.Tensor | None
    """int64, one per seed, 0 or more; None takes all edges before the time."""
    fanouts: torch.Tensor
    """int64: one number, or one per edge type; on the CPU."""
    replace: bool
    """Whether an edge may be chosen more than once."""

    def on_gpu(self) -> tuple[Any, ...]:
        """Return the seeds, the first time in each window, the times, fan-outs and replacement, for a GPU's kernels."""
        firsts = NOTHING if self.windows is None else earliest_times(self.times, self.windows)
        return self.seeds.contiguous(), firsts, self.times.contiguous(), self.fanouts, self.replace


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
    graph.check_placed("sampling.temporal_sample_neighbors", seeds, times=times)
    return HopQuery(seeds, times, windows, fanouts.to("cpu", torch.int64), replace)


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


def pick_on_cpu(graph: TemporalGraph, query: HopQuery, keys: tuple[int, ...], drawing: Drawing) -> Picks:
    """Return the edges of one hop, by the passes that all hops are made of."""
    ranked, arrays = ranked_arrays(graph), one_hop_graph(graph.indptr, None, graph.types, graph.indices)
    arrays = arrays._replace(ranked=(ranked, ranked))
    return Picks(*pick_one_hop(arrays, query.seeds, query.fanouts, keys, drawing, (query.times, query.windows)))


def fields_on_gpu(graph: TemporalGraph, *names: str) -> list[torch.Tensor]:
    """Return arrays of a graph as a GPU's kernels take them; one that is None is empty."""
    fields = ((name, getattr(graph, name)) for name in names)
    return [ABSENT.get(name, NOTHING) if field is None else field.contiguous() for name, field in fields]


def count_on_gpu(graph: TemporalGraph, query: HopQuery) -> Picks:
    """Return where each column's edges start, and room for them."""
    seeds = query.seeds
    module = kernels("sampling.temporal_sample_neighbors", seeds)
    offsets = buffers.empty(seeds.numel() + 1, torch.int64, seeds.device)
    arrays = fields_on_gpu(graph, "indptr", "times", "earliest", "cumulative", "types")
    module.count_temporal_neighbors(*arrays, *query.on_gpu(), offsets)
    return Picks(offsets, buffers.empty(int(offsets[-1]), torch.int64, seeds.device))


def pick_in_time(graph: TemporalGraph, query: HopQuery, key: int, latest: bool) -> Picks:
    """Do as `temporal_sample_neighbors`, with parameters that are checked already."""
    if not on_gpu(query.seeds):
        return pick_on_cpu(graph, query, (key,), Drawing("latest" if latest else "uniform", query.replace))
    picks = count_on_gpu(graph, query)
    arrays = fields_on_gpu(graph, "indptr", "times", "earliest", "cumulative", "types", "order")
    module = kernels("sampling.temporal_sample_neighbors", query.seeds)
    module.fill_temporal_neighbors(*arrays, *query.on_gpu(), latest, np.uint64(key), *picks)
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
