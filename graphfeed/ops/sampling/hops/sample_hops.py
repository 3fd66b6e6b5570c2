"""Sample and relabel all hops of a mini-batch."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import check_ids, check_seed, check_vector
from graphfeed.ops.backend import on_gpu, package_for
from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling.hops.gpu_hops import hops_on_gpu, typed_hops_on_gpu
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays, InitialCapacity, Shape
from graphfeed.ops.sampling.hops.hop_graph import HopGraph, check_graph, check_seeds, kernel_graph, shape_of
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS
from graphfeed.ops.sampling.hops.hop_recipe import Drawing, KernelGraph, Recipe, SeedTimes, recipe_of
from graphfeed.ops.sampling.hops.one_hop import (
    MOST_REPEATED,
    check_drawing,
    check_fanouts,
    check_method,
    check_moments,
    check_numbers,
    check_repeats,
)

FIRST_EDGES = 1 << 22
"""At first the outputs have room for at most this many edges; they grow if a mini-batch has more."""
FIRST_ROWS = 1 << 24
"""In time, node types have room for about so many rows together at first, and fewer where the fan-outs allow fewer."""
UNIFORM = Drawing()


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


class TypedEdges(NamedTuple):
    """The edges of one type in a hop."""

    indptr: torch.Tensor
    indices: torch.Tensor
    """Positions in the rows of the source type."""
    own: slice
    """Where they are among all edges of the hop."""


class TypedHop(NamedTuple):
    """One hop: the sampled in-edges of `columns`, relabelled."""

    columns: list[torch.Tensor]
    """Ids of the hop's seeds inside their node type; by node type."""
    rows: list[torch.Tensor]
    """The ids of all nodes known after the hop, by node type; they begin with `columns`."""
    positions: torch.Tensor
    """int64: positions in the graph's edge arrays, by edge type, then by column, then ascending. Edge types come in the
    order of their numbers, on a GPU in that of `graph.order`."""
    edges: dict[int, TypedEdges]
    """By edge type; only those that have edges here, on a GPU all of them."""


def sample_hops(
    graph: HopGraph,
    seeds: torch.Tensor,
    fanouts: Sequence[int],
    keys: Sequence[Any],
    drawing: Drawing = UNIFORM,
    moments: SeedTimes | None = None,
) -> list[SampledHop]:
    """Sample hop after hop, each from all nodes found so far, and relabel: seeds first, then by first appearance.

    The result equals `sample_neighbors`, or its variant by LABOR or in time, and `compact` for one hop after the other.
    The cost is three random reads per edge and one per node, all of them prefetched (see `python -m benchmarks
    sampling`); with LABOR, columns with more edges than the fan-out are read whole.

    In time, every edge makes a row: the rows of a hop are its columns and then the source of each edge, duplicates
    included. A row that an edge made has the time of that edge's column, or of the edge itself if there are
    `edge_times`, and the window of that column. Beside the reads above a column costs a binary search, of which many
    run at once, and an edge one random read more if the graph is not sorted by time.

    On a GPU the result is made hop by hop, in arrays as long as the fan-outs allow. The device is waited for once, to
    learn how much of them is used; and once more for each hop that takes all neighbours, or allows more than
    `one_hop.MOST_EDGES` edges, or looks for edges with a second time in a window.

    Args:
        graph: A graph without types.
        seeds: Node ids, of the dtype of `graph.indices`.
        fanouts: One number per hop, the seeds' own hop first.
        keys: The key of each hop (`Key.at`); two keys for LABOR.
        drawing: How edges are chosen.
        moments: In time: when the seeds look at the graph, which needs `graph.timed`.

    Returns:
        A `SampledHop` per hop, the seeds' own first.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, a window is negative, the
            number of keys or times is wrong, or the arrays are not those of a graph.
    """
    return PreparedHops(graph, fanouts, drawing).sample(seeds, keys, moments)


def typed_sample_hops(
    graph: HopGraph,
    seeds: Sequence[torch.Tensor],
    fanouts: Sequence[torch.Tensor],
    keys: Sequence[Any],
    drawing: Drawing = UNIFORM,
    moments: SeedTimes | None = None,
) -> list[TypedHop]:
    """Sample as `sample_hops` on a graph with types; in time on the CPU alone.

    First appearance is by edge type in the order of `graph.order`, then by column. Beside the cost of `sample_hops`, an
    edge costs one random read for its type, and is written to the place of its type: together 1.5 times as much on a
    graph of ogbn-mag's shape. Edge types without edges in a hop cost nothing.

    One hop after the other takes longer on half of that graph: by LABOR 1.5 times as long; in time 2.9 times with one
    fan-out for all edge types, and 1.14 times with one each.

    Args:
        graph: A graph with types.
        seeds: Node ids inside their type, by node type, of the dtype of `graph.indices`.
        fanouts: One tensor per hop, the seeds' own hop first: one number, or one per edge type.
        keys: The key of each hop (`Key.at`); two keys for LABOR.
        drawing: How edges are chosen.
        moments: In time: when the seeds look at the graph, node type after node type, which needs `graph.timed`.

    Returns:
        A `TypedHop` per hop, the seeds' own first.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of its type, a fan-out is below -1 or too large, a window is negative, the
            number of keys or times is wrong, or the arrays are not those of a graph.
    """
    return PreparedHops(graph, fanouts, drawing).sample_by_type(seeds, keys, moments)


class PreparedHops:
    """What mini-batches have in common that are sampled from one graph in one way: checked and prepared once.

    `sample_hops` and `typed_sample_hops` make one for each call. For mini-batches of 64 seeds, keeping it saves a tenth
    of the time. It holds the arrays of the graph; what it has computed of them is not computed anew.

    Args:
        graph: This, `fanouts` and `drawing` are those of `sample_hops` or, with types, of `typed_sample_hops`.
        fanouts: One number per hop; with types, one tensor.
        drawing: How edges are chosen.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: Arrays that are not those of a graph, wrong fan-outs, or options that exclude each other.
    """

    def __init__(self, graph: HopGraph, fanouts: Sequence[Any], drawing: Drawing = UNIFORM) -> None:
        check_graph(graph)
        check_drawing(drawing)
        self.graph, self.fanouts, self.drawing, self.most = graph, fanouts, drawing, fanouts
        if graph.types is not None:
            assert graph.ends is not None
            for fanout in fanouts:
                check_fanouts(fanout, graph.num_types, graph.types, drawing.replace)
            self.most = [widest(fanout, graph.ends[:, 1]) for fanout in fanouts]
        check_most(self.most, drawing)
        for part in graph.timed or ():
            check_method(part, drawing)
        self.shape, self.num_nodes = shape_of(graph), graph.indptr.numel() - 1
        self.wanted = [[int(own)] if graph.types is None else own.tolist() for own in fanouts]
        self.passed: KernelGraph | None = None
        """The arrays as the CPU's kernels take them, and the recipe of the program; made when they are first used."""
        self.recipe: Recipe | None = None

    def sample(
        self,
        seeds: torch.Tensor,
        keys: Sequence[Any],
        moments: SeedTimes | None = None,
        switch_threshold: int | None = None,
    ) -> list[SampledHop]:
        """Sample all hops of a mini-batch without types, as `sample_hops` says; by LABOR with its own threshold."""
        drawing = self.drawing_of(switch_threshold)
        check_vector("seeds", seeds, (self.graph.indices.dtype,))
        self._check_draws(keys, seeds.numel(), moments)
        if on_gpu(seeds):
            check_rows_on_gpu(self.drawing, moments)
            hops = hops_on_gpu(self.graph, seeds, self.fanouts, keys, drawing, moments)
            return [SampledHop(*hop) for hop in hops]
        check_ids("seeds", seeds, self.num_nodes)
        package_for("sampling.sample_hops", seeds, indptr=self.graph.indptr, indices=self.graph.indices)
        with self._run([seeds], keys, moments, drawing) as arrays:
            return cut_hops(arrays)

    def sample_by_type(
        self,
        seeds: Sequence[torch.Tensor],
        keys: Sequence[Any],
        moments: SeedTimes | None = None,
        switch_threshold: int | None = None,
    ) -> list[TypedHop]:
        """Sample all hops of a mini-batch with types, as `typed_sample_hops` says."""
        drawing = self.drawing_of(switch_threshold)
        check_seeds(self.graph, seeds)
        self._check_draws(keys, sum(part.numel() for part in seeds), moments)
        if on_gpu(seeds[0]) and moments is None:
            check_rows_on_gpu(self.drawing, moments)
            hops = typed_hops_on_gpu(self.graph, seeds, self.fanouts, keys, drawing)
            return [
                TypedHop(columns, rows, positions, {kind: TypedEdges(*own) for kind, own in edges.items()})
                for columns, rows, positions, edges in hops
            ]
        package_for("sampling.sample_hops", seeds[0], indices=self.graph.indices)
        with self._run(seeds, keys, moments, drawing) as arrays:
            return cut_typed_hops(arrays)

    def drawing_of(self, switch_threshold: int | None) -> Drawing:
        """Return how edges are chosen with a threshold of a mini-batch's own, if it has one."""
        return self.drawing if not switch_threshold else self.drawing._replace(switch_threshold=switch_threshold)

    def _check_draws(self, keys: Sequence[Any], num_seeds: int, moments: SeedTimes | None) -> None:
        what = "pairs" if self.drawing.method == "labor" else "numbers"
        check_numbers(keys, self.drawing)
        if len(keys) != len(self.fanouts):
            raise ValueError(f"keys must hold {len(self.fanouts)} {what}, one per hop, but holds {len(keys)}")
        if (self.graph.timed is None) != (moments is None):
            raise ValueError("graph.timed and moments are given together: the times of edges, and those of seeds")
        if moments is not None:
            check_moments(num_seeds, moments)
            if self.drawing.rows == "node":
                raise ValueError('in time, drawing.rows must be "edge" or "tree", as a node at two times is two rows')

    @contextmanager
    def _run(
        self, seeds: Sequence[torch.Tensor], keys: Sequence[Any], moments: SeedTimes | None, drawing: Drawing
    ) -> Iterator[HopArrays]:
        """Sample all hops on the CPU and lend the arrays."""
        graph = self.graph
        times = [] if moments is None else [part.contiguous().numpy() for part in moments if part is not None]
        if self.passed is None or self.recipe is None:
            self.passed = kernel_graph(graph)
            self.recipe = recipe_of(self.passed, graph.indices.dtype, drawing, self.wanted, False)._replace(
                starts=graph.indptr_dtype or graph.indptr.dtype, num_node_types=len(seeds), num_types=graph.num_types,
                relabelled=True, by_page=False,
            )  # fmt: skip
        room = first_room(graph, sum([part.numel() for part in seeds]), self.most, self.shape, drawing)
        # Only where each node has one row, these are found by a map of all nodes.
        with buffers.NODE_MAPS.borrow(self.num_nodes if drawing.rows == "node" else 0) as node_map:
            by_table = drawing.rows == "tree" or node_map is None
            by_page = graph.reads is not None and graph.reads.from_disk
            recipe = self.recipe
            if by_table or by_page or len(times) > 1:
                recipe = recipe._replace(by_table=by_table, by_page=by_page, windows=len(times) > 1)
            program = PROGRAMS.take(recipe)
            arrays = program.arrays
            if node_map is not None:
                arrays.node_map.lend("places", node_map)
            arrays.bind(self.passed, keys, drawing.switch_threshold, self.wanted)
            arrays.open([part.numpy() for part in seeds], self.shape, room, times)
            if graph.reads is None:
                program.run()
            else:
                pages: list[int] = []
                with graph.reads.count(pages):
                    program.run()
                graph.reads.decide(pages[0], int(arrays.relations.arrays["edge_starts"][-1, 0]))
            yield arrays
        # Another mini-batch writes to the arrays from here on. A program that has failed is not kept.
        PROGRAMS.give_back(program)


def check_most(fanouts: Sequence[int], drawing: Drawing) -> None:
    """Raise unless there is a fan-out for each hop, which no number of edges that is computed from it overflows."""
    if not fanouts:
        raise ValueError("fanouts is empty; give a number for each hop")
    for fanout in fanouts:
        check_seed("fanouts", fanout)
    if min(fanouts) < -1:
        raise ValueError(f"fanouts must be -1 (all neighbours) or more, but hold {min(fanouts)}")
    if max(fanouts) >= 1 << 63:
        raise ValueError(f"fanouts must be below 2**63, but hold {max(fanouts)}; -1 takes all neighbours")
    check_repeats(max(fanouts), drawing.replace)


def check_rows_on_gpu(drawing: Drawing, moments: SeedTimes | None) -> None:
    if drawing.only_new or drawing.rows != ("node" if moments is None else "edge"):
        raise ValueError(
            f"drawing has rows={drawing.rows!r} and only_new={drawing.only_new}, which a GPU samples hop by hop; take "
            "sample_neighbors"
        )


def widest(fanouts: torch.Tensor, destinations: torch.Tensor) -> int:
    """Bound the edges of a column of all edge types that lead to its node type; -1 if all edges are taken."""
    if fanouts.numel() == 1 or int(fanouts.min()) < 0:
        return int(fanouts.min())
    sums = torch.zeros(int(destinations.max()) + 1, dtype=torch.int64)
    return int(sums.index_add_(0, destinations, fanouts.clamp(max=MOST_REPEATED).to(torch.int64)).max())


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


def cut_hops(arrays: HopArrays) -> list[SampledHop]:
    """Cut the arrays of a mini-batch without types into hops, the seeds' own first."""
    # Slices of NumPy arrays, not of tensors: a tensor made of one has a storage of just its size.
    (nodes, neighbors), known = arrays.nodes.arrays.values(), arrays.rows.arrays["known"][:, 0].tolist()
    kinds, positions = arrays.relations.arrays, arrays.edges.arrays["positions"]
    bounds, ends = kinds["edge_starts"][:, 0].tolist(), kinds["indptr_ends"].tolist()
    indptr, rows = arrays.column_starts(), [torch.from_numpy(nodes[:count]) for count in known]
    hops = []
    for hop in range(len(rows) - 1):
        own = slice(bounds[hop], bounds[hop + 1])
        parts = indptr[ends[hop] : ends[hop + 1]], neighbors[own], positions[own]
        hops.append(SampledHop(rows[hop], rows[hop + 1], *map(torch.from_numpy, parts)))
    return hops


def cut_typed_hops(arrays: HopArrays) -> list[TypedHop]:
    """Cut the arrays of a mini-batch into hops, the seeds' own first."""
    rows, firsts = arrays.nodes.arrays["rows"], arrays.rows.arrays["firsts"].tolist()
    nodes = [
        [torch.from_numpy(rows[first : first + count]) for first, count in zip(firsts, own, strict=False)]
        for own in arrays.rows.arrays["known"].tolist()
    ]
    indptr = arrays.column_starts()
    return [TypedHop(nodes[hop], nodes[hop + 1], *cut_edges(arrays, indptr, hop)) for hop in range(len(nodes) - 1)]


def cut_edges(arrays: HopArrays, indptr: NDArray[Any], hop: int) -> tuple[torch.Tensor, dict[int, TypedEdges]]:
    """Return the positions of a hop's edges, and its edges by edge type."""
    kinds, positions = arrays.relations.arrays, arrays.edges.arrays["positions"]
    neighbors = arrays.nodes.arrays["neighbors"]
    bounds, places = kinds["edge_starts"][hop].tolist(), kinds["indptr_starts"][hop].tolist()
    found = [kind for kind in range(len(places)) if bounds[kind + 1] > bounds[kind]]
    ends = [*(places[kind] for kind in found[1:]), int(kinds["indptr_ends"][hop + 1])]
    of_types = {}
    for kind, end in zip(found, ends, strict=False):
        low, high = bounds[kind], bounds[kind + 1]
        parts = torch.from_numpy(indptr[places[kind] : end]), torch.from_numpy(neighbors[low:high])
        of_types[kind] = TypedEdges(*parts, slice(low - bounds[0], high - bounds[0]))
    return torch.from_numpy(positions[bounds[0] : bounds[-1]]), of_types
