"""Seeds that are edges: what is sampled around their ends, and the edges that would tell of them."""

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, Transform
from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.data_graph import as_time_column
from graphfeed.pyg.data.minibatch_data import pick
from graphfeed.pyg.data.store_data import EdgeType, end_types
from graphfeed.pyg.data.tables import tables_of
from graphfeed.pyg.stages.sampler_output import (
    SampledMiniBatch,
    ToSamplerOutput,
    edge_index_of,
    only_type,
    to_bidirectional,
)
from graphfeed.storage import Feature, TorchBasedFeature
from graphfeed.storage.graph import etype_str_to_tuple


class LinkSeeds(Transform):
    """Turns edges, with the negatives behind them, into the nodes that they join.

    The nodes are taken once each and sorted, as in PyG. Where each seed has nodes of its own, they stay as they are:
    all sources, then all destinations; a positive and its negatives have one tree. `indexes` say to which positive each
    pair belongs; without them, all pairs are positives.

    Raises:
        ValueError: When it runs: seeds that are not pairs, or of several types.
    """

    disjoint: bool = False
    """Whether each seed has nodes of its own."""
    triplets: bool = False
    """Whether the data hold a source, a destination and negatives, rather than pairs and labels."""

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        given: Any = minibatch.seeds
        if isinstance(given, dict) and len(given) != 1:
            raise ValueError(f"seeds must be edges of one type, but are of {list(given)}")
        edge_type = etype_str_to_tuple(next(iter(given))) if isinstance(given, dict) else None
        fields = (given, minibatch.indexes, minibatch.labels, minibatch.timestamp, minibatch.pre_time_window)
        pairs, indexes, labels, times, windows = map(only_type, fields)
        if pairs is None or pairs.dim() != 2 or pairs.shape[1] != 2:
            raise ValueError("seeds must be edges, shape (N, 2); name the pairs 'seeds' in the item set")
        # Which positive each pair belongs to; where there are no negatives, each is one.
        positives = torch.arange(len(pairs), device="cpu") if indexes is None else indexes
        count = int(positives.max()) + 1 if len(positives) else 0
        # The sources of negatives are those of their positives in a triplet.
        ids = [pairs[: count if self.triplets else len(pairs), 0], pairs[:, 1]]
        of_ends = [positives[: len(part)] for part in ids]
        ends = None if edge_type is None else (edge_type[0], edge_type[2])
        seeds, local = merge_ends(ends, ids, disjoint=self.disjoint)
        metadata: tuple[Any, ...]
        if self.triplets:
            # A row for each positive; where it has one negative, no second dimension, as in PyG.
            negatives = local[1][count:].view(-1, count).t().squeeze(1)
            metadata = (local[0], local[1][:count], negatives, times)
        else:
            metadata = (torch.stack(local), labels, None if times is None else times[positives])
        metadata = (only_type(getattr(minibatch, "input_id", None)), *metadata)
        return SampledMiniBatch(
            seeds=seeds,
            timestamp=None if times is None else by_end(ends, [times[part] for part in of_ends]),
            pre_time_window=None if windows is None else by_end(ends, [windows[part] for part in of_ends]),
            trees=by_end(ends, of_ends) if self.disjoint else None,
            of_seeds=link_fields(metadata, edge_type, triplets=self.triplets),
            metadata=metadata,
            key=minibatch.key,
        )


def link_fields(metadata: tuple[Any, ...], edge_type: EdgeType | None, *, triplets: bool) -> dict[Any, dict[str, Any]]:
    """Return what the data hold of seeds that are edges, by type; None stands for what they must not hold."""
    # What a sampler of PyG's says of such seeds, in PyG's order.
    ids, *rest = metadata
    if not triplets:
        names = ("edge_label_index", "edge_label", "edge_label_time")
        return {edge_type: {"input_id": ids, **dict(zip(names, rest, strict=True))}}
    source, positive, negative, times = rest
    # The data's own edge_label_index and edge_label_time would speak of other edges than these.
    fields: dict[Any, dict[str, Any]] = {
        edge_type: {"input_id": ids, "edge_label_index": None, "edge_label_time": None}
    }
    ends = end_types(edge_type)
    fields.setdefault(ends[0], {}).update(src_index=source, seed_time=times)
    fields.setdefault(ends[1], {}).update(dst_pos_index=positive, dst_neg_index=negative, seed_time=times)
    return fields


def by_end(ends: tuple[str, str] | None, values: list[torch.Tensor]) -> Any:
    """Return values of sources and of destinations by node type, the sources' first; without types, all of them."""
    if ends is None:
        return torch.cat(values)
    return {ends[0]: torch.cat(values)} if ends[0] == ends[1] else dict(zip(ends, values, strict=True))


def merge_ends(
    ends: tuple[str, str] | None, ids: list[torch.Tensor], *, disjoint: bool
) -> tuple[Any, list[torch.Tensor]]:
    """Return the nodes to sample around, by type if there are types, and both ends as positions in them."""
    counts, same = [len(part) for part in ids], ends is None or ends[0] == ends[1]
    if disjoint:
        # Where both ends are of one type, the destinations come behind the sources.
        first = counts[0] if same else 0
        return by_end(ends, ids), [
            torch.arange(counts[0], device="cpu"),
            torch.arange(first, first + counts[1], device="cpu"),
        ]
    if same:
        nodes, positions = torch.unique(torch.cat(ids), return_inverse=True)
        return nodes if ends is None else {ends[0]: nodes}, list(positions.split(counts))
    merged = [torch.unique(part, return_inverse=True) for part in ids]
    return by_end(ends, [nodes for nodes, _ in merged]), [positions for _, positions in merged]


class Excluded(NamedTuple):
    """Edges of one type that are removed."""

    edge_type: EdgeType | None
    """The edge type; None if there are no types."""
    flipped: bool = False
    """Whether they lead from the second end of a seed to the first."""
    times: Feature | None = None
    """The time of each edge, if edges have times."""


class ExcludeSeedLinks(Transform):
    """Removes sampled edges that join the two ends of a seed, so that a model can't read what it is to predict.

    Parallel edges are removed too, and so is a negative that happens to be an edge. Where each seed has nodes of its
    own, an edge is removed in the tree of its own seed alone. Where edges have times, those before the time of the seed
    stay: they are known by then. The nodes stay, and `num_sampled_edges` counts the edges that are left.
    """

    edge_type: EdgeType | None
    """The type of the seeds; None if there are no types."""
    excluded: tuple[Excluded, ...]
    bidirectional: bool = False
    """Whether the reverse of each edge that is left is added, and those among them that join the ends are removed."""

    same_size = True

    def __call__(self, minibatch: SampledMiniBatch) -> SampledMiniBatch:
        result = copy.copy(minibatch)
        result.output = self.removed(minibatch.output)
        if self.bidirectional:
            result.output = self.removed(to_bidirectional(result.output))
        return result

    def removed(self, output: Any) -> Any:
        """Return a sampler's output without those edges."""
        seeds = Pairs.of(output, self.edge_type)
        for excluded in self.excluded:
            output = exclude(output, seeds, excluded)
        return output


def read_exclusion(given: Any, data: Any, edge_type: EdgeType | None, time_name: str | None) -> tuple[Excluded, ...]:
    """Return which edges are removed if PyG's `exclude_seed_edges` is False, True, 'reverse', or the reverse type."""
    tables = tables_of(data)
    if given is None or given is False:
        return ()
    # Edges to predict may be of a type that the data have none of.
    wanted = [Excluded(edge_type)] if edge_type in tables.edges else []
    if isinstance(given, str) and given == "reverse" and (edge_type is None or edge_type[0] == edge_type[2]):
        wanted += [own._replace(flipped=True) for own in wanted]
    elif edge_type is not None and isinstance(given, (tuple, list)):
        reverse = tables.edge_type(given)
        if reverse is None or (reverse[0], reverse[2]) != (edge_type[2], edge_type[0]):
            raise ValueError(
                f"exclude_seed_edges is {brief(given)}, which is no edge type from {edge_type[2]!r} to "
                f"{edge_type[0]!r}; data has {list(tables.edges)}"
            )
        wanted.append(Excluded(reverse, flipped=True))
    elif given is not True:
        hint = "" if edge_type is None else f" or, as the seeds are {edge_type}, the type of their reverse edges"
        raise ValueError(f"exclude_seed_edges must be True, 'reverse' or False,{hint} but is {brief(given)}")
    if time_name is None:
        return tuple(wanted)
    for position, excluded in enumerate(wanted):
        table = tables.edges[excluded.edge_type]
        if time_name in table:
            times = TorchBasedFeature(as_time_column(time_name, table[time_name])[:, None])
            wanted[position] = excluded._replace(times=times)
    return tuple(wanted)


def exclude_after(pipe: Datapipe, edge_type: EdgeType | None, excluded: tuple[Excluded, ...]) -> Datapipe:
    """Return a pipeline of a sampler's outputs with a stage behind it that removes edges."""
    # In a bidirectional subgraph, the reverse of a removed edge would tell of it, so edges are removed before that.
    both = isinstance(pipe, ToSamplerOutput) and pipe.subgraph_type == "bidirectional"
    return ExcludeSeedLinks(pipe.changed(subgraph_type="directional") if both else pipe, edge_type, excluded, both)


class Pairs(NamedTuple):
    """The seeds of a mini-batch, negatives too."""

    ids: torch.Tensor
    """The ids of their two ends, shape (2, N)."""
    trees: torch.Tensor | None
    """The tree of each, if each seed has nodes of its own."""
    times: torch.Tensor | None

    @classmethod
    def of(cls, output: Any, edge_type: EdgeType | None) -> "Pairs":
        """Return what a sampler's output says of seeds that are edges."""
        if len(output.metadata) == 4:
            # Pairs, the negatives behind the positives.
            _, (sources, destinations), _, times = output.metadata
        else:
            _, source, positive, negative, times = output.metadata
            # Triplets: each source with its positive, and then with each of its negatives.
            blocks = [positive, *negative.reshape(len(source), -1).T]
            destinations, sources = torch.cat(blocks), source.repeat(len(blocks))
            times = None if times is None else times.repeat(len(blocks))
        ends = end_types(edge_type)
        nodes, batch = [pick(output.node, end) for end in ends], pick(output.batch, ends[0])
        return cls(
            torch.stack([nodes[0][sources], nodes[1][destinations]]), None if batch is None else batch[sources], times
        )


def exclude(output: Any, seeds: Pairs, excluded: Excluded) -> Any:
    """Return a sampler's output without the edges of one type that join the two ends of a seed."""
    edge_type = excluded.edge_type
    of_edges = (output.row, output.col, output.edge, output.num_sampled_edges)
    row, col, edge, counts = (pick(values, edge_type) for values in of_edges)
    if row is None or len(row) == 0 or seeds.ids.shape[1] == 0:
        return output
    ends = end_types(edge_type)
    nodes = [pick(output.node, end) for end in ends]
    joined = torch.stack([nodes[0][row], nodes[1][col]])
    trees = None if seeds.trees is None else pick(output.batch, ends[0])[row]
    edge_times = None
    if excluded.times is not None and edge is not None:
        edge_times = excluded.times.read(edge).squeeze(1)
    gone = find(joined, trees, edge_times, seeds._replace(ids=seeds.ids.flip(0) if excluded.flipped else seeds.ids))
    kept = torch.ones(len(row), dtype=torch.bool, device="cpu")
    kept[gone] = False
    index = edge_index_of(row, col)[:, kept]
    own = {"row": index[0], "col": index[1], "edge": None if edge is None else edge[kept]}
    if counts is not None:
        own["num_sampled_edges"] = [int(part.sum()) for part in torch.split(kept, list(counts))]
    fields = {name: value for name, value in own.items() if getattr(output, name) is not None}
    if edge_type is not None:
        fields = {name: {**getattr(output, name), edge_type: value} for name, value in fields.items()}
    return replace(output, **fields)


def find(edges: torch.Tensor, trees: torch.Tensor | None, times: torch.Tensor | None, seeds: Pairs) -> torch.Tensor:
    """Return the positions of the edges that join the two ends of a seed, in its tree and not before its time."""
    # The ends of edges have shape (2, E); those of seeds, (2, N), are in the direction of the edges. Each pair of nodes
    # as one number, so that a search in sorted numbers finds the edges that are pairs.
    size = 1 + max(int(edges[1].max()), int(seeds.ids[1].max()))
    wanted, of_seeds = torch.unique(seeds.ids[0] * size + seeds.ids[1], return_inverse=True)
    names = edges[0] * size + edges[1]
    pairs = torch.searchsorted(wanted, names).clamp(max=len(wanted) - 1)
    found: torch.Tensor = (wanted[pairs] == names).nonzero().squeeze(1)
    if trees is None or seeds.trees is None:
        return found
    # The same for a tree and a pair: where trees are disjoint, a seed removes edges of its own tree alone.
    in_trees = trees[found] * len(wanted) + pairs[found]
    found = found[torch.isin(in_trees, seeds.trees * len(wanted) + of_seeds)]
    if times is None or seeds.times is None:
        return found
    of_trees = seeds.times.new_zeros(int(seeds.trees.max()) + 1)
    of_trees[seeds.trees] = seeds.times  # all pairs of a tree have the time of its positive
    # An earlier edge between the same nodes was known at the time of the seed, so it stays.
    is_known = times[found] < of_trees[trees[found]]
    return found[~is_known]
