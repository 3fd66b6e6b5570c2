"""Sample negatives for events: destinations at random, of the same type, seen before by the source, or listed."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.negatives.fixed_negatives import FixedNegatives
from graphfeed.datapipes.negatives.negative_sampler import Sampled, sample_each_type, unsampled
from graphfeed.datapipes.samplers.subgraph_sampler import check_is_graph
from graphfeed.datapipes.sources.seeds import given_seeds, spread_over_rows
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import draw, draw_key, drawing, fold
from graphfeed.ops.arguments import brief, check_count, check_ids
from graphfeed.storage import SamplingGraph, TemporalQuery
from graphfeed.storage.graph import SamplingRequest, Seeds, nodes_met
from graphfeed.storage.memory import Shareable

KINDS = ("random", "of_type", "seen", "listed")
NO_PLACE = 1 << 62
"""Larger than any position."""
Int64s = NDArray[np.int64]


class TemporalNegativeSampler(Transform, name="sample_temporal_negative", draws=True, reads_graph=True, seeded=False):
    """Adds events that didn't happen: for each event, `ratio` copies with another destination.

    The kinds of destinations are "random" (any), "of_type" (those whose node attribute `type_name` is that of the true
    one), "seen" (distinct ones that the source met strictly before the event's time), and "listed" (those of `lists`).
    A source meets the sources of its in-edges, so the graph has events in both directions, or from destination to
    source. If a source has met too few, random destinations follow. The draws depend on the mini-batch's key and on the
    event's position in it.

    The result has the seeds, labels and indexes of `UniformNegativeSampler`. With `as_columns`, the seeds have the
    shape (N, 2 + ratio): source, destination, negatives. Then each source is sampled from once per event.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        kind: "random", "of_type", "seen" or "listed".
        ratio: Number of negatives per event; the lists of "listed" may have other numbers.
        strict: Whether the negatives of an event are distinct, and none is a destination of its source at its time.
        edge_timestamp_attr_name: The edge attribute with integer times, for "seen" and `strict`.
        type_name: The node attribute with integer types, for "of_type".
        destinations: The first id of a random destination, and the one after the last. None: all nodes.
        lists: The destinations of each event, for "listed".
        as_columns: Whether the negatives are further columns of the seeds instead of further rows.

    Raises:
        KeyError: The graph lacks an attribute.
        ValueError: Options that exclude each other; when it runs: no times, seeds that are not pairs, an event without
            a list, or without enough destinations for `strict`.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 0]), num_nodes=4, edge_attributes={"time": torch.tensor([1, 2, 3])})
        >>> pipe = ItemSampler(ItemSet((torch.tensor([[0, 3]]), [2]), names=("seeds", "timestamp")), batch_size=1)
        >>> pipe = pipe.sample_temporal_negative(graph, "seen", edge_timestamp_attr_name="time")
        >>> next(iter(pipe)).seeds.tolist()
        [[0, 3], [0, 1]]
    """

    graph: SamplingGraph
    kind: Literal["random", "of_type", "seen", "listed"] = "random"
    ratio: int = 1
    strict: bool = False
    edge_timestamp_attr_name: str | None = None
    type_name: str | None = None
    destinations: tuple[int, int] | None = None
    lists: FixedNegatives | None = None
    as_columns: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_graph(self.graph)
        check_count("ratio", self.ratio, 1, 1 << 20)
        kind: object = self.kind
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, but is {brief(kind)}")
        if [kind == "listed", kind == "of_type"] != [self.lists is not None, self.type_name is not None]:
            raise ValueError(f"kind must be 'listed' with lists, and 'of_type' with type_name, but is {kind!r}")
        if self.graph.edge_types:
            raise ValueError("graph must have no types; use sample_negative_pairs for edge types")
        if self.edge_timestamp_attr_name is None and (self.strict or kind == "seen"):
            raise ValueError("strict and kind='seen' need the times of edges; give edge_timestamp_attr_name")
        self.__dict__["pool"] = Pool.of(self.graph, self.destinations, self.type_name)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        times: Any = spread_over_rows(minibatch, "timestamp")
        if not isinstance(times, torch.Tensor) or times.dim() != 1:
            raise ValueError("events need one time each, and no types; name an item of the item set 'timestamp'")
        if not self.as_columns:
            return sample_each_type(self, minibatch, partial(self.sample, times))
        result, seeds = unsampled(self, minibatch), given_seeds(minibatch)
        assert isinstance(seeds, torch.Tensor)
        with drawing(minibatch.key, self.number):
            found, counts = self._others(seeds, times)
        if len(counts) and counts.min() < counts.max():
            raise ValueError("as_columns needs equally many negatives for each event; leave it out")
        result.seeds = torch.cat([seeds, torch.from_numpy(found).to(seeds.dtype).reshape(len(seeds), -1)], 1)
        return result

    def sample(self, times: torch.Tensor, seeds: torch.Tensor) -> Sampled:
        """Return the seeds, labels and indexes."""
        found, counts = self._others(seeds, times)
        indexes = torch.from_numpy(np.repeat(np.arange(len(seeds)), counts))
        pairs = torch.stack([seeds[indexes, 0], torch.from_numpy(found).to(seeds.dtype)], 1)
        labels = torch.zeros(len(seeds) + len(pairs), device="cpu")
        labels[: len(seeds)] = 1
        return torch.cat([seeds, pairs]), labels, torch.cat([torch.arange(len(seeds), device="cpu"), indexes])

    def _others(self, seeds: torch.Tensor, times: torch.Tensor) -> tuple[Int64s, Int64s]:
        """Return the destinations of negatives, event by event, and their numbers."""
        if seeds.dim() != 2 or seeds.shape[1] != 2:
            raise ValueError(f"seeds must be edges, shape (N, 2), to get negatives, but have {list(seeds.shape)}")
        if self.lists is not None:
            return self.lists.find(seeds[:, 0].numpy(), seeds[:, 1].numpy(), times.numpy())
        return self.draw(seeds, times, draw_key(0)).reshape(-1), np.full(len(seeds), self.ratio)

    def draw(self, seeds: torch.Tensor, times: torch.Tensor, key: int) -> Any:
        """Return the destinations of negatives, shape (events, ratio)."""
        pool: Pool = self.__dict__["pool"]
        sources, ends, count = seeds[:, 0], seeds[:, 1].numpy(), len(seeds)
        # A pair of an event and a node is one number.
        factor: Any = self.graph.num_nodes
        check_ids("seeds", seeds, factor)
        true, found = np.empty(0, dtype=np.int64), np.full((count, self.ratio), -1)
        if self.strict:
            true = np.union1d(np.arange(count) * factor + ends, self.met(sources, times, factor, at_once=True))
        none = np.empty((count, 0), dtype=np.int64)
        if self.kind == "seen":
            seen = self.seen(sources, times, factor)
            seen = np.setdiff1d(seen, true, assume_unique=True)
            sizes = np.bincount(seen // factor, minlength=count)
            places = pick(sizes, none, self.ratio, fold(key, 1), distinct=True)
            chosen = np.append(seen % factor, -1)[np.cumsum(sizes)[:, None] - sizes[:, None] + np.maximum(places, 0)]
            found = np.where(places < 0, -1, chosen)
        if (found < 0).any():
            first, sizes = pool.spans(ends)
            taken = none
            if self.strict:
                rows = np.repeat(np.arange(count), self.ratio)
                met = (rows * factor + found.ravel())[found.ravel() >= 0]
                taken = pool.taken(np.union1d(true, met), factor, first, sizes)
            places = pick(sizes, taken, self.ratio, key, distinct=self.strict)
            if ((found < 0) & (places < 0)).any():
                row = int(((found < 0) & (places < 0)).any(1).argmax())
                raise ValueError(
                    f"event {row} of the mini-batch has fewer than {self.ratio} possible destinations; allow more, or "
                    "leave out strict"
                )
            found = np.where(found < 0, pool.ids(first[:, None] + np.maximum(places, 0)), found)
        return found

    def seen(self, sources: torch.Tensor, times: torch.Tensor, factor: int) -> Any:
        """Return the distinct nodes that each source met before its time, as ascending numbers of pairs."""
        found = nodes_met(self.graph, str(self.edge_timestamp_attr_name), sources, times)
        if found is None:
            return np.unique(self.met(sources, times, factor))
        ids, counts = found
        return np.sort(np.repeat(np.arange(len(counts)) * factor, counts) + ids)

    def met(self, sources: torch.Tensor, times: torch.Tensor, factor: int, *, at_once: bool = False) -> Any:
        """Return the nodes that each source met before its time, or at that time, as numbers of pairs."""
        name = self.edge_timestamp_attr_name
        query = TemporalQuery(None, name, 0 if at_once else None, inclusive=at_once)
        request = SamplingRequest([(-1,)], deduplicate=False, temporal=query)
        (hop,) = self.graph.sample_hops(Seeds(sources, times), request, [0])
        rows = np.repeat(np.arange(len(sources)), hop.sampled_csc.indptr.diff().numpy())
        return rows * factor + hop.original_row_node_ids[hop.sampled_csc.indices].numpy()


@dataclass(frozen=True, eq=False, repr=False)
class Pool(Shareable):
    """The nodes that random destinations are drawn from, type by type."""

    low: int
    high: int
    types: torch.Tensor | None = None
    """The type of each node, starting at `low`."""
    order: torch.Tensor | None = None
    """Those nodes by type."""
    places: torch.Tensor | None = None
    """The position of each in `order`."""

    @classmethod
    def of(cls, graph: Any, bounds: tuple[int, int] | None, type_name: str | None) -> "Pool":
        given: Any = (0, graph.num_nodes) if bounds is None else bounds
        if not isinstance(given, tuple) or len(given) != 2 or not all(type(end) is int for end in given):
            raise TypeError(f"destinations must be a tuple of two ids, but is {brief(given)}")
        low, high = given
        if not 0 <= low < high <= graph.num_nodes:
            raise ValueError(f"destinations must be a range of {graph.num_nodes} nodes, but is {given}")
        if type_name is None:
            return cls(low, high)
        types = graph.node_attribute(type_name)[low:high]
        order = types.argsort(stable=True)
        return cls(
            low, high, types, order, torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device="cpu"))
        )

    def spans(self, ends: Int64s) -> tuple[Int64s, Int64s]:
        """Return the first position and the number of the nodes that each true destination may be replaced by."""
        if self.types is None or self.order is None:
            return np.zeros_like(ends), np.full_like(ends, self.high - self.low)
        if len(ends) and not self.low <= ends.min() <= ends.max() < self.high:
            raise ValueError(f"destinations must include those of the events, {ends.min()} .. {ends.max()}")
        kinds, wanted = self.types[self.order].numpy(), self.types.numpy()[ends - self.low]
        first = np.searchsorted(kinds, wanted)
        return first, np.searchsorted(kinds, wanted, "right") - first

    def taken(self, pairs: Int64s, factor: int, first: Int64s, sizes: Int64s) -> Int64s:
        """Return the sorted positions of nodes that each event must avoid, relative to its first one, padded."""
        rows, places = pairs // factor, pairs % factor - self.low
        inside = (places >= 0) & (places < self.high - self.low)
        rows, places = rows[inside], places[inside]
        places = (places if self.places is None else self.places.numpy()[places]) - first[rows]
        inside = (places >= 0) & (places < sizes[rows])
        rows, places = rows[inside], places[inside]
        counts = np.bincount(rows, minlength=len(first))
        out = np.full((len(first), counts.max(initial=0)), NO_PLACE)
        out[rows, np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]] = places
        return np.sort(out, axis=1)

    def ids(self, places: Int64s) -> Int64s:
        return self.low + (places if self.order is None else self.order.numpy()[places])


def pick(sizes: Int64s, taken: Int64s, count: int, key: int, *, distinct: bool) -> Int64s:
    """Draw `count` positions below each size that are not taken; -1 where none is left."""
    places: Any = np.arange(len(sizes) * count, dtype=np.uint64).reshape(len(sizes), count)
    bits: Any = draw(key, places, 1)
    numbers = (bits >> 33).astype(np.int64)
    out = np.full((len(sizes), count), -1)
    for number in range(count):
        left = sizes - (taken < NO_PLACE).sum(1)
        rank = numbers[:, number] * left >> 31
        # The position with this rank among those that are not taken.
        rank += (taken - np.arange(taken.shape[1]) <= rank[:, None]).sum(1)
        out[:, number] = np.where(left > 0, rank, -1)
        if distinct:
            more = np.where(left > 0, rank, NO_PLACE)[:, None]
            taken = np.sort(np.concatenate([taken, more], axis=1), axis=1)
    return out
