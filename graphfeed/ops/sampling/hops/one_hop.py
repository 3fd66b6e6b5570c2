"""One hop on the CPU, by the passes that all hops are made of."""

import torch

from graphfeed.ops.backend import as_int64, as_types
from graphfeed.ops.cpu.sampling.passes import state
from graphfeed.ops.sampling.hops.hop_program import PROGRAMS
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
    moments: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose in-edges of each seed.

    Args:
        graph: The graph.
        seeds: Node ids, int32 or int64.
        fanouts: One number, or one per edge type.
        keys: Of the hop: one, or two for LABOR.
        drawing: How edges are chosen.
        moments: In time: int64, of each seed its time and its window; without windows, all edges before the time.

    Returns:
        Where each column's edges begin, one longer than the seeds, and their positions in the graph, both int64.
    """
    wanted = fanouts.tolist()
    program = PROGRAMS.take(recipe_of(graph, seeds.dtype, drawing, [wanted], moments[1] is not None))
    arrays = program.arrays
    pair = keys if drawing.method == "labor" else keys[0]
    arrays.bind(graph, [pair], drawing.switch_threshold, [wanted])
    nodes, *own = seeds.contiguous(), *(NOTHING if part is None else part.contiguous() for part in moments)
    arrays.open_one(nodes, graph.indptr.numel() - 1, *own)
    program.run()
    found = arrays.columns.arrays
    offsets, positions = found["offsets"][: found["sizes"][state.COUNT] + 1].copy(), arrays.picks.arrays["positions"]
    PROGRAMS.give_back(program)
    return torch.from_numpy(offsets), torch.from_numpy(positions)
