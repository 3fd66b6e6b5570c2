"""Sample and relabel all hops of a mini-batch on a graph of one type."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels, on_gpu
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.sampling.sample_neighbors import NO_WEIGHTS, Picks, make_table, sample_neighbors
from graphfeed.ops.structure.compact import compact

FIRST_EDGES = 1 << 22
"""The outputs are made for at most so many edges at first; they grow where a batch has more."""


class Layer(NamedTuple):
    """One hop: the in-edges of `columns`, relabelled."""

    columns: torch.Tensor
    """Ids of the hop's seeds."""
    rows: torch.Tensor
    """Ids of all nodes known after the hop; begins with `columns`."""
    indptr: torch.Tensor
    indices: torch.Tensor
    """Positions in `rows`."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays."""


class Outputs:
    """The flat arrays that the kernel writes, all hops one after the other."""

    def __init__(self, num_hops: int, seeds: NDArray[Any], indptr_dtype: Any, edges: int, rows: int) -> None:
        take = buffers.POOL.empty
        self.nodes = take(seeds.size + edges, seeds.dtype)
        self.nodes[: seeds.size] = seeds
        self.node_counts = np.zeros(num_hops + 1, dtype=np.int64)
        self.node_counts[0] = seeds.size
        self.edge_counts = np.zeros(num_hops + 1, dtype=np.int64)
        self.positions = take(edges, np.int64)
        self.neighbors = take(edges, seeds.dtype)
        self.starts = take(rows, np.int64)
        self.degrees = take(rows, np.int64)
        self.indptr = take(num_hops * (rows + 1), indptr_dtype)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order in which kernels take them."""
        return (
            self.nodes, self.node_counts, self.starts, self.degrees, self.indptr, self.edge_counts, self.positions,
            self.neighbors,
        )  # fmt: skip

    def grow(self, hop: int) -> None:
        """Make room for a hop that did not fit, keeping what is there."""
        edges = 2 * int(self.edge_counts[hop + 1])
        rows = 2 * int(self.node_counts[hop])
        for name, size in (
            ("positions", edges),
            ("neighbors", edges),
            ("nodes", rows + edges),
            ("starts", rows),
            ("degrees", rows),
            ("indptr", self.node_counts.size * (rows + 1)),
        ):
            old = getattr(self, name)
            if old.size < size:
                new = buffers.POOL.empty(size, old.dtype)
                new[: old.size] = old
                setattr(self, name, new)

    def layers(self) -> list[Layer]:
        """Cut the arrays into hops, the seeds' own first."""
        # Slices of NumPy arrays, not of tensors: a tensor made of one has a storage of just its size.
        nodes = [torch.from_numpy(self.nodes[:count]) for count in self.node_counts.tolist()]
        edges = self.edge_counts.tolist()
        layers, first = [], 0
        for hop in range(len(nodes) - 1):
            own = slice(edges[hop], edges[hop + 1])
            last = first + nodes[hop].numel() + 1
            arrays = self.indptr[first:last], self.neighbors[own], self.positions[own]
            layers.append(Layer(nodes[hop], nodes[hop + 1], *map(torch.from_numpy, arrays)))
            first = last
        return layers


def expected_sizes(num_nodes: int, num_edges: int, num_seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
    """Bound the edges of all hops and the seeds of the last, by `FIRST_EDGES`."""
    nodes, edges, rows = num_seeds, 0, num_seeds
    average = -(-num_edges // max(num_nodes, 1))
    for fanout in fanouts:
        rows = nodes
        new = nodes * (2 * average if fanout < 0 else fanout)
        edges += new
        nodes = min(nodes + new, num_seeds + num_nodes)
    return min(edges, FIRST_EDGES) + 1, min(rows, FIRST_EDGES) + 1


def run_hops(
    run: Callable[[NDArray[np.int32], int], int], out: Outputs, num_hops: int, num_nodes: int
) -> list[Layer] | None:
    """Run a kernel until all hops are there, growing the outputs where one is too short.

    Args:
        run: Takes the map from node to position, and the hop to go on from; returns the hop reached.
    """
    with buffers.NODE_MAPS.borrow(num_nodes) as node_map:
        if node_map is None:
            return None
        hop = run(node_map, 0)
        while hop < num_hops:
            out.grow(hop)
            hop = run(node_map, hop)
        return out.layers()


def stack_hops(
    sample: Callable[..., Picks],
    graph: tuple[torch.Tensor, torch.Tensor],
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
) -> list[Layer]:
    """Make all hops of one-hop kernels, as a GPU has them.

    Args:
        sample: Takes the seeds, the fan-out and the key of a hop, and whether the seeds are known to be right.
        graph: Column starts, whose dtype the layers' have, and the source node of each edge.
        seeds: Node ids.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The key of each hop.
    """
    indptr, indices = graph
    layers: list[Layer] = []
    for fanout, key in zip(fanouts, keys, strict=True):
        picks = sample(seeds, torch.tensor([fanout]), key, checked=bool(layers))
        relabelled = compact(seeds, take_rows(indices, picks.positions))
        offsets = picks.offsets.to(indptr.dtype)
        layers.append(Layer(seeds, relabelled.rows, offsets, relabelled.local, picks.positions))
        seeds = relabelled.rows
    return layers


def sample_hops(
    indptr: torch.Tensor,
    indices: torch.Tensor,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[int],
    *,
    replace: bool = False,
    cumulative: torch.Tensor | None = None,
) -> list[Layer] | None:
    """Sample hop after hop, each from all nodes found so far, and relabel: seeds first, then by first appearance.

    Equal to `sample_neighbors` and `compact` a hop at a time, and on a GPU made so, which is waited for once, and twice
    more a hop, to learn how long the arrays become. Costs three random reads an edge
    and one a node, all prefetched (Products-shaped graph, fan-outs 15, 10, 5, 1024 seeds: see
    `python -m benchmarks sampling`).

    Args:
        indptr: Column starts, int32 or int64, shape (nodes + 1,).
        indices: Source node of each edge, int32 or int64.
        seeds: Node ids, of the dtype of `indices`.
        fanouts: One number a hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`).
        replace: Whether an edge may be chosen more than once.
        cumulative: Fixed-point weights, as `cumulate_weights` gives them.

    Returns:
        A `Layer` a hop, the seeds' own first; None where the graph's dense node map would exceed the memory limit.

    Raises:
        TypeError: A tensor of another dtype.
        ValueError: A seed outside of the graph, or a fan-out below -1.
    """
    check_vector("indptr", indptr)
    check_vector("indices", indices)
    check_vector("seeds", seeds, (indices.dtype,))
    if not fanouts:
        raise ValueError("fanouts is empty; give a number for each hop")
    if len(keys) != len(fanouts):
        raise ValueError(f"keys must hold {len(fanouts)} numbers, one a hop, but holds {len(keys)}")
    if min(fanouts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but hold {min(fanouts)}")
    if on_gpu(seeds):
        sample = partial(sample_neighbors, indptr, replace=replace, cumulative=cumulative)
        return stack_hops(sample, (indptr, indices), seeds, fanouts, keys)
    num_nodes = indptr.numel() - 1
    check_ids("seeds", seeds, num_nodes)
    module = kernels("sampling.sample_hops", seeds, indptr=indptr, indices=indices)
    edges, rows = expected_sizes(num_nodes, indices.numel(), seeds.numel(), fanouts)
    out = Outputs(len(fanouts), seeds.numpy(), indptr.numpy().dtype, edges, rows)
    weights = (NO_WEIGHTS if cumulative is None else cumulative).numpy()
    table = make_table(min(max(fanouts), indices.numel())).numpy()
    hop_keys, hop_fanouts = np.array(keys, dtype=np.uint64), np.array(fanouts, dtype=np.int64)
    graph = (indptr.numpy(), indices.numpy(), weights)

    def run(node_map: NDArray[np.int32], hop: int) -> int:
        reached: int = module.sample_hops(*graph, hop_fanouts, replace, hop_keys, node_map, table, hop, *out.arrays)
        return reached

    return run_hops(run, out, len(fanouts), num_nodes)
