"""Sample and relabel all hops of a mini-batch."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphfeed.ops.backend import as_int64, on_gpu, package_for
from graphfeed.ops.cpu.sampling.passes import layout
from graphfeed.ops.memory import ReadChoice, buffers
from graphfeed.ops.sampling.hops.gpu_hops import hops_on_gpu
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays, InitialCapacity
from graphfeed.ops.sampling.hops.hop_graph import (
    HopGraph,
    Shape,
    check_graph,
    check_ranges,
    check_seeds,
    kernel_graph,
    shape_of,
)
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS, HopProgram
from graphfeed.ops.sampling.hops.hop_recipe import (
    Drawing,
    HopEdges,
    JoinedHops,
    Read,
    Recipe,
    SampledHop,
    SeedTimes,
    recipe_of,
)
from graphfeed.ops.sampling.hops.pick_edges import (
    MOST_REPEATED,
    check_drawing,
    check_fanouts,
    check_latest,
    check_moments,
    check_numbers,
)

FIRST_EDGES = 1 << 22
"""At first the outputs have room for at most this many edges; they grow if a mini-batch has more."""
FIRST_ROWS = 1 << 24
"""In time, node types have room for about so many rows together at first, and fewer where the fan-outs allow fewer."""
UNIFORM = Drawing()


def sample_hops(
    graph: HopGraph,
    seeds: Sequence[torch.Tensor],
    fanouts: Sequence[torch.Tensor],
    keys: Sequence[Any],
    drawing: Drawing = UNIFORM,
    moments: SeedTimes | None = None,
) -> list[SampledHop]:
    """Sample hop after hop, each from all nodes found so far, and relabel: seeds first, then by first appearance.

    First appearance is by edge type in the order of `graph.order`, then by column. The result, a `SampledHop` per hop,
    the seeds' own first, equals `sample_neighbors`, or its variant by LABOR or in time, and `compact` for one hop after
    the other. The cost is three random reads per edge and one per node, all of them prefetched (see
    `python -m benchmarks sampling`); with LABOR, columns with more edges than the fan-out are read whole. With types an
    edge costs one random read more, and is written to the place of its type: together 1.5 times as much on a graph of
    ogbn-mag's shape.

    In time, every edge makes a row: the rows of a hop are its columns and then the source of each edge, duplicates
    included. A row that an edge made has the time of that edge's column, or of the edge itself if there are
    `edge_times`, and the window of that column. A column then costs a binary search more, of which many run at once,
    and an edge one random read more if the graph is not sorted by time.

    On a GPU the result is made hop by hop, in arrays as long as the fan-outs allow. The device is waited for once, and
    once more for each hop that takes all neighbours, or allows more than `pick_edges.MOST_EDGES` edges, or looks for
    edges with a second time in a window. With types in time, the CPU samples.

    Args:
        graph: A graph; one without types has one type of nodes, and one of edges.
        seeds: Node ids inside their type, by node type, of the dtype of `graph.indices`.
        fanouts: One tensor per hop, the seeds' own hop first: one number, or one per edge type.
        keys: The key of each hop (`Key.at`); two keys for LABOR.
        drawing: How edges are chosen.
        moments: In time: when the seeds look at the graph, node type after node type, which needs `graph.timed`.

    Raises:
        ValueError: A seed lies outside of its type, a fan-out is below -1 or too large, a window is negative, the
            number of keys or times is wrong, or the arrays are not those of a graph.
    """
    found: list[SampledHop] = PreparedHops(graph, fanouts, drawing).sample(seeds, keys, moments)
    return found


class PreparedHops:
    """What mini-batches have in common that are sampled from one graph in one way: checked and prepared once.

    The arguments are those of `sample_hops`, which makes one for each call. For mini-batches of 64 seeds, keeping it
    saves a tenth of the time. It holds the arrays of the graph; what it has computed of them is not computed anew.
    """

    def __init__(self, graph: HopGraph, fanouts: Sequence[torch.Tensor], drawing: Drawing = UNIFORM) -> None:
        check_graph(graph)
        check_drawing(drawing)
        if not fanouts:
            raise ValueError("fanouts is empty; give a number for each hop")
        for fanout in fanouts:
            check_fanouts(fanout, graph.num_types, graph.types, drawing.replace)
        for part in (graph.timed or (None,)) if drawing.method == "latest" else ():
            check_latest(part, drawing)
        self.graph, self.drawing, self.shape = graph, drawing, shape_of(graph)
        self.num_nodes = graph.indptr.numel() - 1
        self.wanted: list[list[int]] = [own.tolist() for own in fanouts]
        self.most = [widest(own, self.shape.destinations) for own in self.wanted]
        self.prepared: tuple[HopGraph, Recipe] | None = None
        """The arrays as the CPU's kernels take them, and the recipe of the program; made when they are first used."""

    def sample(
        self,
        seeds: Sequence[torch.Tensor],
        keys: Sequence[Any],
        moments: SeedTimes | None = None,
        switch_threshold: int = 0,
        read: Read | None = None,
        joined: bool = False,
    ) -> Any:
        """Sample all hops of a mini-batch, as `sample_hops` does; by LABOR perhaps with its own threshold.

        What `read` returns takes the place of the positions that it gets: on the CPU in one call, on a GPU one per hop.
        On the CPU, hops may be `joined` (`JoinedHops`) in the place of being cut.
        """
        graph, drawing = self.graph, self.drawing
        if switch_threshold:
            drawing = drawing._replace(switch_threshold=switch_threshold)
        check_seeds(graph, self.shape, seeds)
        check_numbers(keys, drawing)
        if len(keys) != len(self.wanted):
            what = "pairs" if drawing.method == "labor" else "numbers"
            raise ValueError(f"keys must hold {len(self.wanted)} {what}, one per hop, but holds {len(keys)}")
        if (graph.timed is None) != (moments is None):
            raise ValueError("graph.timed and moments are given together: the times of edges, and those of seeds")
        if moments is not None:
            check_moments(sum(part.numel() for part in seeds), moments)
            if drawing.rows == "node":
                raise ValueError('in time, drawing.rows must be "edge" or "tree", as a node at two times is two rows')
        if not (graph.indptr.is_cpu and graph.indices.is_cpu and seeds[0].is_cpu):
            if on_gpu(seeds[0]) and (moments is None or graph.types is None):
                check_rows_on_gpu(drawing, moments)
                wanted = list(zip(self.wanted, keys, strict=True))
                return hops_on_gpu(graph, seeds, wanted, drawing, moments, read)
            package_for("sampling.sample_hops", seeds[0], indptr=graph.indptr, indices=graph.indices)
        times = [] if moments is None else [part.contiguous().numpy() for part in moments if part is not None]
        passed, recipe = self.prepared or self._prepare(len(seeds))
        room = first_room(graph, sum([part.numel() for part in seeds]), self.most, self.shape, drawing)
        # Only where each node has one row, these are found by a map of all nodes.
        with buffers.NODE_MAPS.borrow(self.num_nodes if drawing.rows == "node" else 0) as node_map:
            by_table = drawing.rows == "tree" or node_map is None
            by_page = graph.reads is not None and graph.reads.from_disk
            if by_table or by_page or len(times) > 1:
                recipe = recipe._replace(by_table=by_table, by_page=by_page, windows=len(times) > 1)
            program = PROGRAMS.take(recipe)
            arrays = program.arrays
            if node_map is not None:
                arrays.node_map.lend("places", node_map)
            arrays.bind(passed, keys, drawing.switch_threshold, self.wanted)
            arrays.open([part.numpy() for part in seeds], self.shape, room, times)
            try:
                program.run() if graph.reads is None else run_from_files(program, graph.reads)
            except ValueError:
                check_ranges(graph, self.shape, seeds)
                raise
            hops = join_hops(arrays, read) if joined else cut_hops(arrays, read)
        # Another mini-batch writes to the arrays from here on. A program that has failed is not kept.
        PROGRAMS.give_back(program)
        return hops

    def _prepare(self, num_node_types: int) -> tuple[HopGraph, Recipe]:
        graph, passed = self.graph, kernel_graph(self.graph)
        recipe = recipe_of(passed, graph.indices.dtype, self.drawing, self.wanted, False)._replace(
            starts=graph.indptr_dtype or graph.indptr.dtype, num_node_types=num_node_types, num_types=graph.num_types,
            relabelled=True,
        )  # fmt: skip
        self.prepared = passed, recipe
        return self.prepared


def run_from_files(program: HopProgram, reads: ReadChoice) -> None:
    """Run a program, and decide by the pages that it waits for how the next one reads."""
    pages: list[int] = []
    with reads.count(pages):
        program.run()
    reads.decide(pages[0], int(program.arrays.relations.arrays["edge_starts"][-1, 0]))


def check_rows_on_gpu(drawing: Drawing, moments: SeedTimes | None) -> None:
    if drawing.only_new or drawing.rows != ("node" if moments is None else "edge"):
        raise ValueError(
            f"drawing has rows={drawing.rows!r} and only_new={drawing.only_new}, which a GPU samples hop by hop; take "
            "sample_neighbors"
        )


def widest(fanouts: Sequence[int], destinations: Sequence[int]) -> int:
    """Bound the edges of a column of all edge types that lead to its node type; -1 if all edges are taken."""
    if len(fanouts) == 1 or min(fanouts) < 0:
        return min(fanouts)
    sums = [0] * (max(destinations) + 1)
    for fanout, end in zip(fanouts, destinations, strict=True):
        sums[end] += min(fanout, MOST_REPEATED)
    return max(sums)


def first_room(
    graph: HopGraph, num_seeds: int, fanouts: Sequence[int], shape: Shape, drawing: Drawing
) -> InitialCapacity:
    """Bound the edges of all hops, the columns of the last, and the rows of each node type, by `FIRST_EDGES`."""
    num_nodes, num_edges = graph.indptr.numel() - 1, graph.indices.numel()
    nodes, new, found, opened = num_seeds, num_seeds, 0, num_seeds
    # Of a column of which all edges are taken, twice the average is a guess, and one in time; the arrays grow.
    guess = 2 * -(-num_edges // max(num_nodes, 1)) if graph.timed is None else 1
    for fanout in fanouts:
        opened = nodes
        new = (new if drawing.only_new else nodes) * (guess if fanout < 0 else fanout)
        nodes, found = nodes + new, found + new
        if drawing.rows != "edge":
            nodes = min(nodes, num_seeds + num_nodes * (1 if drawing.rows == "node" else num_seeds))
    room, columns = min(found, FIRST_EDGES) + 1, min(opened, FIRST_EDGES) + 1
    if drawing.rows == "node":
        return InitialCapacity(
            room, columns, [min(room, end - first) for first, end in itertools.pairwise(shape.first_ids)]
        )
    sources = set(shape.sources)
    # In trees, nodes bound the rows, too.
    share = min(room, FIRST_ROWS // max(len(sources), 1), room if drawing.rows == "edge" else nodes)
    return InitialCapacity(room, columns, [share if kind in sources else 0 for kind in range(len(shape.first_ids) - 1)])


def cut_hops(arrays: HopArrays, read: Read | None) -> list[SampledHop]:
    """Cut the arrays of a mini-batch into hops, the seeds' own first."""
    # Slices of NumPy arrays, not of tensors: a tensor made of one has a storage of just its size.
    (rows, neighbors), firsts = arrays.nodes.arrays.values(), arrays.rows.arrays["firsts"].tolist()
    nodes = [
        [torch.from_numpy(rows[first : first + count]) for first, count in zip(firsts, own, strict=False)]
        for own in arrays.rows.arrays["known"].tolist()
    ]
    kinds, indptr, positions = arrays.relations.arrays, arrays.column_starts(), arrays.edges.arrays["positions"]
    edge_starts, indptr_ends = kinds["edge_starts"].tolist(), kinds["indptr_ends"].tolist()
    if read is not None:
        positions = read(torch.from_numpy(positions[: edge_starts[-1][0]])).numpy()
    hops = []
    for hop, (bounds, places) in enumerate(zip(edge_starts, kinds["indptr_starts"].tolist(), strict=False)):
        edges, end = {}, indptr_ends[hop + 1]
        for kind in range(len(places) - 1, -1, -1):
            low, high = bounds[kind], bounds[kind + 1]
            if low < high:
                parts = indptr[places[kind] : end], neighbors[low:high], positions[low:high]
                edges[kind], end = HopEdges(*map(torch.from_numpy, parts)), places[kind]
        hops.append(SampledHop(nodes[hop], nodes[hop + 1], edges))
    return hops


def join_hops(arrays: HopArrays, read: Read | None) -> JoinedHops:
    """Write the edges of all hops of a mini-batch by type, by one kernel, and return them as views."""
    known, bounds = arrays.rows.arrays["known"], arrays.relations.arrays["edge_starts"]
    ids, (rows, _) = arrays.edges.arrays["positions"], arrays.nodes.arrays.values()
    total = int(bounds[-1, 0])
    if read is not None:
        taken = read(torch.from_numpy(ids[:total]))
        ids = as_int64(taken, taken)
    out = buffers.POOL.empty(3 * total, np.int64)
    layout.join_hops(arrays.relations, arrays.starts, arrays.rows, arrays.nodes, ids, out)
    num_edges, added = (bounds[:-1, 1:] - bounds[:-1, :-1]).T.tolist(), known.copy()
    added[1:] -= known[:-1]
    edges, end = {}, 0
    for kind, counts in enumerate(num_edges):
        first, end = end, end + 3 * sum(counts)
        edges[kind] = torch.from_numpy(out[first:end].reshape(3, -1))
    firsts, lasts = arrays.rows.arrays["firsts"].tolist(), known[-1].tolist()
    parts = [slice(first, first + count) for first, count in zip(firsts, lasts, strict=False)]
    trees = arrays.table.arrays["trees"] if arrays.recipe.drawing.rows == "tree" else None
    return JoinedHops(
        {kind: torch.from_numpy(rows[part]) for kind, part in enumerate(parts)},
        dict(enumerate(added.T.tolist())),
        edges,
        dict(enumerate(num_edges)),
        None if trees is None else {kind: torch.from_numpy(trees[part]) for kind, part in enumerate(parts)},
    )
