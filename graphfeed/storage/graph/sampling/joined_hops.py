"""Joins the hops of a mini-batch, for graphs that sample hop by hop."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from graphfeed.ops.memory import buffers
from graphfeed.ops.sampling import JoinedHops
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.rows import number_seeds
from graphfeed.storage.graph.type_names import ends_of, to_type_dict


def join_hops(hops: Sequence[SampledSubgraph], *, disjoint: bool = False) -> JoinedHops:
    """Join hops, given with the outermost first. `disjoint`: whether each seed has its own tree."""
    cscs: list[Any] = [to_type_dict(hop.sampled_csc) for hop in reversed(hops)]
    ids: list[Any] = [
        {} if hop.original_edge_ids is None else to_type_dict(hop.original_edge_ids) for hop in hops[::-1]
    ]
    # The rows of each hop begin with those of the previous hop.
    seeds: dict[Any, torch.Tensor] = to_type_dict(hops[-1].original_column_node_ids)
    rows = [seeds, *(to_type_dict(hop.original_row_node_ids) for hop in reversed(hops))]
    sizes = {name: [0, *(len(own.get(name, ())) for own in rows)] for name in rows[-1]}
    edges = {name: join_edges([own[name] for own in cscs], [own.get(name) for own in ids]) for name in cscs[0]}
    joined = JoinedHops(
        rows[-1],
        {name: [after - before for before, after in pairwise(own)] for name, own in sizes.items()},
        {name: own[:2] for name, own in edges.items()},
        {name: own[2] if len(own) > 2 else None for name, own in edges.items()},
        {name: [len(own[name].indices) for own in cscs] for name in cscs[0]},
        None,
    )
    return joined._replace(trees=trees_of(joined, number_seeds(seeds))) if disjoint else joined


def trees_of(joined: JoinedHops, seeds: Mapping[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
    """Return the tree of each row, computed from the seeds outwards."""
    trees = {name: rows.new_empty(len(rows), dtype=torch.int64) for name, rows in joined.rows.items()}
    for name, own in seeds.items():
        trees[name][: len(own)] = own
    parts = {name: torch.split(ends, joined.num_edges[name], 1) for name, ends in joined.edges.items()}
    for hop in range(max(map(len, joined.num_edges.values()), default=0)):
        # An edge belongs to the tree of its column, even if its row already existed.
        for name, (row, column) in {name: own[hop] for name, own in parts.items()}.items():
            source, destination = ends_of(name)
            trees[source][row] = trees[destination][column]
    return trees


def join_edges(cscs: Sequence[CSCFormatBase], ids: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return the source rows, the destination rows and, if they are known, the ids of one type's edges, hop by hop."""
    counts, known = [len(csc.indices) for csc in cscs], [part for part in ids if part is not None]
    lines = 3 if len(known) == len(cscs) else 2
    out = buffers.empty((lines, sum(counts)), torch.int64, cscs[0].indices.device)
    write_joined([csc.indices for csc in cscs], out[0])
    for csc, part in zip(cscs, torch.split(out[1], counts), strict=True):
        expand_indptr(csc.indptr, dtype=torch.int64, output_size=len(part), out=part)
    if lines == 3:
        write_joined(known, out[2])
    return out


def write_joined(parts: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Concatenate tensors into `out`."""
    if not out.is_cpu:
        torch.cat([part.to(out.dtype) for part in parts], out=out)
        return
    # NumPy copies in this thread; torch.cat wakes a thread pool, which is several times as slow when cores are busy.
    whole, position = out.numpy(), 0
    for part in parts:
        whole[position : position + len(part)] = part.numpy()
        position += len(part)
