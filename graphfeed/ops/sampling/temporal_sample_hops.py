"""Sample all hops of a mini-batch in time on a graph of one type; no two nodes are merged."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.sample_hops import FIRST_EDGES, Layer, Outputs
from graphfeed.ops.sampling.sample_neighbors import Picks, make_table
from graphfeed.ops.sampling.temporal_sample_neighbors import EMPTY, TimedColumns, TimedHop, check_method, pick_in_time
from graphfeed.ops.sampling.time_order import earliest_times

NO_WINDOW = -1


class TimedOutputs(Outputs):
    """The flat arrays that the kernel writes, with the time of each row."""

    def __init__(
        self, seeds: NDArray[Any], times: NDArray[np.int64], indptr_dtype: Any, fanouts: Sequence[int]
    ) -> None:
        edges, rows, nodes = 0, seeds.size, seeds.size
        for fanout in fanouts:
            rows = nodes
            edges += nodes * max(fanout, 1)
            nodes += nodes * max(fanout, 1)
        sizes = (min(size, FIRST_EDGES) + 1 for size in (edges, rows))
        super().__init__(len(fanouts), seeds, indptr_dtype, *sizes)
        self.times = buffers.POOL.empty(self.nodes.size, np.int64)
        self.times[: seeds.size] = times
        self.bases = buffers.POOL.empty(self.starts.size, np.int64)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order in which kernels take them."""
        return (
            self.nodes, self.times, self.node_counts, self.bases, self.starts, self.degrees, self.indptr,
            self.edge_counts, self.positions, self.neighbors,
        )  # fmt: skip

    def grow(self, hop: int) -> None:
        """Make room for a hop that did not fit, keeping what is there."""
        super().grow(hop)
        for name, size in (("times", self.nodes.size), ("bases", self.starts.size)):
            old = getattr(self, name)
            new = buffers.POOL.empty(size, np.int64)
            new[: old.size] = old
            setattr(self, name, new)

    def run(self, kernel: Callable[[int], int], num_hops: int) -> list[Layer]:
        """Run a kernel until all hops are there, growing where an array is too short.

        Args:
            kernel: Takes the hop to go on from, and returns the hop reached.
            num_hops: How many there are.
        """
        hop = kernel(0)
        while hop < num_hops:
            self.grow(hop)
            hop = kernel(hop)
        return self.layers()


def stack_timed_hops(
    sample: Callable[[TimedColumns, TimedHop, Any], Picks],
    columns: TimedColumns,
    first: TimedHop,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    window: int | None,
) -> list[Layer]:
    """Make all hops of one-hop kernels, as a GPU has them.

    Args:
        sample: Takes the graph, what one hop is asked for, and its key.
        columns: The graph.
        first: The seeds, their times, and how all hops are sampled.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The key of each hop.
        window: Of all columns.
    """
    columns = columns._replace(earliest=None)
    layers: list[Layer] = []
    seeds, times = first.seeds, first.limits
    for fanout, key in zip(fanouts, keys, strict=True):
        firsts = EMPTY if window is None else earliest_times(times, torch.full_like(times, window))
        hop = first._replace(seeds=seeds, firsts=firsts, limits=times, fanouts=torch.tensor([fanout]))
        offsets, positions = sample(columns, hop, key)
        rows = torch.cat([seeds, take_rows(columns.indices, positions)])
        places = torch.arange(seeds.numel(), rows.numel(), dtype=seeds.dtype, device=seeds.device)
        layers.append(Layer(seeds, rows, offsets.to(columns.indptr.dtype), places, positions))
        if len(layers) < len(fanouts):
            found = (
                torch.repeat_interleave(times, offsets.diff(), output_size=positions.numel())
                if columns.edge_times is None
                else take_rows(columns.edge_times, positions)
            )
            seeds, times = rows, torch.cat([times, found])
    return layers


def temporal_sample_hops(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    *,
    replace: bool = False,
    latest: bool = False,
    window: int | None = None,
) -> list[Layer]:
    """Sample hop after hop by `temporal_sample_neighbors`, each from all rows so far; every edge makes a row.

    The rows of a hop are its columns, then the source of each edge, doubles included. A row that an edge made has the
    time of that edge's column, or of the edge itself where `columns.edge_times` are given. Costs beside the reads of
    `sample_hops` a binary search a column, of which many run at once, and, where the graph is not in the order of
    time, one more random read an edge; there is no map from node to position (see `python -m benchmarks sampling`). On
    a GPU made of single hops.

    Args:
        columns: The graph; types, and a window together with `earliest`, are for single hops.
        seeds: Node ids, of the dtype of `columns.indices`.
        times: int64, one a seed.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        latest: Whether to take the latest edges instead of random ones.
        window: An edge has to be less than so much before its column's time, 0 or more; None takes all before it.

    Returns:
        A `Layer` a hop, the seeds' own first.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, a fan-out below -1, another number of times or keys, or a window below
            0.
    """
    check_method(columns, replace, latest)
    check_timed_hops(columns, seeds, times, fanouts, len(keys), window)
    if on_gpu(seeds):
        first = TimedHop(seeds.contiguous(), EMPTY, times.contiguous(), EMPTY, replace)
        return stack_timed_hops(partial(pick_in_time, latest=latest), columns, first, fanouts, keys, window)
    module = columns.kernels("sampling.temporal_sample_hops", seeds)
    out = TimedOutputs(seeds.numpy(), times.numpy(), columns.indptr.numpy().dtype, fanouts)
    columns = columns if columns.links is None else columns._replace(order=None)
    graph = columns.as_kernel_args(seeds, "indptr", "indices", "times", "order", "links", "edge_times", "cumulative")
    table = make_table(min(max(fanouts), columns.indices.numel())).numpy()
    hop_fanouts, hop_keys = np.array(fanouts, dtype=np.int64), np.array(keys, dtype=np.uint64)
    wanted = (hop_fanouts, replace, latest, NO_WINDOW if window is None else window, hop_keys, table)

    def run(hop: int) -> int:
        reached: int = module.temporal_sample_hops(*graph, *wanted, hop, *out.arrays)
        return reached

    return out.run(run, len(fanouts))


def check_timed_hops(
    columns: TimedColumns,
    seeds: torch.Tensor,
    times: torch.Tensor,
    fanouts: Sequence[int],
    num_keys: int,
    window: int | None,
) -> None:
    """Raise unless all hops have what they need."""
    if window is not None and window < 0:
        raise ValueError(f"window must be 0 or more, but is {window}; None takes all that is before a time")
    check_vector("seeds", seeds, (columns.indices.dtype,))
    check_vector("times", times, (torch.int64,))
    if times.numel() != seeds.numel():
        raise ValueError(f"times must have {seeds.numel()} values, one a seed, but has {times.numel()}")
    if num_keys != len(fanouts):
        raise ValueError(f"keys must hold {len(fanouts)} numbers, one a hop, but holds {num_keys}")
    if not fanouts or min(fanouts) < -1:
        raise ValueError(f"fanouts must be a number a hop, each -1 (all neighbours) or more, but is {list(fanouts)}")
    check_ids("seeds", seeds, columns.indptr.numel() - 1)
