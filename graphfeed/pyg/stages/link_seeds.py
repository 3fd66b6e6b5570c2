"""Edges as seeds, in PyG's form: the nodes to sample around, and what the data hold of the edges."""

from dataclasses import dataclass
from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch
from graphfeed.storage.graph.type_names import etype_str_to_tuple


class LinkSeeds(Transform):
    """Turns edges, with the negatives behind them, into the nodes that they join.

    The nodes are taken once each and sorted, as in PyG. Where each seed has nodes of its own, they stay as they are:
    all sources, then all destinations. A positive and its negatives then have one tree. `indexes` say to which positive
    each pair belongs; without them, all pairs are positives.

    Raises:
        ValueError: When it runs: seeds that are not pairs, or of several types.
    """

    disjoint: bool = False
    """Whether each seed has nodes of its own."""
    triplets: bool = False
    """Whether the data hold a source, a destination and negatives, rather than pairs and labels."""

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        """Return the mini-batch with nodes as seeds."""
        edges = Pairs.of(minibatch)
        # The sources of negatives are those of their positives in a triplet.
        sources = edges.sources[: edges.count] if self.triplets else edges.sources
        ends = (Ends(edges.kinds[0], sources, len(sources)), Ends(edges.kinds[1], edges.destinations, len(edges.pairs)))
        seeds, places = merge_ends(ends, disjoint=self.disjoint)
        trees = split_by_kind(ends, [edges.indexes[: end.count] for end in ends])
        typed = edges.kind is not None
        times, windows = (
            None if own is None else split_by_kind(ends, [own[edges.indexes[: end.count]] for end in ends])
            for own in (edges.times, edges.windows)
        )
        metadata = self.metadata(edges, places)
        kind = None if edges.kind is None else etype_str_to_tuple(edges.kind)
        return SampledMiniBatch(
            seeds=seeds if typed else seeds[None],
            timestamp=times if typed or times is None else times[None],
            pre_time_window=windows if typed or windows is None else windows[None],
            trees=(trees if typed else trees[None]) if self.disjoint else None,
            of_seeds=link_fields(metadata, kind, triplets=self.triplets),
            metadata=metadata,
            key=minibatch.key,
        )

    def metadata(self, edges: "Pairs", places: list[torch.Tensor]) -> tuple[Any, ...]:
        """Return what PyG's samplers say of the seeds."""
        if not self.triplets:
            times = None if edges.times is None else edges.times[edges.indexes]
            return edges.ids, torch.stack(places), edges.labels, times
        sources, destinations = places
        negatives = destinations[edges.count :].view(-1, edges.count).t().squeeze(1)
        return edges.ids, sources, destinations[: edges.count], negatives, edges.times


def link_fields(
    metadata: tuple[Any, ...], kind: tuple[str, str, str] | None, *, triplets: bool
) -> dict[Any, dict[str, Any]]:
    """Return what the data hold of seeds that are edges, by type; None stands for what they must not hold.

    Args:
        metadata: What a sampler of PyG's says of the seeds.
        kind: The edge type; None if there are no types.
        triplets: Whether there are negatives for each source, rather than pairs and labels.
    """
    owner: Any = None if kind is None else kind
    ids, *rest = metadata
    if not triplets:
        names = ("edge_label_index", "edge_label", "edge_label_time")
        return {owner: {"input_id": ids, **dict(zip(names, rest, strict=True))}}
    source, positive, negative, times = rest
    # The data's own edge_label_index and edge_label_time would speak of other edges than these.
    fields: dict[Any, dict[str, Any]] = {owner: {"input_id": ids, "edge_label_index": None, "edge_label_time": None}}
    ends = (None, None) if kind is None else (kind[0], kind[2])
    fields.setdefault(ends[0], {}).update(src_index=source, seed_time=times)
    fields.setdefault(ends[1], {}).update(dst_pos_index=positive, dst_neg_index=negative, seed_time=times)
    return fields


@dataclass(frozen=True)
class Ends:
    """The nodes at one end of the seeds."""

    kind: str | None
    ids: torch.Tensor
    count: int


@dataclass(frozen=True)
class Pairs:
    """The seeds of one type."""

    pairs: torch.Tensor
    """Shape (N, 2): the positives, then the negatives."""
    count: int
    """The number of positives."""
    indexes: torch.Tensor
    """The positive of each pair."""
    kind: str | None = None
    """The edge type."""
    labels: torch.Tensor | None = None
    times: torch.Tensor | None = None
    """Of the positives."""
    ids: torch.Tensor | None = None
    windows: torch.Tensor | None = None
    """How far back from its time each positive may look."""

    @classmethod
    def of(cls, minibatch: MiniBatch) -> "Pairs":
        """Return the seeds of a mini-batch."""
        given: Any = minibatch.seeds
        kind = None
        if isinstance(given, dict):
            if len(given) != 1:
                raise ValueError(f"seeds must be edges of one type, but are of {list(given)}")
            kind = next(iter(given))

        def own(values: Any) -> Any:
            return values.get(kind) if isinstance(values, dict) else values

        pairs = own(given)
        if pairs is None or pairs.dim() != 2 or pairs.shape[1] != 2:
            raise ValueError("seeds must be edges, shape (N, 2); name the pairs 'seeds' in the item set")
        indexes = own(minibatch.indexes)
        if indexes is None:
            indexes = torch.arange(len(pairs))
        count = int(indexes.max()) + 1 if len(indexes) else 0
        times, ids = own(minibatch.timestamp), own(getattr(minibatch, "input_id", None))
        windows = own(minibatch.pre_time_window)
        return cls(pairs, count, indexes, kind, own(minibatch.labels), times, ids, windows)

    @property
    def kinds(self) -> tuple[str | None, str | None]:
        """The node types of sources and destinations."""
        if self.kind is None:
            return None, None
        source, _, destination = etype_str_to_tuple(self.kind)
        return source, destination

    @property
    def sources(self) -> torch.Tensor:
        """The sources."""
        return self.pairs[:, 0]

    @property
    def destinations(self) -> torch.Tensor:
        """The destinations."""
        return self.pairs[:, 1]


def split_by_kind(ends: tuple[Ends, Ends], values: list[torch.Tensor]) -> dict[Any, torch.Tensor]:
    """Return values of both ends by node type, the sources' first."""
    if ends[0].kind == ends[1].kind:
        return {ends[0].kind: torch.cat(values)}
    return {end.kind: part for end, part in zip(ends, values, strict=True)}


def merge_ends(ends: tuple[Ends, Ends], *, disjoint: bool) -> tuple[dict[Any, torch.Tensor], list[torch.Tensor]]:
    """Return the nodes to sample around by type, and both ends as positions in them."""
    nodes = split_by_kind(ends, [end.ids for end in ends])
    same = ends[0].kind == ends[1].kind
    if disjoint:
        starts = [0, ends[0].count if same else 0]
        return nodes, [torch.arange(start, start + end.count) for start, end in zip(starts, ends, strict=True)]
    merged = {kind: torch.unique(ids, return_inverse=True) for kind, ids in nodes.items()}
    local = [merged[end.kind][1] for end in ends]
    if same:
        local = list(local[0].split([end.count for end in ends]))
    return {kind: ids for kind, (ids, _) in merged.items()}, local
