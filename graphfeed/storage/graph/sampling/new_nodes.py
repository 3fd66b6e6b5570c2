"""Hops that sample only what the hop before found: each node once, or once in the tree of each seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch

from graphfeed.ops.structure import expand_indptr
from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.compaction import by_type, merge_sources
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.type_names import EdgeType, NodeType, ends_of, from_type_dict, to_type_dict, with_all_types

Draw = TypeVar("Draw")
Tensors: TypeAlias = dict[NodeType, torch.Tensor]
SampleNew: TypeAlias = Callable[[ByType, ByType | None, torch.Tensor, Draw], SampledSubgraph]
"""Samples one hop with the ids of the graph around some nodes, in some trees, by a fan-out and the hop's draw."""


def sample_new_hop_by_hop(
    num_nodes: int | Mapping[str, int],
    seeds: ByType,
    request: SamplingRequest,
    draws: Sequence[Draw],
    sample: SampleNew[Draw],
) -> list[SampledSubgraph]:
    """Sample hop after hop, each from the rows that the one before added; return the outermost first."""
    # Seeds, and sizes, are by node type if the graph has types; draws begin with the seeds' own hop. With `disjoint`,
    # each seed has nodes of its own.
    sizes: dict[NodeType, int] = to_type_dict(num_nodes)
    given: Tensors = to_type_dict(seeds)
    rows: Tensors = {**with_all_types(given, sizes), **given}
    trees = number_seeds(rows) if request.disjoint else None
    # How many rows were sampled already.
    known = dict.fromkeys(sizes, 0)
    hops: list[SampledSubgraph] = []
    for fanout, draw in zip(reversed(request.fanouts), draws, strict=True):
        new = {node_type: ids[known[node_type] :] for node_type, ids in rows.items()}
        new_trees = trees and {node_type: part[known[node_type] :] for node_type, part in trees.items()}
        hop = sample(from_type_dict(new), None if new_trees is None else from_type_dict(new_trees), fanout, draw)
        sampled: Any = hop.sampled_csc
        columns: Any = hop.original_column_node_ids
        cscs, columns_by_type = by_type(sampled, columns)
        if not hops:  # the graph has brought the seeds to the dtype of its ids
            rows |= {node_type: columns_by_type[node_type] for node_type in rows.keys() & columns_by_type}
        if trees is None or new_trees is None:
            after, local = merge_sources(cscs, rows, sizes)
        else:
            after, trees, local = merge_in_trees(cscs, new_trees, rows, trees, sizes)
        # The columns of a hop are all rows of the hop before, as always; those that were sampled earlier have no edges.
        padded = {name: pad(csc, known[ends_of(name)[1]]) for name, csc in local.items()}
        before, rows = rows, after
        csc, columns, row_ids = map(from_type_dict, (padded, before, rows))
        hops.append(SampledSubgraph(csc, columns, row_ids, hop.original_edge_ids))
        known = {node_type: len(ids) for node_type, ids in before.items()}
    return hops[::-1]


def number_seeds(seeds: Tensors) -> Tensors:
    """Return the number of each seed, which run through the types."""
    counts = [len(ids) for ids in seeds.values()]
    device = next((ids.device for ids in seeds.values()), None)
    return dict(zip(seeds, torch.split(torch.arange(sum(counts), device=device), counts), strict=True))


def pad(csc: CSCFormatBase, count: int) -> CSCFormatBase:
    if count == 0:
        return csc
    # Columns without edges come first, so that the others keep their places.
    return CSCFormatBase(torch.cat([csc.indptr.new_zeros(count), csc.indptr]), csc.indices)


def merge_in_trees(
    cscs: Mapping[EdgeType, CSCFormatBase],
    own_trees: Tensors,
    rows: Tensors,
    trees: Tensors,
    sizes: Mapping[NodeType, int],
) -> tuple[Tensors, Tensors, dict[EdgeType, CSCFormatBase]]:
    """Return what `merge_sources` does, with nodes merged inside of each tree alone, and the tree of each row."""
    # A node in a tree is one number, by which nodes of different trees differ.
    wide = {node_type: trees[node_type] * max(sizes[node_type], 1) + ids.long() for node_type, ids in rows.items()}
    edges = {}
    for name, csc in cscs.items():
        # An edge is in the tree of its column.
        source, destination = ends_of(name)
        of_edges = expand_indptr(csc.indptr, node_ids=own_trees[destination], output_size=len(csc.indices))
        edges[name] = CSCFormatBase(csc.indptr, of_edges * max(sizes[source], 1) + csc.indices.long())
    merged, local = merge_sources(edges, wide)
    after, after_trees = {}, {}
    for node_type, ids in rows.items():
        # Rows that were there stay; of the new numbers, the node and the tree are taken apart again.
        new, size = merged[node_type][len(ids) :], max(sizes[node_type], 1)
        after[node_type] = torch.cat([ids, (new % size).to(ids.dtype)])
        after_trees[node_type] = torch.cat([trees[node_type], new // size])
    # Positions get the dtype of the graph's ids back.
    dtypes = {name: csc.indices.dtype for name, csc in cscs.items()}
    positions = {name: CSCFormatBase(csc.indptr, csc.indices.to(dtypes[name])) for name, csc in local.items()}
    return after, after_trees, positions


def trees_of_rows(hops: Sequence[SampledSubgraph], of_seeds: ByType | None = None) -> ByType:
    """Return the seed that each row of the outermost hop belongs to, for hops that are disjoint.

    Args:
        hops: One subgraph per hop, the outermost first; at least one.
        of_seeds: The tree of each seed, of int64; by default their numbers, which run through the node types.

    Example:
        >>> csc = CSCFormatBase(torch.tensor([0, 1, 2]), torch.tensor([2, 3]))
        >>> trees_of_rows([SampledSubgraph(csc, torch.tensor([5, 6]), torch.tensor([5, 6, 7, 7]))])
        tensor([0, 1, 0, 1])
    """
    seeds: Any = hops[-1].original_column_node_ids
    if of_seeds is None:
        trees = number_seeds(to_type_dict(seeds))
    else:
        trees = with_all_types(to_type_dict(of_seeds), to_type_dict(seeds))
    # From the seeds outwards, each hop's rows get the trees of the columns that they were found from.
    for hop in reversed(hops):
        sampled: Any = hop.sampled_csc
        columns: Any = hop.original_column_node_ids
        ids: Any = hop.original_row_node_ids
        after = {}
        for node_type, rows in to_type_dict(ids).items():
            own = trees[node_type]
            after[node_type] = torch.cat([own, own.new_empty(len(rows) - len(own))])
        for name, csc in by_type(sampled, columns)[0].items():
            source, destination = ends_of(name)
            edges = expand_indptr(csc.indptr, node_ids=trees[destination], output_size=len(csc.indices))
            # An edge to a row that was there before has the tree of that row, so this writes what is there.
            after[source][csc.indices.long()] = edges
        trees = after
    return from_type_dict(trees)  # type: ignore[no-any-return]
