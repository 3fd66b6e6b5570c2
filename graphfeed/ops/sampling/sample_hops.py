"""Sample and relabel all hops of a mini-batch on a graph of one type."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels, on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.guides import GuidedSums, split_sums
from graphfeed.ops.sampling.sample_neighbors import NO_WEIGHTS, Picks, check_repeats, make_table, sample_neighbors
from graphfeed.ops.sampling.weights import ensure_cumulative
from graphfeed.ops.structure.compact import compact
from graphfeed.ops.structure.csc import ensure_csc

FIRST_EDGES = 1 << 22
"""At first the outputs have room for at most this many edges; they grow if a mini-batch has more."""


class SampledHop(NamedTuple):
    """One hop: the sampled in-edges of `columns`, relabelled."""

    columns: torch.Tensor
    """Ids of the hop's seeds."""
    rows: torch.Tensor
    """Ids of all nodes known after the hop; they begin with `columns`."""
    indptr: torch.Tensor
    indices: torch.Tensor
    """Positions in `rows`."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays."""


class HopArrays(NamedTuple):
    """What the kernels of all hops write, one hop after the other.

    ::

    nodes          [ seeds | new in hop 0 | new in hop 1 | room ...
    node_counts      0 ^         1 ^            2 ^                 the nodes known before each hop
    times, bases, starts, degrees    of each node that is a column
    indptr         [ 0 ... of hop 0 | 0 ... of hop 1 | ...          each from 0
    positions      [ edges of hop 0 | edges of hop 1 | room ...     neighbors alike
    edge_counts    0 ^            1 ^            2 ^
    """

    nodes: NDArray[Any]
    """Node ids."""
    node_counts: NDArray[np.int64]
    times: NDArray[np.int64]
    """Temporal sampling: the time of each node; else empty."""
    bases: NDArray[np.int64]
    """Where each column starts in the graph."""
    starts: NDArray[np.int64]
    """Where its eligible edges start."""
    degrees: NDArray[np.int64]
    """How many eligible edges it has."""
    indptr: NDArray[Any]
    edge_counts: NDArray[np.int64]
    positions: NDArray[np.int64]
    neighbors: NDArray[Any]
    """Positions in `nodes`."""


class Outputs:
    """Makes, grows and cuts the arrays of all hops.

    Args:
        seeds: Node ids.
        indptr_dtype: Of the result.
        num_hops: How many there are.
        edges: How many edges there is room for at first.
        columns: How many columns a hop has room for at first.
        times: Temporal sampling: of the seeds.
    """

    def __init__(
        self,
        seeds: NDArray[Any],
        indptr_dtype: Any,
        num_hops: int,
        edges: int,
        columns: int,
        times: NDArray[np.int64] | None = None,
    ) -> None:
        take = buffers.POOL.empty
        counts = np.zeros((2, num_hops + 1), dtype=np.int64)
        counts[0, 0] = seeds.size
        nodes, starts = take(seeds.size + edges, seeds.dtype), take(columns, np.int64)
        nodes[: seeds.size] = seeds
        moments, bases = np.empty(0, np.int64), starts
        if times is not None:
            moments, bases = take(nodes.size, np.int64), take(columns, np.int64)
            moments[: seeds.size] = times
        self.arrays = HopArrays(
            nodes, counts[0], moments, bases, starts, take(columns, np.int64),
            take(num_hops * (columns + 1), indptr_dtype), counts[1], take(edges, np.int64), take(edges, seeds.dtype),
        )  # fmt: skip

    def grow(self, hop: int) -> None:
        """Make room for a hop that did not fit, and keep what is there."""
        old = self.arrays
        edges, columns = 2 * int(old.edge_counts[hop + 1]), 2 * int(old.node_counts[hop])
        nodes = columns + edges
        for name, count, array in (("edges", edges, old.indptr), ("nodes", nodes, old.neighbors)):
            if count // 2 > np.iinfo(array.dtype).max:
                raise ValueError(
                    f"hop {hop} would have {count // 2} {name}, too many for {array.dtype}; take smaller fanouts, or "
                    "make the graph with int64"
                )
        # No more room than the dtypes can count, so that whatever is too much comes here.
        most_edges, most_nodes = (int(np.iinfo(array.dtype).max) for array in (old.indptr, old.neighbors))
        edges, nodes = min(edges, most_edges), min(nodes, most_nodes)
        sizes = {"positions": edges, "neighbors": edges, "nodes": nodes, "starts": columns, "degrees": columns}
        sizes["indptr"] = old.node_counts.size * (columns + 1)
        if old.times.size:
            sizes |= {"times": nodes, "bases": columns}
        grown = {name: enlarge(getattr(old, name), size) for name, size in sizes.items()}
        if not old.times.size:
            grown["bases"] = grown["starts"]
        self.arrays = old._replace(**grown)

    def fill(self, run: Callable[[int, HopArrays], int]) -> list[SampledHop]:
        """Run a kernel until all hops are there, growing the arrays when one is too short.

        Args:
            run: Takes the hop to go on from and the arrays; returns the hop reached.
        """
        hop, last = run(0, self.arrays), self.arrays.node_counts.size - 1
        while hop < last:
            self.grow(hop)
            hop = run(hop, self.arrays)
        return self.hops()

    def hops(self) -> list[SampledHop]:
        """Cut the arrays into hops, the seeds' own first."""
        out = self.arrays
        # Slices of NumPy arrays, not of tensors: a tensor made of one has a storage of just its size.
        nodes = [torch.from_numpy(out.nodes[:count]) for count in out.node_counts.tolist()]
        edges = out.edge_counts.tolist()
        hops, first = [], 0
        for hop in range(len(nodes) - 1):
            own = slice(edges[hop], edges[hop + 1])
            last = first + nodes[hop].numel() + 1
            arrays = out.indptr[first:last], out.neighbors[own], out.positions[own]
            hops.append(SampledHop(nodes[hop], nodes[hop + 1], *map(torch.from_numpy, arrays)))
            first = last
        return hops


def enlarge(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array of at least a size that begins with the values of another."""
    if array.size >= size:
        return array
    larger = buffers.POOL.empty(size, array.dtype)
    larger[: array.size] = array
    return larger


def expected_sizes(num_nodes: int, num_edges: int, num_seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
    """Bound the edges of all hops and the columns of the last, both by `FIRST_EDGES`."""
    nodes, edges, columns = num_seeds, 0, num_seeds
    average = -(-num_edges // max(num_nodes, 1))
    for fanout in fanouts:
        columns = nodes
        new = nodes * (2 * average if fanout < 0 else fanout)
        edges += new
        nodes = min(nodes + new, num_seeds + num_nodes)
    return min(edges, FIRST_EDGES) + 1, min(columns, FIRST_EDGES) + 1


def run_hops(
    run: Callable[[NDArray[np.int32], int, HopArrays], int],
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
) -> list[SampledHop] | None:
    """Run a kernel that relabels, until all hops are there.

    Args:
        run: Takes the map from node to position, the hop to go on from, and the arrays; returns the hop reached.
        indptr: Column starts.
        indices: Source node of each edge.
        seeds: Node ids.
        fanouts: One number per hop.
    """
    num_nodes = indptr.numel() - 1
    sizes = expected_sizes(num_nodes, indices.numel(), seeds.numel(), fanouts)
    with buffers.NODE_MAPS.borrow(num_nodes) as node_map:
        if node_map is None:
            return None
        return Outputs(seeds.numpy(), indptr.numpy().dtype, len(fanouts), *sizes).fill(partial(run, node_map))


def stack_hops(
    sample: Callable[..., Picks],
    graph: tuple[torch.Tensor, torch.Tensor],
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
) -> list[SampledHop]:
    """Make all hops with kernels for one hop, as there are on a GPU.

    Args:
        sample: Takes the seeds, the fan-out and the key of a hop, and whether the seeds are known to be right.
        graph: Column starts, whose dtype the result has, and the source node of each edge.
        seeds: Node ids.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop.
    """
    indptr, indices = graph
    hops: list[SampledHop] = []
    for fanout, key in zip(fanouts, keys, strict=True):
        picks = sample(seeds, torch.tensor([fanout]), key, checked=bool(hops))
        relabelled = compact(seeds, take_rows(indices, picks.positions))
        offsets = picks.offsets.to(indptr.dtype)
        hops.append(SampledHop(seeds, relabelled.rows, offsets, relabelled.local, picks.positions))
        seeds = relabelled.rows
    return hops


def check_hops(fanouts: Sequence[int], keys: Sequence[Any], what: str, replace: bool) -> None:
    """Raise unless there is a fan-out and a key for each hop.

    Args:
        fanouts: One number per hop.
        keys: One key, or pair of keys, per hop.
        what: What the keys are, for the message.
        replace: Whether an edge may be chosen more than once.
    """
    if not fanouts:
        raise ValueError("fanouts is empty; give a number for each hop")
    if len(keys) != len(fanouts):
        raise ValueError(f"keys must hold {len(fanouts)} {what}, one per hop, but holds {len(keys)}")
    if min(fanouts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but hold {min(fanouts)}")
    if max(fanouts) >= 1 << 63:
        raise ValueError(f"fanouts must be below 2**63, but hold {max(fanouts)}; -1 takes all neighbours")
    check_repeats(max(fanouts), replace)


def open_hops(
    graph: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None],
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    what: str,
    replace: bool,
) -> tuple[Any, ...]:
    """Return a graph as the kernels of all hops take it, or raise unless it fits the parameters.

    Args:
        graph: Column starts, the source node of each edge, and fixed-point weights or None.
        seeds: Node ids, of the dtype of the sources. On a GPU, which would have to be waited for, they are not checked.
        fanouts: One number per hop.
        keys: One key, or pair of keys, per hop.
        what: What the keys are, for the message.
        replace: Whether an edge may be chosen more than once.
    """
    indptr, indices, cumulative = graph
    ensure_csc(indptr, indices)
    if cumulative is not None:
        ensure_cumulative(indptr, cumulative)
    check_vector("seeds", seeds, (indices.dtype,))
    check_hops(fanouts, keys, what, replace)
    if on_gpu(seeds):
        return graph
    check_ids("seeds", seeds, indptr.numel() - 1)
    return as_kernel_args(seeds, indptr, indices, NO_WEIGHTS if cumulative is None else cumulative)


def sample_hops(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    *,
    replace: bool = False,
    cumulative: torch.Tensor | GuidedSums | None = None,
) -> list[SampledHop] | None:
    """Sample hop after hop, each from all nodes found so far, and relabel: seeds first, then by first appearance.

    The result equals `sample_neighbors` and `compact` for one hop after the other. On a GPU it is made so: the device
    is waited for once, and twice more per hop, to learn how long the arrays become. The cost is three random reads per
    edge and one per node, all of them prefetched (see `python -m benchmarks sampling`).

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64.
        seeds: Node ids, of the dtype of `indices`.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` returns them, perhaps with guides to them.

    Returns:
        A `SampledHop` per hop, the seeds' own first; None if the graph's dense node map would exceed the memory limit.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, or the arrays are not those of
            a graph.
    """
    sums, guides = split_sums(cumulative)
    graph = open_hops((indptr, indices, sums), seeds, fanouts, keys, "numbers", replace)
    if on_gpu(seeds):
        sample = partial(sample_neighbors, indptr, replace=replace, cumulative=sums)
        return stack_hops(sample, (indptr, indices), seeds, fanouts, keys)
    module = kernels("sampling.sample_hops", seeds, indptr=indptr, indices=indices)
    graph = (*graph, *as_kernel_args(seeds, guides))
    table = make_table(min(max(fanouts), indices.numel())).numpy()
    hop_keys, hop_fanouts = np.array(keys, dtype=np.uint64), np.array(fanouts, dtype=np.int64)
    return run_hops(
        partial(module.sample_hops, graph, hop_fanouts, replace, hop_keys, table), indptr, indices, seeds, fanouts
    )
