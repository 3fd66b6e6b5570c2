"""The rows of a mini-batch that is sampled hop by hop: the frontier of each hop, and the rows that it adds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

from graphfeed.ops import fold
from graphfeed.ops.arguments import as_tensor
from graphfeed.ops.sampling import ALWAYS, as_times
from graphfeed.ops.structure import expand_indptr
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph
from graphfeed.storage.graph.sampling.compaction import (
    append_edges,
    columns_by_type,
    compact_csc_format,
    compact_hop,
    merge_sources,
    per_edge,
)
from graphfeed.storage.graph.sampling.temporal_sampling import query_of
from graphfeed.storage.graph.sampling_request import Draws, Hop, SamplingRequest, Seeds
from graphfeed.storage.graph.type_names import (
    EdgeType,
    NodeType,
    ends_of,
    from_type_dict,
    match_types,
    to_type_dict,
    with_all_types,
)

Tensors: TypeAlias = dict[NodeType, torch.Tensor]
Picked: TypeAlias = tuple[SampledSubgraph, ByType | None]
"""A hop with the ids of the graph, and the time of each edge if the next hop needs it."""


class MiniBatchRows:
    """The rows of a mini-batch: its seeds, and the rows added by each hop.

    There is one row per node (`deduplicate`), per node and tree (`disjoint`), or else per edge, as always in temporal
    sampling without trees. A hop samples all rows, or only those added by the previous hop (`only_new`).
    """

    def __init__(
        self,
        num_nodes: int | Mapping[str, int],
        seeds: Seeds,
        request: SamplingRequest,
        draws: Sequence[Draws],
    ) -> None:
        """Start with the seeds. `draws` begins with the seeds' own hop."""
        self.num_nodes, self.request, self.draws = num_nodes, request, draws
        self.ids, self.times, self.windows = match_types("seeds", seeds.ids, num_nodes), seeds.times, seeds.windows
        if self.times is not None:
            query_of(request)  # raises an error if times are given without a temporal query
        self.trees: Tensors = {}
        """The tree of each row: the number of its seed."""
        if request.disjoint:
            self.trees = number_seeds({**with_all_types(self.ids, to_type_dict(num_nodes)), **self.ids})
        self.known: dict[NodeType, int] = {}
        """Number of rows that hops have sampled, by node type; empty before the first hop."""

    def hop(self, number: int) -> tuple[ByType, Hop]:
        """Return the frontier of the hop of the given number, and its parameters. Hops must be sampled in order."""
        times, windows = self.times, self.windows
        trees = from_type_dict(self._new(self.trees)) if self.trees else None
        # All rows of a tree have the time and the window of its seed.
        if trees is not None and self.known and times is not None:
            times = take_by_type(times, trees)
            windows = None if windows is None else take_by_type(windows, trees)
        # LABOR draws by neighbours, independently of trees.
        own_trees = trees if self.request.strategy == "uniform" else None
        hop = Hop(self.request, self.draws[number], number, times, own_trees, windows)
        return from_type_dict(self._new(self.ids)), hop

    def add_sampled(self, picked: Picked) -> SampledSubgraph:
        """Add rows for the sampled sources of a hop; return the hop with its row ids."""
        hop, edge_times = picked
        if self.request.only_new:
            return self._merge_new(hop)
        if self.request.temporal is not None:
            return self._append(hop, edge_times)
        made = compact_hop(hop, deduplicate=self.request.deduplicate, num_nodes=self.num_nodes)
        self.ids = to_type_dict(made.original_row_node_ids)
        return made

    def _new(self, values: Tensors) -> Tensors:
        return {name: part[self.known[name] :] for name, part in values.items()} if self.known else values

    def _append(self, hop: SampledSubgraph, edge_times: ByType | None) -> SampledSubgraph:
        """Add a row for each temporal edge, with the time and the window of its column, or with the edge's time."""
        columns = hop.original_column_node_ids
        sampled = hop.sampled_csc
        before: Any = self.times
        rows, csc, self.times = compact_csc_format(sampled, columns, before)
        if edge_times is not None:
            times = {name: as_times("seeds_timestamp", own) for name, own in to_type_dict(before).items()}
            given, order = to_type_dict(edge_times), to_type_dict(sampled)
            own_times = append_edges(
                with_all_types(times, to_type_dict(columns)), {name: given[name] for name in order}
            )
            # An edge that always exists gets the time of its column.
            of_columns = to_type_dict(self.times)
            self.times = from_type_dict(
                {name: torch.where(own == ALWAYS, of_columns[name], own) for name, own in own_times.items()}
            )
        windows: Any = self.windows
        if windows is not None:
            self.windows = compact_csc_format(sampled, columns, windows)[2]
        self.ids = to_type_dict(rows)
        return SampledSubgraph(csc, columns, rows, hop.original_edge_ids)

    def _merge_new(self, hop: SampledSubgraph) -> SampledSubgraph:
        """Merge the nodes of a hop that sampled only the new rows."""
        sampled = hop.sampled_csc
        columns = hop.original_column_node_ids
        cscs, own = columns_by_type(sampled, columns)
        sizes: dict[NodeType, int] = to_type_dict(self.num_nodes)
        if not self.known:
            # The graph has converted the seeds to the dtype of its ids.
            self.ids = {**with_all_types(own, sizes), **own}
            self.known = dict.fromkeys(self.ids, 0)
            # The times of the seeds are joined in the order of the trees.
            if self.request.disjoint and self.times is not None:
                self.times = join_by_type(list(sizes), self.times)
            if self.request.disjoint and self.windows is not None:
                self.windows = join_by_type(list(sizes), self.windows)
        before = self.ids
        if self.request.disjoint:
            self.ids, self.trees, local = merge_in_trees(cscs, self._new(self.trees), before, self.trees, sizes)
        else:
            self.ids, local = merge_sources(cscs, before, sizes)
        # The columns are all rows of the previous hop, as always; columns that were sampled earlier have no edges.
        padded = {name: pad(csc, self.known[ends_of(name)[1]]) for name, csc in local.items()}
        self.known = {node_type: len(ids) for node_type, ids in before.items()}
        csc, column_ids, row_ids = map(from_type_dict, (padded, before, self.ids))
        return SampledSubgraph(csc, column_ids, row_ids, hop.original_edge_ids)


def pick_in_trees(pick: Callable[[ByType, Hop], Picked], nodes: ByType, hop: Hop) -> Picked:
    """Pick the edges of a hop, separately for each tree, with the key of the tree, if there are trees."""
    if hop.trees is None:
        return pick(nodes, hop)
    trees = to_type_dict(hop.trees)
    found, places = list[Picked](), list[Tensors]()
    for tree in sorted({number for own in trees.values() for number in own.tolist()}):
        places.append({name: (own == tree).nonzero().squeeze(1) for name, own in trees.items()})
        key = fold(int(hop.draws[0][0]), tree)
        take = partial(part_of, places[-1])
        own_hop = hop._replace(draws=((key, key), 0), times=take(hop.times), windows=take(hop.windows), trees=None)
        found.append(pick(take(nodes), own_hop))
    if not found:
        return pick(nodes, hop._replace(trees=None))
    # Position of each column in the concatenated columns of all trees.
    order = {name: torch.cat([own[name] for own in places]).argsort() for name in trees}
    cscs, positions = {}, {}
    for name in to_type_dict(found[0][0].sampled_csc):
        parts: list[CSCFormatBase] = [to_type_dict(hop_of_tree.sampled_csc)[name] for hop_of_tree, _ in found]
        degrees = torch.cat([part.indptr.diff() for part in parts])
        columns = order[ends_of(name)[1]]
        starts, counts = (degrees.cumsum(0) - degrees)[columns], degrees[columns]
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        edges = torch.cat([part.indices for part in parts])
        shifts = expand_indptr(indptr, node_ids=starts - indptr[:-1], output_size=len(edges))
        positions[name] = shifts + torch.arange(len(edges), device=edges.device)
        cscs[name] = CSCFormatBase(indptr.to(parts[0].indptr.dtype), edges[positions[name]])
    ids_of_edges = join_parts([hop_of_tree.original_edge_ids for hop_of_tree, _ in found], positions)
    merged = SampledSubgraph(from_type_dict(cscs), nodes, None, ids_of_edges)
    return merged, join_parts([times for _, times in found], positions)


def part_of(places: Tensors, values: Any) -> Any:
    """Return values per node at the given places; None if there are none."""
    if values is None:
        return None
    return from_type_dict({name: own[places[name]] for name, own in to_type_dict(values).items()})


def join_parts(parts: Sequence[Any], positions: Tensors) -> Any:
    """Concatenate values per edge of all trees and reorder them; None if the trees have none."""
    if parts[0] is None:
        return None
    by_type = [to_type_dict(own) for own in parts]
    return from_type_dict({name: torch.cat([own[name] for own in by_type])[at] for name, at in positions.items()})


def join_by_type(node_types: Sequence[NodeType], values: ByType) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values
    # In the order of types that `number_seeds` uses.
    complete = with_all_types(values, node_types)
    return torch.cat([as_tensor(f"times of {node_type!r}", part) for node_type, part in complete.items()])


def take_by_type(values: Any, positions: ByType) -> ByType:
    if isinstance(positions, torch.Tensor):
        return values[positions]  # type: ignore[no-any-return]
    return {node_type: values[part] for node_type, part in positions.items()}


def number_seeds(seeds: Tensors) -> Tensors:
    """Number the seeds consecutively, type by type."""
    counts = [len(ids) for ids in seeds.values()]
    device = next((ids.device for ids in seeds.values()), None)
    return dict(zip(seeds, torch.split(torch.arange(sum(counts), device=device), counts), strict=True))


def pad(csc: CSCFormatBase, count: int) -> CSCFormatBase:
    if count == 0:
        return csc
    # Columns that were sampled earlier come first.
    return CSCFormatBase(torch.cat([csc.indptr.new_zeros(count), csc.indptr]), csc.indices)


def merge_in_trees(
    cscs: Mapping[EdgeType, CSCFormatBase],
    own_trees: Tensors,
    rows: Tensors,
    trees: Tensors,
    sizes: Mapping[NodeType, int],
) -> tuple[Tensors, Tensors, dict[EdgeType, CSCFormatBase]]:
    """Like `merge_sources`, but merge nodes only inside a tree; return rows, their trees, and relabelled edges."""
    # A single id for each pair of tree and node.
    wide = {node_type: trees[node_type] * max(sizes[node_type], 1) + ids.long() for node_type, ids in rows.items()}
    edges = {}
    # An edge belongs to the tree of its column.
    for name, tree in per_edge(cscs, own_trees).items():
        indptr, indices = cscs[name].indptr, cscs[name].indices
        edges[name] = CSCFormatBase(indptr, tree * max(sizes[ends_of(name)[0]], 1) + indices.long())
    merged, local = merge_sources(edges, wide)
    after, after_trees = {}, {}
    for node_type, ids in rows.items():
        # Existing rows stay; new ids are split into node and tree again.
        new, size = merged[node_type][len(ids) :], max(sizes[node_type], 1)
        after[node_type] = torch.cat([ids, (new % size).to(ids.dtype)])
        after_trees[node_type] = torch.cat([trees[node_type], new // size])
    # Convert positions back to the dtype of the graph's ids.
    dtypes = {name: csc.indices.dtype for name, csc in cscs.items()}
    positions = {name: CSCFormatBase(csc.indptr, csc.indices.to(dtypes[name])) for name, csc in local.items()}
    return after, after_trees, positions
