"""Sample and relabel all hops of a mini-batch."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import brief
from graphfeed.ops.backend import on_gpu, package_for
from graphfeed.ops.cpu.jit import dtype_name
from graphfeed.ops.memory import ReadChoice, buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.cut_hops import NO_IDS, hops_of, hops_of_window, joined_of_window, joined_views
from graphfeed.ops.sampling.hops.gpu_hops import HopLaunches, hops_on_gpu
from graphfeed.ops.sampling.hops.hop_arrays import InitialCapacity
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS, HopProgram
from graphfeed.ops.sampling.hops.hop_recipe import (
    Drawing,
    Read,
    SampledHop,
    SeedTimes,
    recipe_of,
)
from graphfeed.ops.sampling.hops.pick_edges import (
    MOST_REPEATED,
    check_drawing,
    check_fanouts,
    check_hop_keys,
    check_latest,
    check_moments,
    check_ranges,
    check_seeds_by_type,
)

FIRST_ROWS = 1 << 24
"""For temporal sampling and trees, the approximate maximum initial capacity of all node types, in rows."""
UNIFORM = Drawing()


def sample_hops(
    graph: Graph,
    seeds: Sequence[torch.Tensor],
    fanouts: Sequence[torch.Tensor],
    keys: Sequence[Any],
    drawing: Drawing = UNIFORM,
    moments: SeedTimes | None = None,
) -> list[SampledHop]:
    """Sample and relabel several hops, each from all nodes found so far.

    Rows are the seeds, then new nodes by first appearance: by edge type in the order of `graph.order`, then by column.
    The result, a `SampledHop` per hop beginning with the hop of the seeds, equals that of `sample_neighbors` and
    `compact` applied hop by hop. The cost is three random reads per edge and one per node, all prefetched (see
    `python -m benchmarks sampling`). LABOR reads columns with more edges than the fan-out completely. With types, an
    edge costs another random read, and is moved to the place of its type: together 1.5 times as much on a graph of
    ogbn-mag's shape.

    In temporal sampling with rows="edge", the rows of a hop are its columns, followed by the source of each edge,
    duplicates included. The row of an edge has the window of the edge's column, and its time, or the time of the edge
    if there are `edge_times`. A column costs an additional binary search, many of which are interleaved. An edge costs
    another random read if the graph is not sorted by time.

    On a GPU, hops are sampled one by one, into arrays sized by the fan-outs. This synchronizes once, and once more for
    each hop that samples all neighbours, may have more than `Limits.bounded_edges` edges, or compares second times
    with windows. Temporal sampling of typed graphs is not supported on a GPU.

    Args:
        graph: A graph, whose arrays are not checked here.
        seeds: Node ids within their type, by node type, with the dtype of `graph.indices`.
        fanouts: One tensor per hop, beginning with the hop of the seeds: one fan-out, or one per edge type.
        keys: The key of each hop (`Key.at`); two keys for LABOR.
        drawing: How edges are selected.
        moments: For temporal sampling: the times of the seeds, ordered by node type. Needs `graph.by_column`.

    Raises:
        ValueError: A seed is out of range for its type, a fan-out is below -1 or too large, a window is negative, the
            number of keys or times is wrong.
    """
    found: list[SampledHop] = PreparedHops(graph, fanouts, drawing).sample(seeds, keys, moments)
    return found


class PreparedHops:
    """A graph and sampling arguments that are checked and prepared once, for many mini-batches.

    The arguments are those of `sample_hops`, which creates an instance per call. For mini-batches of 64 seeds, reusing
    an instance saves a tenth of the time. It keeps the arrays of the graph, and the arrays computed from them.
    """

    def __init__(
        self,
        graph: Graph,
        fanouts: Sequence[torch.Tensor],
        drawing: Drawing = UNIFORM,
        reads: ReadChoice | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be an ops.Graph, but is {brief(graph)}; create it with Graph.checked")
        check_drawing(drawing)
        if not fanouts:
            raise ValueError("fanouts is empty; give a number for each hop")
        for fanout in fanouts:
            check_fanouts(fanout, graph, drawing.replace)
        if drawing.method == "latest":
            check_latest(graph, drawing)
        self.graph, self.drawing, self.reads = graph, drawing, reads
        self.launches: dict[Any, HopLaunches | str | None] = {}
        """On a GPU, the recorded launches of each kind of mini-batch."""
        self.wanted: list[list[int]] = [own.tolist() for own in fanouts]
        self.most = [widest(own, graph.destinations) for own in self.wanted]
        self.recipe = recipe_of(
            graph, graph.indices.dtype, drawing, self.wanted, starts=graph.indptr_dtype, num_types=graph.num_types,
            num_node_types=graph.num_node_types, relabelled=True,
        )  # fmt: skip

    def sample(
        self,
        seeds: Sequence[torch.Tensor],
        keys: Sequence[Any],
        moments: SeedTimes | None = None,
        switch_threshold: int = 0,
        read: Read | torch.Tensor | None = None,
        joined: bool = False,
        trees: torch.Tensor | None = None,
        ahead: bool = False,
    ) -> Any:
        """Sample all hops of a mini-batch, as `sample_hops` does; for LABOR, optionally with its own threshold.

        Positions of edges are replaced by the values that `read` returns for them: it is called once on the CPU, and
        once per hop on a GPU. With `joined`, which needs the CPU, all hops are returned as one `JoinedHops`, and `read`
        can be a tensor, int32 or int64, with a value for each edge of the graph. For a single hop on the CPU, `trees`
        has the tree of each seed, int64, which is then part of the key of its draws. With `ahead`, which needs a GPU,
        the result is a function that waits and returns the hops, on the same stream.
        """
        graph, drawing = self.graph, self.drawing
        if switch_threshold:
            drawing = drawing._replace(switch_threshold=switch_threshold)
        self.check(seeds, keys, moments)
        if not (graph.indptr.is_cpu and graph.indices.is_cpu and seeds[0].is_cpu):
            if on_gpu(seeds[0]) and (moments is None or graph.types is None):
                check_rows_on_gpu(drawing, moments)
                if drawing.method == "labor":
                    # Like a key, the threshold is replaced when recorded launches are repeated.
                    each = [(*key, drawing.switch_threshold) for key in keys]
                    drawing = drawing._replace(switch_threshold=0)
                else:
                    each = [(key,) for key in keys]
                wanted = list(zip(self.wanted, each, strict=True))
                return hops_on_gpu(graph, seeds, wanted, drawing, moments, read, self.launches, ahead)
            package_for("sampling.sample_hops", seeds[0], indptr=graph.indptr, indices=graph.indices)
        times = [] if moments is None else [part.contiguous().numpy() for part in moments if part is not None]
        room = first_room(graph, sum([part.numel() for part in seeds]), self.most, drawing)
        with self.program_for(len(times) > 1) as program:
            arrays = program.arrays
            arrays.bind(graph, keys, drawing.switch_threshold, self.wanted)
            make = buffers.POOL.empty if joined else buffers.empty_array
            arrays.open([part.numpy() for part in seeds], room, times, None if trees is None else trees.numpy(), make)
            try:
                program.run() if self.reads is None else run_from_files(program, self.reads)
            except ValueError:
                check_ranges(graph, seeds)
                raise
            hops = joined_views(arrays, read) if joined else hops_of(arrays, read)
        # From here on, another mini-batch may use the arrays. A program that failed is not reused.
        PROGRAMS.release(program, keeps_results=not joined)
        return hops

    @contextmanager
    def program_for(self, windows: bool, kept: str | None = None) -> Iterator[HopProgram]:
        """Yield an idle program, which the caller returns to the pool unless it fails."""
        recipe, rows = self.recipe, self.drawing.rows
        # A map of all nodes is only useful if each node has one row.
        with buffers.NODE_MAPS.leased_map(self.graph.num_nodes if rows == "node" else 0) as node_map:
            by_table = rows == "tree" or node_map is None
            by_page = self.reads is not None and self.reads.from_disk
            if by_table or by_page or windows or kept:
                recipe = recipe._replace(by_table=by_table, by_page=by_page, windows=windows, kept=kept)
            program = PROGRAMS.acquire(recipe)
            if node_map is not None:
                program.arrays.node_map.set_borrowed("places", node_map)
            yield program

    def check(self, seeds: Sequence[torch.Tensor], keys: Sequence[Any], moments: SeedTimes | None) -> None:
        """Raise unless the arguments fit the graph and the fan-outs; ids are checked later."""
        graph, drawing = self.graph, self.drawing
        check_seeds_by_type(graph, seeds)
        check_hop_keys(keys, drawing)
        if len(keys) != len(self.wanted):
            what = "pairs" if drawing.method == "labor" else "numbers"
            raise ValueError(f"keys must hold {len(self.wanted)} {what}, one per hop, but holds {len(keys)}")
        if (graph.by_column is None) != (moments is None):
            raise ValueError("moments (times of seeds) must be given if the graph has an order of time, and only then")
        if moments is not None:
            check_moments(sum(part.numel() for part in seeds), moments)
            if drawing.rows == "node":
                raise ValueError('with times, drawing.rows must be "edge" or "tree": a node at two times is two rows')

    def sample_window(
        self,
        minibatches: Sequence[Sequence[torch.Tensor]],
        keys: Sequence[Sequence[Any]],
        moments: Sequence[SeedTimes | None],
        switch_thresholds: Sequence[int] = (),
        read: Read | torch.Tensor | None = None,
        joined: bool = False,
    ) -> list[Any]:
        """Sample several mini-batches on the CPU, one after the other, with the results of `sample`.

        All arguments but `read` have an entry for each mini-batch, and either all or none have windows. What takes the
        same time for small mini-batches as for large ones is done once for all of them: 32 mini-batches of 16 seeds
        with fan-outs [10, 10] are 2.4 times as fast, and their pipelines 1.8 times. The results are parts of the same
        arrays, so keeping one of them keeps all. With `joined`, `read` must be a tensor or None.
        """
        drawing, graph, labor = self.drawing, self.graph, self.drawing.method == "labor"
        times, drawn = [], list[tuple[Any, ...]]()
        for number, (seeds, own, moment) in enumerate(zip(minibatches, keys, moments, strict=True)):
            self.check(seeds, own, moment)
            times.append([] if moment is None else [part.contiguous().numpy() for part in moment if part is not None])
            drawn += [(*key, switch_thresholds[number]) if labor else (key, key, key) for key in own]
        ids: Any = NO_IDS if read is None else read
        kept = dtype_name(ids.dtype) if joined else "hops"
        room = first_room(graph, max(sum([part.numel() for part in own]) for own in minibatches), self.most, drawing)
        with self.program_for(len(times[0]) > 1, kept) as program:
            arrays = program.arrays
            arrays.bind(graph, keys[0], 0, self.wanted)
            arrays.open_window(
                [[part.numpy() for part in own] for own in minibatches], room, times, np.array(drawn, np.uint64)
            )
            if joined:
                arrays.edge_ids.set_borrowed("ids", ids)
            for _ in minibatches:
                program.run()
            hops = joined_of_window(arrays) if joined else hops_of_window(arrays, read)
        PROGRAMS.release(program, keeps_results=False)
        return hops


def run_from_files(program: HopProgram, reads: ReadChoice) -> None:
    """Run a program; the number of pages read from disk decides how the next one reads the files."""
    pages: list[int] = []
    with reads.count(pages):
        program.run()
    reads.decide(pages[0], int(program.arrays.relations.arrays["edge_starts"][-1, 0]))


def check_rows_on_gpu(drawing: Drawing, moments: SeedTimes | None) -> None:
    if drawing.only_new or drawing.rows != ("node" if moments is None else "edge"):
        raise ValueError(
            f"drawing has rows={drawing.rows!r} and only_new={drawing.only_new}, which a GPU doesn't support here; "
            "call sample_neighbors hop by hop"
        )


def widest(fanouts: Sequence[int], destinations: Sequence[int]) -> int:
    """Return the maximum number of edges of a column over all its edge types; -1 if all edges are sampled."""
    if len(fanouts) == 1 or min(fanouts) < 0:
        return min(fanouts)
    sums = [0] * (max(destinations) + 1)
    for fanout, end in zip(fanouts, destinations, strict=True):
        sums[end] += min(fanout, MOST_REPEATED)
    return max(sums)


def first_room(graph: Graph, num_seeds: int, fanouts: Sequence[int], drawing: Drawing) -> InitialCapacity:
    """Estimate the edges of all hops, the columns of the last hop and the rows per node type, up to `first_edges`."""
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    nodes, new, found, opened = num_seeds, num_seeds, 0, num_seeds
    # If all edges are sampled, guess twice the average degree, or one edge with times; the arrays grow.
    guess = 2 * -(-num_edges // max(num_nodes, 1)) if graph.by_column is None else 1
    for fanout in fanouts:
        opened = nodes
        new = (new if drawing.only_new else nodes) * (guess if fanout < 0 else fanout)
        nodes, found = nodes + new, found + new
        if drawing.rows != "edge":
            nodes = min(nodes, num_seeds + num_nodes * (1 if drawing.rows == "node" else num_seeds))
    limit = current_limits().first_edges
    room, columns = min(found, limit) + 1, min(opened, limit) + 1
    if drawing.rows == "node":
        return InitialCapacity(
            room, columns, [min(room, end - first) for first, end in itertools.pairwise(graph.first_ids)]
        )
    sources = set(graph.sources)
    # In trees, the number of nodes also bounds the rows.
    share = min(room, FIRST_ROWS // max(len(sources), 1), room if drawing.rows == "edge" else nodes)
    return InitialCapacity(room, columns, [share if kind in sources else 0 for kind in range(graph.num_node_types)])
