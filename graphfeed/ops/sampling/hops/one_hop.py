"""One hop on the CPU, by the passes that all hops are made of."""

import torch

from graphfeed.ops.backend import as_int64, as_types
from graphfeed.ops.cpu.sampling.passes import state
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS, HopProgram
from graphfeed.ops.sampling.hops.hop_recipe import NO_GUIDES, NOTHING, Drawing, KernelGraph, recipe_of


def one_hop_graph(
    indptr: torch.Tensor, cumulative: torch.Tensor | None, types: torch.Tensor | None, indices: torch.Tensor = NOTHING
) -> KernelGraph:
    """Return the arrays of a graph as the kernels of one hop take them."""
    kinds, weights = None if types is None else as_types(types, types), NOTHING if cumulative is None else cumulative
    return KernelGraph(as_int64(indptr, indptr), indices.contiguous(), kinds, weights.contiguous(), NO_GUIDES)


def pick_one_hop(
    graph: KernelGraph,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, ...],
    drawing: Drawing,
    times: torch.Tensor | None = None,
    windows: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose in-edges of each seed.

    Args:
        graph: The graph.
        seeds: Node ids, int32 or int64.
        fanouts: One number, or one per edge type.
        keys: Of the hop: one, or two for LABOR.
        drawing: How edges are chosen.
        times: In time: int64, one per seed.
        windows: int64, one per seed; None takes all edges before the time.

    Returns:
        Where each column's edges begin, one longer than the seeds, and their positions in the graph, both int64.
    """
    program = run_one_hop(graph, seeds, fanouts, keys, drawing, times, windows)
    return take_picks(program, "columns")


def pick_runs(
    graph: KernelGraph, seeds: torch.Tensor, fanouts: torch.Tensor, key: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose in-edges of each seed with a fan-out per edge type.

    Returns:
        Where the edges of each run begin, which are those of one edge type of a seed, and where the last ones end; and
        their positions, both int64.
    """
    return take_picks(run_one_hop(graph, seeds, fanouts, (key,), Drawing()), "runs")


def run_one_hop(
    graph: KernelGraph,
    seeds: torch.Tensor,
    fanouts: torch.Tensor,
    keys: tuple[int, ...],
    drawing: Drawing,
    times: torch.Tensor | None = None,
    windows: torch.Tensor | None = None,
) -> HopProgram:
    """Run the program of a single hop and return it."""
    wanted = fanouts.tolist()
    program = PROGRAMS.take(recipe_of(graph, seeds.dtype, drawing, [wanted], windows is not None))
    pair = keys if drawing.method == "labor" else keys[0]
    program.arrays.bind(graph, [pair], drawing.switch_threshold, [wanted])
    nodes, *moments = seeds.contiguous(), *(NOTHING if part is None else part.contiguous() for part in (times, windows))
    program.arrays.open_one(nodes, graph.indptr.numel() - 1, *moments)
    program.run()
    return program


def take_picks(program: HopProgram, runs: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the picks of columns, or of runs, begin, and their positions; give the program back."""
    arrays = program.arrays
    own = (arrays.columns if runs == "columns" else arrays.scratch[runs]).arrays
    found = own["offsets"][: own["sizes"][state.COUNT] + 1].copy(), arrays.picks.arrays["positions"]
    PROGRAMS.give_back(program)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])
