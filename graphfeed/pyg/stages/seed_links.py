"""Seeds that are edges: sampling around their endpoints, and removal of the edges that would leak them."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, Transform
from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.fill_batch import pick_columns
from graphfeed.pyg.data.graph_of_data import as_time_column
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
from graphfeed.storage.graph import by_type_name, etype_str_to_tuple, from_type_dict, to_type_dict, type_name


class LinkSeeds(Transform, seeded=False):
    """Turns seed edges, followed by their negatives, into their endpoints, the seed nodes.

    The nodes are unique and sorted, as in PyG. With `disjoint`, duplicates and the order are kept: all sources, then
    all destinations, one edge type after another; a positive and its negatives share a tree. `indexes` has the positive
    that each pair belongs to; without it, all pairs are positives.

    Raises:
        ValueError: When it runs: seeds are not pairs.
    """

    disjoint: bool = False
    """Whether each seed has its own tree."""
    triplets: int = 0
    """Number of negatives per triplet; with 0, the data get pairs and labels instead of a source, a destination and
    negatives."""
    edge_types: tuple[EdgeType | None, ...] = ()
    """Edge types of the seeds, of which a mini-batch may lack some; by default, those of each mini-batch."""

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        given = minibatch.seeds
        types = self.edge_types or (tuple(map(etype_str_to_tuple, given)) if isinstance(given, dict) else (None,))
        ends: list[str | None] = []
        ids: list[torch.Tensor] = []
        links: dict[EdgeType | None, LinksOfType] = {}
        for edge_type in types:
            links[edge_type] = link = LinksOfType.of(minibatch, edge_type, triplets=self.triplets > 0)
            ends += end_types(edge_type)
            ids += link.ends
        seeds, positions = merge_ends(ends, ids, disjoint=self.disjoint)
        metadata, of_seeds = {}, {}
        for edge_type, *local in zip(links, positions[::2], positions[1::2], strict=True):
            metadata[edge_type] = links[edge_type].metadata(local, self.triplets)
            fields = link_fields(metadata[edge_type], edge_type, triplets=self.triplets > 0, alone=len(types) == 1)
            of_seeds.update(fields)

        def spread(name: str) -> Any:
            """Repeat the value of each seed for its endpoints."""
            found = {edge_type: getattr(link, name) for edge_type, link in links.items()}
            if any(values is None for values in found.values()):
                return None
            of_ends = [
                values[links[own].positives[: len(part)]] for own, values in found.items() for part in links[own].ends
            ]
            return by_end(ends, of_ends)

        return SampledMiniBatch(
            seeds=seeds,
            timestamp=spread("times"),
            pre_time_window=spread("windows"),
            trees=by_end(ends, trees_of(links.values())) if self.disjoint else None,
            of_seeds=of_seeds,
            metadata=only_type(metadata),
            key=minibatch.key,
        )


class LinksOfType(NamedTuple):
    """The seeds of one edge type, including negatives."""

    ends: list[torch.Tensor]
    """Sources and destinations. In triplets, the sources of negatives are left out."""
    positives: torch.Tensor
    """Position of the positive that each pair belongs to; without negatives, each pair is a positive."""
    num_positives: int
    """Number of positives."""
    ids: torch.Tensor | None
    labels: torch.Tensor | None
    times: torch.Tensor | None
    windows: torch.Tensor | None

    @classmethod
    def of(cls, minibatch: MiniBatch, edge_type: EdgeType | None, *, triplets: bool) -> "LinksOfType":
        """Return the seeds of a type in a mini-batch; they are empty if it has only other types."""
        name = type_name(edge_type)
        pairs, indexes, labels, times, windows, ids = (rows_of_type(minibatch, of, name) for of in MEMBERS)
        if pairs is None or pairs.dim() != 2 or pairs.shape[1] != 2:
            raise ValueError("seeds must be edges, shape (N, 2); name the pairs 'seeds' in the item set")
        positives = torch.arange(len(pairs), device="cpu") if indexes is None else indexes
        count = int(positives.cpu().numpy().max(initial=-1)) + 1
        ends = [pairs[: count if triplets else len(pairs), 0], pairs[:, 1]]
        return cls(ends, positives, count, ids, labels, times, windows)

    def metadata(self, local: list[torch.Tensor], triplets: int) -> tuple[Any, ...]:
        """Return the metadata of PyG's samplers, in PyG's order; `local` are the positions of both endpoints."""
        if not triplets:
            return self.ids, torch.stack(local), self.labels, None if self.times is None else self.times[self.positives]
        # One row per positive; with one negative each, no second dimension, as in PyG.
        count = self.num_positives
        negatives = local[1][count:].view(triplets, count).t().squeeze(1)
        return self.ids, local[0], local[1][:count], negatives, self.times


def trees_of(links: Iterable[LinksOfType]) -> list[torch.Tensor]:
    """Return the tree of each endpoint, which is that of its positive."""
    trees, first = list[torch.Tensor](), 0
    for link in links:
        trees += [link.positives[: len(part)] + first for part in link.ends]
        first += link.num_positives
    return trees


MEMBERS = ("seeds", "indexes", "labels", "timestamp", "pre_time_window", "input_id")


def rows_of_type(minibatch: MiniBatch, field: str, name: str | None) -> Any:
    """Return the rows of a type; no rows if the mini-batch lacks it or has no seeds at all."""
    values = getattr(minibatch, field, None)
    if not isinstance(values, dict):
        return values
    if name in values:
        return values[name]
    shape = (0, 2) if field == "seeds" else 0
    return next(iter(values.values()), torch.empty(shape, dtype=torch.int64, device="cpu"))[:0]


def link_fields(
    metadata: tuple[Any, ...], edge_type: EdgeType | None, *, triplets: bool, alone: bool = True
) -> dict[Any, dict[str, Any]]:
    """Return the attributes of seed edges for the data, by type; None marks attributes that must be absent.

    Unless `alone`, all attributes of triplets go to the edge type, because several edge types may share a node type.
    """
    # The metadata of PyG's samplers for such seeds, in PyG's order.
    ids, *rest = metadata
    if not triplets:
        names = ("edge_label_index", "edge_label", "edge_label_time")
        return {edge_type: {"input_id": ids, **dict(zip(names, rest, strict=True))}}
    source, positive, negative, times = rest
    # The data's own edge_label_index and edge_label_time would describe other edges.
    fields: dict[Any, dict[str, Any]] = {
        edge_type: {"input_id": ids, "edge_label_index": None, "edge_label_time": None}
    }
    ends = end_types(edge_type) if alone else (edge_type, edge_type)
    fields.setdefault(ends[0], {}).update(src_index=source, seed_time=times)
    fields.setdefault(ends[1], {}).update(dst_pos_index=positive, dst_neg_index=negative, seed_time=times)
    return fields


def by_end(ends: Sequence[str | None], values: Sequence[torch.Tensor]) -> Any:
    """Return the values of sources and destinations, in that order, by node type; without types, all of them."""
    parts: dict[str | None, list[torch.Tensor]] = {}
    for end, part in zip(ends, values, strict=True):
        parts.setdefault(end, []).append(part)
    return from_type_dict({end: torch.cat(own) for end, own in parts.items()})


def merge_ends(
    ends: Sequence[str | None], ids: Sequence[torch.Tensor], *, disjoint: bool
) -> tuple[Any, list[torch.Tensor]]:
    """Return the nodes to sample around, by type if there are types, and the positions of the given ids in them."""
    nodes = to_type_dict(by_end(ends, ids))
    places = {}
    for end, part in nodes.items():
        if disjoint:
            places[end] = torch.arange(len(part), device="cpu")
        else:
            nodes[end], places[end] = torch.unique(part, return_inverse=True)
    starts, positions = dict.fromkeys(nodes, 0), []
    for end, part in zip(ends, ids, strict=True):
        positions.append(places[end][starts[end] : starts[end] + len(part)])
        starts[end] += len(part)
    return from_type_dict(nodes), positions


class Excluded(NamedTuple):
    """A kind of edges to remove."""

    edge_type: EdgeType | None
    """Type of the removed edges; None without types."""
    flipped: bool = False
    """Whether the removed edges lead from the destination of a seed to its source."""
    times: Feature | None = None
    """Time of each edge, if edges have times."""
    of_seeds: EdgeType | None = None
    """Type of the seeds."""


class ExcludeSeedLinks(Transform, keeps_size=True, seeded=False):
    """Removes sampled edges that join the endpoints of a seed, so that a model can't read what it is to predict.

    Parallel edges are removed, too, and so are edges that coincide with a negative. If each seed has its own tree, its
    edges are only removed in that tree. If edges have times, those before the time of the seed are kept, because they
    are known by then. Nodes are kept, and `num_sampled_edges` counts the remaining edges.
    """

    excluded: tuple[Excluded, ...]
    bidirectional: bool = False
    """Whether to add the reverse of each remaining edge, and then to remove those that join the endpoints of a seed."""

    def __call__(self, minibatch: SampledMiniBatch) -> SampledMiniBatch:
        result = copy.copy(minibatch)
        result.output = self.removed(minibatch.output)
        if self.bidirectional:
            result.output = self.removed(to_bidirectional(result.output))
        return result

    def removed(self, output: Any) -> Any:
        """Return a sampler output without those edges."""
        for excluded in self.excluded:
            output = exclude_pairs(output, Pairs.of(output, excluded.of_seeds), excluded)
        return output


def read_exclusions(
    given: Any, data: Any, edge_types: Sequence[EdgeType | None], time_name: str | None
) -> tuple[Excluded, ...]:
    """Return the edges to remove for seeds of some types, from `exclude_seed_edges`: one value for all, or a dict."""
    if isinstance(given, Mapping):
        by_type, names = by_type_name(given), [type_name(edge_type) for edge_type in edge_types]
        if set(by_type) != set(names):
            raise ValueError(
                f"exclude_seed_edges must be a dict with the edge types of the seeds, {brief(names)}, but has "
                f"{brief(list(by_type))}; give each True, the type of its reverse edges, or False"
            )
    elif len(edge_types) > 1 and isinstance(given, (tuple, list)):
        raise ValueError(
            f"exclude_seed_edges is {brief(given)}, but seeds have several types; give a dict by edge type"
        )
    else:
        by_type = dict.fromkeys(map(type_name, edge_types), given)
    return tuple(
        excluded
        for edge_type in edge_types
        for excluded in read_exclusion(by_type[type_name(edge_type)], data, edge_type, time_name)
    )


def read_exclusion(given: Any, data: Any, edge_type: EdgeType | None, time_name: str | None) -> tuple[Excluded, ...]:
    """Return the edges to remove if PyG's `exclude_seed_edges` is False, True, 'reverse', or the reverse type."""
    tables = tables_of(data)
    if given is None or given is False:
        return ()
    # Seed edges may have a type that the data don't have.
    wanted = [Excluded(edge_type, of_seeds=edge_type)] if edge_type in tables.edges else []
    if isinstance(given, str) and given == "reverse" and (edge_type is None or edge_type[0] == edge_type[2]):
        wanted += [own._replace(flipped=True) for own in wanted]
    elif edge_type is not None and isinstance(given, (tuple, list)):
        reverse = tables.edge_type(given)
        if reverse is None or (reverse[0], reverse[2]) != (edge_type[2], edge_type[0]):
            raise ValueError(
                f"exclude_seed_edges is {brief(given)}, which is not an edge type from {edge_type[2]!r} to "
                f"{edge_type[0]!r}; data has {list(tables.edges)}"
            )
        wanted.append(Excluded(reverse, flipped=True, of_seeds=edge_type))
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


def exclude_after(pipe: Datapipe, excluded: tuple[Excluded, ...]) -> Datapipe:
    """Append a stage that removes edges to a pipeline of sampler outputs."""
    # In a bidirectional subgraph, the reverse of a removed edge would leak it, so edges are removed first.
    both = isinstance(pipe, ToSamplerOutput) and pipe.subgraph_type == "bidirectional"
    return ExcludeSeedLinks(pipe.changed(subgraph_type="directional") if both else pipe, excluded, both)


class Pairs(NamedTuple):
    """The seeds of a mini-batch, including negatives."""

    ids: torch.Tensor
    """Ids of the endpoints, shape (2, N)."""
    trees: torch.Tensor | None
    """Tree of each seed, if each seed has its own."""
    times: torch.Tensor | None

    @classmethod
    def of(cls, output: Any, edge_type: EdgeType | None) -> "Pairs":
        """Return the seeds of an edge type from a sampler output."""
        metadata = output.metadata[edge_type] if isinstance(output.metadata, dict) else output.metadata
        if len(metadata) == 4:
            # Pairs, the positives before the negatives.
            _, (sources, destinations), _, times = metadata
        else:
            _, source, positive, negative, times = metadata
            # Triplets: each source with its positive, and then with each of its negatives.
            blocks = [positive, *(negative if negative.dim() == 2 else negative[:, None]).T]
            destinations, sources = torch.cat(blocks), source.repeat(len(blocks))
            times = None if times is None else times.repeat(len(blocks))
        ends = end_types(edge_type)
        nodes, batch = [pick_columns(output.node, end) for end in ends], pick_columns(output.batch, ends[0])
        return cls(
            torch.stack([nodes[0][sources], nodes[1][destinations]]), None if batch is None else batch[sources], times
        )


def exclude_pairs(output: Any, seeds: Pairs, excluded: Excluded) -> Any:
    """Return a sampler output without the edges of one type that join the endpoints of a seed."""
    edge_type = excluded.edge_type
    of_edges = (output.row, output.col, output.edge, output.num_sampled_edges)
    row, col, edge, counts = (pick_columns(values, edge_type) for values in of_edges)
    if row is None or len(row) == 0 or seeds.ids.shape[1] == 0:
        return output
    ends = end_types(edge_type)
    nodes = [pick_columns(output.node, end) for end in ends]
    joined = torch.stack([nodes[0][row], nodes[1][col]])
    trees = None if seeds.trees is None else pick_columns(output.batch, ends[0])[row]
    edge_times = None
    if excluded.times is not None and edge is not None:
        edge_times = excluded.times.read(edge).squeeze(1)
    gone = find_pairs(
        joined, trees, edge_times, seeds._replace(ids=seeds.ids.flip(0) if excluded.flipped else seeds.ids)
    )
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


def find_pairs(
    edges: torch.Tensor, trees: torch.Tensor | None, times: torch.Tensor | None, seeds: Pairs
) -> torch.Tensor:
    """Return the positions of the edges that join the endpoints of a seed, in its tree and not before its time."""
    # Edges have shape (2, E), seeds (2, N), in the same direction. Each pair of nodes becomes one number, so that a
    # search in sorted numbers finds the edges that are pairs.
    size = 1 + max(int(edges[1].max()), int(seeds.ids[1].max()))
    wanted, of_seeds = torch.unique(seeds.ids[0] * size + seeds.ids[1], return_inverse=True)
    names = edges[0] * size + edges[1]
    pairs = torch.searchsorted(wanted, names).clamp(max=len(wanted) - 1)
    found: torch.Tensor = (wanted[pairs] == names).nonzero().squeeze(1)
    if trees is None or seeds.trees is None:
        return found
    # The same for a tree and a pair: if trees are disjoint, a seed removes edges of its own tree only.
    in_trees = trees[found] * len(wanted) + pairs[found]
    found = found[torch.isin(in_trees, seeds.trees * len(wanted) + of_seeds)]
    if times is None or seeds.times is None:
        return found
    of_trees = seeds.times.new_zeros(int(seeds.trees.max()) + 1)
    of_trees[seeds.trees] = seeds.times  # all pairs of a tree have the time of its positive
    # An earlier edge between the same nodes was known at the time of the seed, so it stays.
    is_known = times[found] < of_trees[trees[found]]
    return found[~is_known]
