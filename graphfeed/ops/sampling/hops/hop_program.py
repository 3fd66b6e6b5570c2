"""Select the passes that sample a mini-batch, and their order.

Variants are separate passes rather than options, so that only those in use are compiled.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from graphfeed.ops.cpu.jit import Block, Kernel, Program
from graphfeed.ops.cpu.pages import Order
from graphfeed.ops.cpu.sampling.passes import (
    buckets,
    by_page,
    candidates,
    columns,
    edges,
    in_time,
    labor,
    layout,
    state,
    uniform,
    weighted,
    window,
)
from graphfeed.ops.process import ForkLock, current_limits
from graphfeed.ops.rows.gather_by_page import PAGE_BITS
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays
from graphfeed.ops.sampling.hops.hop_recipe import Recipe
from graphfeed.ops.sampling.hops.scratch import BLOCK_EDGES, LEAST_COLUMNS, bucket_sizes
from graphfeed.ops.structure.csc import edited

MOST_COLUMNS = 1 << 22
"""A program with a larger capacity of columns is not pooled."""
MOST_PROGRAMS = 32
"""Maximum number of recipes whose idle programs are pooled."""


class HopProgram:
    """The program that samples mini-batches of a recipe, and its arrays."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.arrays = recipe, HopArrays(recipe)
        self.picks = self.arrays.picks
        """Where the hop that is being added writes its picks."""
        self.program = Program()
        self.stops: dict[int, tuple[Callable[[], None], int]] = {}
        """For each pass that may stop: the function to call then, and the pass to continue at."""
        arrays = self.arrays
        if recipe.kept is not None:
            given = arrays.window, arrays.rows, arrays.nodes, arrays.moments, arrays.table, arrays.columns
            self.add(window.open_minibatch, arrays.draws.reshape(-1), *given)
        if recipe.relabelled:
            self.add(columns.check_seed_ranges, arrays.rows, arrays.nodes)
        if recipe.by_table:
            self.add(edges.enter_rows, 0, arrays.rows, arrays.nodes, arrays.table)
        elif recipe.merged:
            self.add(columns.mark_rows, 0, True, arrays.rows, arrays.nodes, arrays.node_map)
        for hop, (count, most) in enumerate(recipe.fanouts):
            self.open_hop(hop, count > 1, most)
            if recipe.relabelled:
                self.close_hop(hop, count > 1)
        if recipe.merged and not recipe.by_table:
            self.add(columns.mark_rows, len(recipe.fanouts), False, arrays.rows, arrays.nodes, arrays.node_map)
        if recipe.kept is not None:
            found = arrays.relations, arrays.starts, arrays.rows, arrays.nodes
            if recipe.kept == "hops":
                self.add(window.keep_hops, *found, arrays.edges, arrays.kept, grow=arrays.grow_kept)
            else:
                more = arrays.table, arrays.edges, arrays.edge_ids, arrays.kept
                self.add(layout.write_joined_hops, *found, *more, grow=arrays.grow_kept)
            self.add(window.record_bounds, arrays.window, arrays.relations, arrays.rows, arrays.kept)

    def add(self, kernel: Kernel, *arguments: Any, grow: Callable[[], None] | None = None) -> None:
        """Append a pass. If it stops for lack of space, `grow` is called, and the pass runs again."""
        if grow is not None:
            self.stops[len(self.program.steps)] = grow, len(self.program.steps)
        self.program.add(kernel, *arguments)

    def run(self) -> None:
        """Run all passes, enlarging arrays that are too short."""
        code, step = self.program.run(0)
        while code:
            if code == state.EDITED:
                raise edited()
            act, step = self.stops[step]
            act()
            code, step = self.program.run(step)

    @property
    def order(self) -> Block:
        """Scratch for reading by page."""
        return self.arrays.scratch_for("order", Order)

    @property
    def runs(self) -> Block:
        """The runs of the edge types of a hop's columns."""
        return self.arrays.scratch_for("runs", state.Runs, bounds=self.recipe.num_types + 1, fanouts=LEAST_COLUMNS)

    def open_hop(self, hop: int, by_type: bool, most: int) -> None:
        """Add the passes that open the columns of a hop and draw edge positions from them."""
        arrays, opened, recipe = self.arrays, self.arrays.columns, self.recipe
        draws, fanouts = arrays.draws[hop], arrays.fanouts[hop]
        if recipe.by_page:
            self.add(by_page.touch_columns, hop, PAGE_BITS, arrays.indptr, arrays.rows, arrays.nodes, self.order)
        self.add(
            columns.open_columns, hop, arrays.indptr, fanouts, not recipe.typed, recipe.drawing.only_new, arrays.rows,
            arrays.nodes, opened, grow=partial(arrays.grow_columns, opened),
        )  # fmt: skip
        if recipe.ranked is not None:
            self.add(in_time.open_moments, arrays.rows, opened, arrays.moments)
        # LABOR draws per neighbour; selecting all edges, or the latest, needs no draws.
        if recipe.drawing.method == "uniform" and most > 0:
            self.add(columns.draw_states, draws, arrays.rows, opened, arrays.moments, arrays.table)
        runs, by_relation = opened, by_type and recipe.typed
        self.picks = arrays.edges if by_relation else arrays.picks
        if by_type:
            runs = self.runs
            if recipe.by_page:
                self.add(by_page.touch_types, PAGE_BITS, arrays.types, opened, self.order)
            grow = partial(arrays.grow_columns, runs)
            if by_relation:
                given = hop, arrays.types, fanouts, arrays.relations, opened, runs
                self.add(columns.split_relations, *given, grow=grow)
            else:
                self.add(columns.split_columns, arrays.types, fanouts, opened, runs, grow=grow)
        if recipe.ranked is None:
            self.draw(hop, runs, arrays.sources, arrays.sums if recipe.weighted else None, most)
        else:
            self.draw_in_time(hop, runs, by_type, most)
        if by_type and not by_relation:
            self.add(columns.join_runs, runs, opened)
        if recipe.ranked is not None and any(recipe.ranked[by_type][1:3]):
            # With types, picks are not in their final places yet, so their sources are read later.
            found = arrays.nodes if recipe.relabelled and not recipe.typed else arrays.no_nodes
            own = runs if by_relation else opened
            self.add(in_time.follow_ranks, arrays.ranked[by_type], own, self.picks, found)

    def draw_in_time(self, hop: int, runs: Block, by_type: bool, most: int) -> None:
        """Add the passes that restrict runs to eligible times and draw from them."""
        arrays, recipe = self.arrays, self.recipe
        assert recipe.ranked is not None
        times, order, links, earliest, is_weighted = recipe.ranked[by_type]
        ranked, weights = arrays.ranked[by_type], arrays.ranked_sums[by_type]
        if times:
            self.add(in_time.narrow_to_times, ranked, arrays.moments, by_type, runs)
        is_labor = recipe.drawing.method == "labor"
        if not ((earliest and recipe.windows) or (is_labor and (order or links))):
            self.draw(hop, runs, arrays.sources, weights if is_weighted else None, most)
            return
        block = arrays.scratch_for("block", state.Runs, bounds=2, fanouts=LEAST_COLUMNS)
        gathered, sums = arrays.scratch_for("gathered", in_time.Gathered), arrays.sums
        if is_weighted:
            sums = arrays.scratch_for("gathered sums", state.Sums, cumulative=BLOCK_EDGES)
        sources, first, grow = arrays.sources, len(self.program.steps), partial(arrays.grow_block, runs)
        self.add(in_time.gather_block, ranked, weights, arrays.moments, by_type, runs, block, gathered, sums, grow=grow)
        if is_labor:
            sources = arrays.scratch_for("gathered sources", state.Sources, indices=BLOCK_EDGES)
            self.add(in_time.gather_sources, arrays.sources, ranked, runs, block, gathered, sources)
        self.draw(hop, block, sources, sums if is_weighted else None, most)
        # `return_block` returns AGAIN while runs remain: the program then jumps back to `gather_block`.
        self.stops[len(self.program.steps)] = lambda: None, first
        self.add(in_time.return_block, runs, block, gathered, self.picks)

    def draw(self, hop: int, runs: Block, sources: Block, sums: Block | None, most: int) -> None:
        """Add the passes that count the picks of runs and draw edges."""
        # Sources (which LABOR reads) and sums are those of all edges, or of a block.
        method, replace, *_ = self.recipe.drawing
        arrays, picks, grow = self.arrays, self.picks, partial(self.arrays.grow_picks, hop, runs, self.picks)
        if sums is None:
            self.add(uniform.count_uniform, replace, runs, picks, grow=grow)
        else:
            self.add(weighted.count_weighted, sums, replace, runs, picks, grow=grow)
        if method == "latest":
            self.add(uniform.fill_latest, runs, picks)
        elif method == "labor":
            self.draw_by_labor(hop, runs, sources, sums, most)
        elif sums is not None:
            fill, grow = weighted.fill_weighted, partial(arrays.grow_queue, runs)
            if replace and most >= 0:
                fill = weighted.fill_weighted_repeated
            self.add(fill, sums, runs, arrays.scratch_for("queue", weighted.Queue), picks, grow=grow)
        elif replace and most >= 0:
            self.add(uniform.fill_repeated, runs, picks)
        else:
            self.add(uniform.fill_uniform, arrays.scratch_for("table", uniform.PickTable), runs, picks)

    def draw_by_labor(self, hop: int, runs: Block, sources: Block, sums: Block | None, most: int) -> None:
        """Add the passes that draw by LABOR: a scan of each run with a heap, or cheaper passes where they suffice."""
        arrays, picks, replace = self.arrays, self.picks, self.recipe.drawing.replace
        draws, weights, by_heap = arrays.draws[hop], arrays.sums if sums is None else sums, sums is not None or replace
        heap, found = arrays.scratch_for("heap", labor.Heap), arrays.scratch_for("no buckets", candidates.Buckets)
        # Without weights and replacement, candidates are collected first (for large columns, from the index); the heap
        # handles the runs that they leave undecided.
        if not by_heap and self.recipe.indexed and runs is arrays.columns and 0 < most <= candidates.MAX_COLLECTED:
            index = arrays.scratch_for("index", candidates.Index)
            found = arrays.scratch_for("buckets", candidates.Buckets, **bucket_sizes(self.recipe.indexed))
            self.add(buckets.assign_buckets, index, runs, found)
            self.add(buckets.fill_buckets, index, draws, found)
        if self.recipe.by_page and sources is arrays.sources:
            self.add(by_page.touch_runs, PAGE_BITS, sources, runs, found, self.order)
        if by_heap:
            self.add(labor.fill_labor, sources, weights, replace, True, draws, runs, heap, picks)
            return
        decide = partial(labor.fill_labor, sources, weights, False, False, draws, runs, heap, picks)
        self.stops[len(self.program.steps)] = decide, len(self.program.steps) + 1
        # At UNDECIDED, Python calls the pass of the heap, and the program continues after `fill_likely`.
        likely = arrays.scratch_for("candidates", candidates.Candidates)
        self.add(candidates.fill_likely, sources, draws, runs, likely, found, picks)

    def close_hop(self, hop: int, by_type: bool) -> None:
        """Add the passes that arrange the picks of a hop, and assign rows to their sources."""
        arrays, opened, recipe = self.arrays, self.arrays.columns, self.recipe
        kinds, found, starts, rows = arrays.relations, arrays.edges, arrays.starts, arrays.rows
        by_relation = by_type and recipe.typed
        if by_relation:
            # Edges that are all picked ascend, unless they are drawn with replacement or in the order of their times.
            drawn = recipe.drawing.replace or recipe.ranked is not None
            self.add(layout.sort_picks, not drawn, self.runs, found)
            self.add(layout.count_relations, self.runs, arrays.counts)
        elif recipe.typed:
            # Sorting makes the edges of each type ascend within each column.
            self.add(layout.sort_picks, False, opened, arrays.picks)
            read: tuple[Any, ...] = layout.read_types, arrays.types, opened, arrays.picks, arrays.counts
            if recipe.by_page:
                read = by_page.read_types_by_page, PAGE_BITS, *read[1:], self.order
            self.add(*read)
        else:
            self.add(layout.count_picks, opened, arrays.counts)
        room = arrays.counts, opened, rows, kinds, found, starts
        self.add(layout.lay_out, hop, recipe.merged, *room, grow=partial(arrays.grow_results, hop))
        if by_relation:
            self.add(layout.write_relation_starts, hop, self.runs, kinds, starts)
        elif recipe.typed:
            written = kinds, found, starts
            self.add(layout.split_picks, hop, arrays.counts, arrays.cursors, opened, arrays.picks, *written)
        else:
            self.add(layout.write_starts, hop, opened, kinds, starts)
        if recipe.typed or recipe.ranked is None or not recipe.ranked[by_type][2]:
            read = edges.read_neighbors, hop, arrays.sources, rows, kinds, found, arrays.nodes
            if recipe.by_page:
                read = by_page.read_neighbors_by_page, hop, PAGE_BITS, *read[2:], self.order
            self.add(*read)
        if recipe.by_table:
            given = rows, arrays.moments, kinds, starts, arrays.nodes, arrays.table
            self.add(edges.relabel_by_table, hop, *given, grow=partial(arrays.grow_table, hop))
        elif recipe.merged:
            self.add(edges.relabel_hop, hop, rows, kinds, arrays.nodes, arrays.node_map)
        else:
            self.add(edges.append_rows, hop, rows, arrays.moments, kinds, found, starts, arrays.nodes)


class ProgramPool:
    """Pool of idle programs: building one takes longer than sampling a small mini-batch."""

    def __init__(self) -> None:
        self.lending = ForkLock()
        self.idle: OrderedDict[Recipe, list[HopProgram]] = OrderedDict()
        self.limits = current_limits()

    def acquire(self, recipe: Recipe) -> HopProgram:
        with self.lending.lock:
            if self.limits is not current_limits():  # which chose the sizes of idle programs
                self.idle, self.limits = OrderedDict(), current_limits()
            found = self.idle.get(recipe)
            if found:
                return found.pop()
        return HopProgram(recipe)

    def release(self, program: HopProgram, *, keeps_results: bool = True) -> None:
        """Return a program that hasn't failed to the pool; `keeps_results` says that the caller has its results."""
        program.arrays.release(keeps_results)
        if program.arrays.columns.arrays["starts"].size <= MOST_COLUMNS:
            with self.lending.lock:
                self.idle.setdefault(program.recipe, []).append(program)
                self.idle.move_to_end(program.recipe)
                # Evict the least recently used recipes.
                while len(self.idle) > MOST_PROGRAMS:
                    self.idle.popitem(last=False)


PROGRAMS = ProgramPool()
