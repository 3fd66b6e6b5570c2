"""Sample all hops of several mini-batches, whose graph lies in a mapped file."""

from collections.abc import Sequence

import torch

from graphfeed.ops.arguments import check_ids, check_vector
from graphfeed.ops.backend import package_for
from graphfeed.ops.rows.gather_by_page import Each, gather_each_by_page
from graphfeed.ops.sampling.guides import split_sums
from graphfeed.ops.sampling.hops.hop_graph import HopGraph, check_graph
from graphfeed.ops.sampling.hops.hop_recipe import Drawing
from graphfeed.ops.sampling.hops.one_hop import OneHop, Picks, StaticGraph, pick_edges
from graphfeed.ops.sampling.hops.sample_hops import UNIFORM, SampledHop, check_hops
from graphfeed.ops.structure.compact import compact


def sample_hops_together(
    graph: HopGraph,
    seeds: Sequence[torch.Tensor],
    fanouts: Sequence[int],
    keys: Sequence[Sequence[int]],
    drawing: Drawing = UNIFORM,
    each: Each = map,
) -> list[list[SampledHop]]:
    """Sample as `sample_hops` for each mini-batch, hop by hop for all of them; a page of a hop's sources is read once.

    It is for graphs that don't fit into memory. Mini-batches meet on the pages of the outer hops: with 16 of them and
    half a million edges each, on a graph of 400 million, nearly all pages are wanted, and read in sequence.

    Args:
        graph: A graph on the CPU, without types and times.
        seeds: Of each mini-batch, node ids of the dtype of `graph.indices`.
        fanouts: One number per hop, the seeds' own hop first.
        keys: Of each mini-batch, the key of each hop (`Key.at`).
        drawing: How edges are chosen: at random, perhaps by weight, or with replacement.
        each: Applies a function to each mini-batch, like `map`, perhaps in threads.

    Returns:
        Of each mini-batch a `SampledHop` per hop, the seeds' own first.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: A seed lies outside of the graph, a fan-out is below -1 or too large, the number of keys is wrong,
            the drawing is another one, or the arrays are not those of a graph.
    """
    check_graph(graph)
    if drawing.method != "uniform" or drawing.only_new or graph.types is not None or graph.timed is not None:
        raise ValueError("mini-batches are sampled together only without types, times, LABOR and only_new")
    if len(keys) != len(seeds):
        raise ValueError(f"keys must be those of each of {len(seeds)} mini-batches, as seeds are, but are {len(keys)}")
    for own, own_keys in zip(seeds, keys, strict=True):
        check_vector("seeds", own, (graph.indices.dtype,))
        check_ids("seeds", own, graph.indptr.numel() - 1)
        check_hops(fanouts, own_keys, drawing)
        package_for("sampling.sample_hops", own, indptr=graph.indptr, indices=graph.indices)
    indices = graph.indices.contiguous()
    columns = StaticGraph(graph.indptr, indices, split_sums(graph.cumulative)[0])
    dtype, num_nodes = graph.indptr_dtype or graph.indptr.dtype, graph.indptr.numel() - 1
    nodes, hops = list(seeds), [list[SampledHop]() for _ in seeds]
    for hop, fanout in enumerate(fanouts):

        def pick(own: torch.Tensor, key: int, fanout: int = fanout) -> Picks:
            return pick_edges(columns, OneHop(own, torch.tensor([fanout]), (key,), drawing, by_page=True))

        def relabel(own: torch.Tensor, picks: Picks, sources: torch.Tensor) -> SampledHop:
            rows, _, local = compact(own, sources, num_nodes=num_nodes)
            return SampledHop(own, rows, picks.offsets.to(dtype), local, picks.positions)

        picks = list(each(pick, nodes, [own_keys[hop] for own_keys in keys]))
        sources = gather_each_by_page(indices, [part.positions for part in picks], each)
        for known, found in zip(hops, each(relabel, nodes, picks, sources), strict=True):
            known.append(found)
        nodes = [known[-1].rows for known in hops]
    return hops
