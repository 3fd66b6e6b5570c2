"""The arrays of a mini-batch, in the layout of `graphfeed.ops.cpu.sampling.passes.state`, and scratch for passes."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import NOTHING
from graphfeed.ops.cpu.jit import Block, dtype_name
from graphfeed.ops.cpu.sampling.passes import in_time, state, weighted
from graphfeed.ops.cpu.sampling.passes.edges import enter_rows
from graphfeed.ops.memory import align, buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.sampling.graph import Graph
from graphfeed.ops.sampling.hops.hop_recipe import MAX_LOOK_BACK, Recipe
from graphfeed.ops.sampling.hops.scratch import OF_PICKS, enlarge, new_block
from graphfeed.ops.sampling.time_order import TimeOrder

Ints = NDArray[np.int64]
MOST_KEPT = 1 << 20
"""Arrays of more edges are not kept for the next mini-batch."""
OF_RESULTS = "rows", "neighbors", "positions", "indptr", "joined"
"""Arrays of `KeptHops` that belong to the caller once they are filled."""
nothing = cache(partial(np.empty, 0))
"""Returns the empty array of a dtype."""


class InitialCapacity(NamedTuple):
    """Initial sizes of the arrays; they grow as needed."""

    edges: int
    columns: int
    """Columns of one hop."""
    rows: Sequence[int]
    """Rows of each node type, in addition to the seeds."""


class HopArrays:
    """The arrays for mini-batches of a recipe, one mini-batch at a time.

    Between mini-batches, they may have any values, except these: the arrays of the graph, including `first_ids` of
    `rows` and the edge types of `relations`; the first values of `edge_starts` and `indptr_ends`, which are 0; the
    slots of the table of picks, which are -1; and the end of the block in `cursor`, which is 0.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        hops, kinds, num_types = len(recipe.fanouts), recipe.num_node_types, recipe.num_types
        self.ids, self.starts_dtype = buffers.NUMPY_DTYPES[recipe.ids], buffers.NUMPY_DTYPES[recipe.starts]
        self.draws = np.zeros((hops, 3), np.uint64)
        """The keys of each hop, and LABOR's threshold."""
        self.fanouts = [np.zeros(count, np.int64) for count, _ in recipe.fanouts]
        self.counts, self.cursors = np.zeros(num_types, np.int64), np.zeros(2 * num_types, np.int64)
        """Scratch for each edge type of a hop."""
        # Arrays of the graph and of the results belong to one mini-batch; the others are reused.
        self.indptr, self.sources, self.types = map(self.new, (state.Indptr, state.Sources, state.TypePerEdge))
        self.sums = self.new(state.Sums)
        self.ranked, self.ranked_sums = ([self.new(kind) for _ in range(2)] for kind in (state.TimeBlock, state.Sums))
        self.node_map, self.table, self.moments = map(self.new, (state.NodeMap, state.RowTable, state.Moments))
        self.rows = self.new(state.RowBlock, first_ids=kinds + 1, firsts=kinds + 1, known=(hops + 1, kinds))
        self.nodes, self.no_nodes = (self.new(state.NodeIds, recipe.ids) for _ in range(2))
        by_hop = {"edge_starts": (hops + 1, num_types + 1), "indptr_starts": (hops, num_types)}
        by_type = dict.fromkeys(("sources", "destinations", "order"), num_types)
        self.relations = self.new(state.Relations, **by_type, **by_hop, indptr_ends=hops + 1)
        self.starts = self.new(state.ColumnStarts)
        self.columns, self.edges = self.new(state.Runs, bounds=kinds + 1), self.new(state.PickBlock)
        self.picks = self.new(state.PickBlock) if recipe.typed else self.edges
        """Without types, picks are written directly to the result."""
        self.window, self.kept = self.new(state.SeedWindow, places=2), self.new(state.KeptHops, ends=4, needed=4)
        self.edge_ids = self.new(state.EdgeIds)
        self.scratch: dict[str, Block] = {}
        """Blocks that only some recipes need."""
        self.most_edges = 0
        """The largest number of edges of a mini-batch so far, for the size of the table, which each one clears."""
        self.bound: Callable[[], Graph | None] = lambda: None
        """Returns the graph whose arrays the blocks point to, unless it is gone."""
        self.fit()

    def new(self, kind: Any, ids: torch.dtype | None = None, /, **sizes: Any) -> Block:
        dtypes = {"ids": dtype_name(ids or self.recipe.sources), "types": dtype_name(self.recipe.types or torch.uint8)}
        dtypes["sent ids"] = "int32" if self.recipe.kept == "int32" else "int64"
        return new_block(kind, dtypes, sizes)

    def scratch_for(self, name: str, kind: Any, **sizes: Any) -> Block:
        if name not in self.scratch:
            self.scratch[name] = self.new(kind, **sizes)
            self.fit()
        return self.scratch[name]

    def bind(self, graph: Graph, keys: Sequence[Any], threshold: int, fanouts: Sequence[Sequence[int]]) -> None:
        """Point to the arrays of a graph, which the caller keeps alive; set keys, threshold and fan-outs."""
        if self.bound() is not graph:
            self.bind_graph(graph)
        largest, is_pair = 1, self.recipe.drawing.method == "labor"
        # Each hop has one key, or two for LABOR; and one fan-out, or one per edge type.
        for hop, (own, fanout) in enumerate(zip(keys, fanouts, strict=True)):
            self.draws[hop] = (*own, threshold) if is_pair else own
            self.fanouts[hop][:] = fanout
            largest = max(largest, *fanout)
        # Without replacement, a column has at most as many picks as the graph has edges.
        if largest > MAX_LOOK_BACK and not self.recipe.drawing.replace:
            largest = min(largest, int(self.indptr.arrays["num_edges"][0]))
        if "table" in self.scratch:
            # At most half of the slots are used. A few picks are compared with each other instead.
            size = 1 << (2 * largest).bit_length() if largest > MAX_LOOK_BACK else 0
            if self.scratch["table"].arrays["slots"].size != size:
                self.scratch["table"].set_array("slots", np.full(size, -1, np.int64))
        if "heap" in self.scratch:
            self.at_least(self.scratch["heap"], 1 << largest.bit_length(), "values", "units")
        # Passes accumulate offsets starting here, hop by hop.
        self.columns.arrays["offsets"][0] = 0

    def bind_graph(self, graph: Graph) -> None:
        self.indptr.set_borrowed("indptr", graph.indptr)
        self.indptr.arrays["num_edges"][0] = graph.num_edges or int(graph.indptr[-1])
        self.sources.set_borrowed("indices", graph.indices)
        if self.recipe.relabelled:
            self.rows.arrays["first_ids"][1:] = graph.first_ids[1:]
        if graph.types is not None:
            self.types.set_borrowed("types", graph.types)
        if self.recipe.typed:
            for name in ("sources", "destinations", "order"):
                self.relations.arrays[name][:] = getattr(graph, name)
        if graph.sums is not None and self.recipe.weighted:
            self.sums.set_borrowed("cumulative", graph.sums.cumulative)
            self.sums.set_borrowed("guides", graph.sums.guides)
        if self.recipe.ranked is not None:
            self.moments.set_borrowed("edge_times", NOTHING if graph.edge_times is None else graph.edge_times)
        orders = zip((graph.by_column, graph.by_type), self.recipe.ranked or (), strict=False)
        for block, sums, (order, reads) in zip(self.ranked, self.ranked_sums, orders, strict=False):
            for name, part, is_read in zip(TimeOrder._fields, order or (), reads, strict=True):
                (sums if name == "cumulative" else block).set_borrowed(name, part if is_read else NOTHING)
        if "index" in self.scratch and graph.large_columns is not None:
            for name, part in graph.large_columns._asdict().items():
                self.scratch["index"].set_borrowed(name, part)
        self.bound = weakref.ref(graph)

    def open_one(self, seeds: torch.Tensor, num_nodes: int, moments: Sequence[torch.Tensor], room: int) -> None:
        """Set the seeds of a single hop, whose picks are the result. The caller keeps seeds and times alive."""
        rows, count = self.rows.arrays, seeds.numel()
        rows["first_ids"][1], rows["firsts"][1] = num_nodes, count
        rows["known"][:] = count
        self.nodes.set_borrowed("rows", seeds)
        if self.recipe.ranked is not None:
            for name, values in zip(("times", "windows"), moments, strict=True):
                self.moments.set_borrowed(name, values)
        self.picks.set_array("positions", np.empty(room, np.int64))
        self.widen(self.columns, count)

    def open(
        self,
        seeds: Sequence[NDArray[Any]],
        room: InitialCapacity,
        moments: Sequence[Ints],
        trees: Ints | None,
        make: Callable[[int, Any], NDArray[Any]],
    ) -> None:
        """Copy the seeds of a mini-batch, ids within their type by node type; allocate the arrays of its results.

        `moments` and `trees` are in the order of the seeds; windows may be missing. `make` allocates the results.
        """
        counts = [part.size for part in seeds]
        if self.recipe.drawing.rows == "tree":
            trees = np.arange(sum(counts))
        self.allocate(counts, room, len(moments), make, has_trees=trees is not None)
        self.rows.arrays["known"][0] = counts
        parts = [slice(end - count, end) for count, end in zip(counts, itertools.accumulate(counts), strict=True)]
        self.enter(self.nodes, "rows", seeds)
        if trees is not None:
            self.enter(self.table, "trees", [trees[part] for part in parts])
        for name, values in zip(("times", "windows"), moments, strict=False):
            self.enter(self.moments, name, [values[part] for part in parts])

    def open_window(
        self,
        minibatches: Sequence[Sequence[NDArray[Any]]],
        room: InitialCapacity,
        moments: Sequence[Sequence[Ints]],
        keys: NDArray[np.uint64],
    ) -> None:
        """Copy the seeds and keys of several mini-batches, which have equally many `moments`; allocate their arrays."""
        counts = np.array([[part.size for part in seeds] for seeds in minibatches])
        has_trees = self.recipe.drawing.rows == "tree"
        self.allocate(counts.max(0).tolist(), room, len(moments[0]), buffers.POOL.empty, has_trees=has_trees)
        window, kept, known = self.window, self.kept, self.rows.arrays["known"]
        window.arrays["places"][:] = kept.arrays["ends"][:] = 0
        window.set_array("counts", counts.reshape(-1))
        window.set_array("seeds", np.concatenate([part for seeds in minibatches for part in seeds]))
        for name, parts in zip(("times", "windows"), zip(*moments, strict=True), strict=False):
            window.set_array(name, np.concatenate(parts))
        window.set_array("keys", keys.reshape(-1))
        bounds = [known, *map(self.relations.arrays.__getitem__, ("edge_starts", "indptr_starts", "indptr_ends"))]
        kept.set_array("records", np.empty(len(counts) * sum(own.size for own in bounds), np.int64))
        for name in OF_RESULTS:
            kept.set_array(name, nothing(kept.places[name][1]))

    def allocate(
        self,
        counts: Sequence[int],
        room: InitialCapacity,
        num_moments: int,
        make: Callable[[int, Any], NDArray[Any]],
        *,
        has_trees: bool,
    ) -> None:
        """Make room for the most seeds of each node type that a mini-batch has, and for what is sampled from them."""
        typed = self.recipe.typed
        firsts = [0, *itertools.accumulate(map(int.__add__, counts, room.rows))]
        self.rows.arrays["firsts"][:] = firsts
        self.make_room(self.nodes, "rows", firsts[-1], make)
        self.make_room(self.table, "trees", firsts[-1] if has_trees else 0, buffers.POOL.empty)
        self.at_least(self.moments, firsts[-1], *("times", "windows")[:num_moments])
        if self.recipe.by_table:
            most = min(room.edges, sum(room.rows), current_limits().first_table)
            self.open_table(sum(counts) + (min(most, self.most_edges) if self.most_edges else most))
        columns = len(self.fanouts) * ((2 if typed else 1) * room.columns + self.counts.size)
        self.make_room(self.starts, "indptr", columns, make)
        self.make_room(self.edges, "positions", room.edges, make)
        self.make_room(self.nodes, "neighbors", room.edges, make)
        if typed:
            self.at_least(self.picks, room.edges, "positions", "types")
        self.widen(self.columns, room.columns)

    def make_room(self, block: Block, name: str, size: int, make: Callable[[int, Any], NDArray[Any]]) -> None:
        """Allocate an array of a block, whose contents are not needed, unless it is large enough.

        One of size 0 replaces the array of the mini-batch before, of which the block still has the address.
        """
        if size == 0 or block.arrays[name].size < size:
            block.set_array(name, make(size, block.places[name][1]))

    def open_table(self, count: int) -> None:
        """Allocate a hash table for at least `count` rows."""
        size = 1 << (2 * count).bit_length()
        for name in ("keys", "places") if self.table.arrays["keys"].size != size else ():
            self.table.set_array(name, buffers.POOL.empty(size, np.int64))

    def enter(self, block: Block, name: str, parts: Sequence[NDArray[Any]]) -> None:
        """Copy the seeds of each node type to the start of its rows."""
        array = block.arrays[name]
        for first, part in zip(self.rows.arrays["firsts"].tolist(), parts, strict=False):
            if part.size:
                array[first : first + part.size] = part

    def column_starts(self, own: NDArray[Any], count: int) -> NDArray[Any]:
        return own if own.dtype == self.starts_dtype else own[:count].astype(self.starts_dtype)

    def release(self, given: bool) -> None:
        """End a mini-batch, whose results were given to the caller or copied."""
        self.most_edges = max(self.most_edges, int(self.relations.arrays["edge_starts"][-1, 0]))
        if self.kept.arrays["joined"].size or self.recipe.kept:
            self.kept.arrays.update({name: nothing(self.kept.places[name][1]) for name in OF_RESULTS})
        if not given and self.edges.arrays["positions"].size <= MOST_KEPT:
            return
        # If the caller owns these results now, a pooled program keeps none of them; nor large ones, nor a large table.
        for block in (self.nodes, self.starts, self.edges, self.table):
            block.arrays.update({name: nothing(dtype) for name, (_, dtype) in block.places.items()})

    def at_least(self, block: Block, size: int, *names: str) -> None:
        """Grow arrays of a block to at least `size`, preserving their contents."""
        for name in names:
            if block.arrays[name].size < size:
                block.set_array(name, enlarge(block.arrays[name], size))

    def widen(self, columns: Block, size: int) -> None:
        """Grow a block to at least `size` columns or runs, preserving its contents."""
        if columns.arrays["starts"].size >= size:
            return
        by_run = ["fanouts"] if columns.arrays["fanouts"].size > 1 else []
        self.at_least(columns, size, "ids", "bases", "starts", "degrees", "states", *by_run)
        self.at_least(columns, size + 1, "offsets")
        self.fit()

    def fit(self) -> None:
        """Grow the scratch arrays that have an entry per column or run."""
        size = self.columns.arrays["starts"].size
        if self.recipe.ranked is not None:
            self.at_least(self.moments, size, "limits", *(["first_times"] if self.recipe.windows else []))
            for columns in [self.columns, *([self.scratch["runs"]] if "runs" in self.scratch else [])]:
                self.at_least(columns, columns.arrays["starts"].size + in_time.BLOCK, "scratch")
        if "buckets" in self.scratch:
            self.at_least(self.scratch["buckets"], size, "of_runs")

    def grow_columns(self, columns: Block) -> None:
        """Grow the arrays of columns, or runs, to the size that a hop needs."""
        self.widen(columns, 2 * needed_by(columns))

    def grow_picks(self, hop: int, runs: Block, picks: Block) -> None:
        """Grow the arrays of the picks of a hop or, if they are in the results already, of all edges so far."""
        count = needed_by(runs)
        if not self.recipe.relabelled:
            self.at_least(self.picks, count, "positions")
            return
        self.check(hop, count)
        self.at_least(picks, self.twice(count), "positions", *(["types"] if picks is not self.edges else []))
        if picks is self.edges:
            self.at_least(self.nodes, self.twice(count), "neighbors")

    def grow_results(self, hop: int) -> None:
        """Grow the results to hold the edges and column starts of a hop, and the rows that it may add."""
        relations, known = self.relations.arrays, self.rows.arrays["known"]
        edges, starts = int(relations["edge_starts"][hop + 1, 0]), int(relations["indptr_ends"][hop + 1])
        self.check(hop, edges)
        if self.edges.arrays["positions"].size < edges:
            self.at_least(self.edges, self.twice(edges), "positions")
            self.at_least(self.nodes, self.twice(edges), "neighbors")
        if self.starts.arrays["indptr"].size < starts:
            self.at_least(self.starts, 2 * starts, "indptr")
        old = self.rows.arrays["firsts"].copy()
        wanted = np.minimum(2 * known[hop + 1], np.iinfo(self.ids).max)
        room = np.where(known[hop + 1] > np.diff(old), wanted, np.diff(old))
        # Move the rows of each node type to a larger part.
        self.rows.arrays["firsts"][1:] = room.cumsum()
        of_rows = (self.nodes, "rows"), (self.moments, "times"), (self.moments, "windows"), (self.table, "trees")
        for block, name in of_rows:
            array = block.arrays[name]
            if array.size:
                parts = [array[first : first + count] for first, count in zip(old, known[hop], strict=False)]
                block.set_array(name, buffers.POOL.empty(int(room.sum()), array.dtype))
                self.enter(block, name, parts)

    def check(self, hop: int, edges: int) -> None:
        nodes = int(self.rows.arrays["known"][hop + 1].max())
        for name, count, dtype in (("edges", edges, self.starts_dtype), ("nodes", nodes, self.ids)):
            if count > np.iinfo(dtype).max:
                raise ValueError(
                    f"hop {hop} would have {count} {name}, too many for {np.dtype(dtype)}; use smaller fanouts, or "
                    "build the graph with int64"
                )

    def twice(self, count: int) -> int:
        return min(2 * count, int(np.iinfo(self.starts_dtype).max))

    def grow_kept(self) -> None:
        """Grow the arrays that a window fills, for all its mini-batches, if they need as much as those so far."""
        done = int(self.window.arrays["places"][state.NUMBER])
        count = self.window.arrays["counts"].size // self.recipe.num_node_types
        needed = self.kept.arrays["needed"]
        if done < count:
            # More than fits into a window is only doubled: a huge mini-batch may be followed by small ones.
            most = np.maximum(2 * needed, current_limits().window_bytes // 8)
            needed = np.minimum(needed * (9 * count) // (8 * done), most)
        rows, edges, starts, joined = needed.tolist()
        sizes = {"rows": rows, "neighbors": edges, "positions": edges, "indptr": starts}
        for name, size in (sizes if self.recipe.kept == "hops" else {"joined": joined}).items():
            self.at_least(self.kept, size, name)

    def grow_table(self, hop: int) -> None:
        self.open_table(2 * int(self.rows.arrays["known"][hop + 1].sum()))
        enter_rows(hop, self.rows, self.nodes, self.table)

    def grow_queue(self, runs: Block) -> None:
        """Grow the queue of weighted picks to the largest run, for all runs that are drawn together."""
        room = weighted.BLOCK * align(2 * needed_by(runs), weighted.LANES)
        self.at_least(self.scratch["queue"], room, *OF_PICKS)

    def grow_block(self, runs: Block) -> None:
        """Grow the block to hold a run that is longer."""
        for name, array in (("gathered", "ranks"), ("gathered sums", "cumulative"), ("gathered sources", "indices")):
            if name in self.scratch:
                self.at_least(self.scratch[name], 2 * needed_by(runs), array)


def needed_by(runs: Block) -> int:
    return int(runs.arrays["sizes"][state.NEEDED])
