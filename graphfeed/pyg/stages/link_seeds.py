"""Edges as seeds, in PyG's form: the nodes to sample around, and what the data hold of the edges."""

from typing import Any

import torch

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.pyg.data.store_data import EdgeType, end_types
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch, only_type
from graphfeed.storage.graph import etype_str_to_tuple


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
        given: Any = minibatch.seeds
        if isinstance(given, dict) and len(given) != 1:
            raise ValueError(f"seeds must be edges of one type, but are of {list(given)}")
        edge_type = etype_str_to_tuple(next(iter(given))) if isinstance(given, dict) else None
        fields = (given, minibatch.indexes, minibatch.labels, minibatch.timestamp, minibatch.pre_time_window)
        pairs, indexes, labels, times, windows = map(only_type, fields)
        if pairs is None or pairs.dim() != 2 or pairs.shape[1] != 2:
            raise ValueError("seeds must be edges, shape (N, 2); name the pairs 'seeds' in the item set")
        # Which positive each pair belongs to; where there are no negatives, each is one.
        positives = torch.arange(len(pairs)) if indexes is None else indexes
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
        return by_end(ends, ids), [torch.arange(counts[0]), torch.arange(first, first + counts[1])]
    if same:
        nodes, positions = torch.unique(torch.cat(ids), return_inverse=True)
        return nodes if ends is None else {ends[0]: nodes}, list(positions.split(counts))
    merged = [torch.unique(part, return_inverse=True) for part in ids]
    return by_end(ends, [nodes for nodes, _ in merged]), [positions for _, positions in merged]
