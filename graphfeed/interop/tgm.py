"""TGM's hooks for neighbours and negatives, computed from the events instead of kept as state.

A hook is called with a graph, which it ignores, and a batch with `edge_src`, `edge_dst` and `edge_time`. It sets the
attributes of TGM's hook of that name, with the same dtypes, shapes and padding. Unlike TGM's, it gets all events as
`events=`: an object with these three attributes, and possibly `edge_x`, such as a `tgm.DGraph` of the whole data. So
the result is the same for any order of batches and any worker, and complete at every hop.
"""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from graphfeed.datapipes import FixedNegatives, arranged, check_rising, place_edges
from graphfeed.ops import fold
from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.ops.process import regular_file
from graphfeed.ops.sampling import Population, sample_negative_pairs
from graphfeed.storage import TemporalQuery, from_coo
from graphfeed.storage.graph import SamplingRequest, Seeds, Strategy

ENDS = ("edge_src", "edge_dst")
PADDED_NODE_ID = -1
ARRAYS = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}
"""The names that pickles of arrays use."""
NOT_READ = (AttributeError, EOFError, IndexError, KeyError, MemoryError, OverflowError, TypeError, ValueError)
"""Errors of reading a damaged pickle."""


class Hook:
    """Base class of the hooks."""

    requires: ClassVar[set[str]] = {*ENDS, "edge_time"}
    has_state = False
    names: ClassVar[tuple[str, ...]] = ()
    """Attributes that the hook sets, without the suffix of its `id`."""

    def __init__(self, id: str | None, seed: int = 0) -> None:
        self.id, self.seed = id, seed
        self.produces = {self.name(name) for name in self.names}

    def reset_state(self) -> None:
        """Do nothing, as there is no state."""

    def name(self, name: str) -> str:
        """Return the name of an attribute, with the suffix of this hook."""
        return f"{name}_{self.id}" if self.id else name

    def with_attributes(self, batch: Any, *values: Any) -> Any:
        """Set the attributes of a batch, and return it."""
        for name, value in zip(self.names, values, strict=True):
            setattr(batch, self.name(name), value)
        return batch

    def key_of(self, batch: Any) -> int:
        """Return the key of a batch's draws: from the key of a `MiniBatch`, or else from the seed and the events."""
        if (key := getattr(batch, "key", None)) is not None:
            return int(key.at(0))
        if not len(batch.edge_time):
            return fold(self.seed, 0)
        ends = [int(getattr(batch, name)[place]) for name in (*ENDS, "edge_time") for place in (0, -1)]
        return fold(self.seed, *ends, len(batch.edge_time))

    def draw(self, batch: Any, low: int, high: int, count: int) -> torch.Tensor:
        """Draw numbers from `low` to `high` - 1."""
        none = torch.zeros(count, dtype=torch.int64, device="cpu")
        return low + sample_negative_pairs(count, self.key_of(batch), none, Population(high - low))[:, 1]


class EventHook(Hook):
    """Base class of hooks that look up earlier events."""

    def __init__(self, events: Any, *, directed: bool, id: str | None, seed: int) -> None:
        super().__init__(id, seed)
        self.events, self.times = events, as_tensor("edge_time", events.edge_time).long()
        check_rising("edge_time", self.times)
        # Nodes have in-edges from those they met. The time of an edge is the number of its event.
        ends = torch.stack([as_tensor(name, getattr(events, name)).long() for name in reversed(ENDS)])
        numbers = torch.arange(ends.shape[1], device="cpu")
        if not directed:
            ends, numbers = torch.stack([ends, ends.flip(0)], 2).flatten(1), numbers.repeat_interleave(2)
        self.numbers = numbers
        self.graph = from_coo(ends, int(ends.max()) + 1 if ends.numel() else 1, edge_attributes={"number": numbers})

    def first_event(self, batch: Any) -> int:
        """Return the number of the batch's first event among all events."""
        time, size = batch.edge_time[:1].long(), len(batch.edge_time)
        if size == 0:
            return 0
        low, high = (int(torch.searchsorted(self.times, time, right=right)) for right in (False, True))
        # Among several events at that time, the batch is where all of its events follow.
        for number in range(low, high):
            rows = slice(number, number + size)
            ends = [(as_tensor(own, getattr(self.events, own)[rows]), getattr(batch, own)) for own in ENDS]
            if all(
                torch.equal(own.long(), given.long()) for own, given in [*ends, (self.times[rows], batch.edge_time)]
            ):
                return number
        return low

    def sample(self, ids: torch.Tensor, limits: torch.Tensor, width: int, strategy: Strategy, key: int) -> Any:
        """Sample among the events before a number for each node."""
        # Other nodes have no events: none is before number 0.
        known = (ids >= 0) & (ids < self.graph.total_num_nodes)
        ids, limits = torch.where(known, ids, 0), torch.where(known, limits, 0)
        replace = strategy == "uniform" and width == 1
        query = TemporalQuery(None, "number")
        request = SamplingRequest([(width,)], replace, None, strategy, deduplicate=False, temporal=query)
        return self.graph.sample_hops(Seeds(ids, limits), request, [key])[0]


class NeighborSamplerHook(EventHook):
    """Samples earlier events of the seeds at random, without replacement; rows are padded at their end.

    The seeds of the first hop see events before the batch that are earlier than themselves. Seeds of later hops, the
    neighbours of the hop before, see all events earlier than the one that led to them.

    Args:
        num_nbrs: Number of neighbours per hop, the hop of the seeds first.
        seed_nodes_keys: Attributes of the batch with the seeds.
        seed_times_keys: Attributes of the batch with their times.
        directed: Whether only sources have neighbours: their destinations.
        id: Suffix of the attributes.
        events: All events in the order of time.
        seed: Random seed of batches without a key.

    Raises:
        ValueError: Fan-outs below 1, other numbers of keys of nodes than of times, or times that decrease.

    Example:
        >>> from types import SimpleNamespace
        >>> numbers = torch.tensor
        >>> events = SimpleNamespace(edge_src=numbers([0, 0]), edge_dst=numbers([1, 2]), edge_time=numbers([5, 9]))
        >>> batch = SimpleNamespace(edge_src=numbers([0]), edge_dst=numbers([2]), edge_time=numbers([9]))
        >>> hook = NeighborSamplerHook([2], ["edge_src"], ["edge_time"], events=events)
        >>> hook(None, batch).nbr_nids
        [tensor([[ 1, -1]], dtype=torch.int32)]
    """

    names = ("seed_nids", "seed_times", "nbr_nids", "nbr_edge_time", "nbr_edge_x", "seed_node_nbr_mask")
    strategy: ClassVar[Strategy] = "uniform"
    align: ClassVar[str] = "left"

    def __init__(
        self,
        num_nbrs: Sequence[int],
        seed_nodes_keys: Sequence[str],
        seed_times_keys: Sequence[str],
        directed: bool = False,
        id: str | None = None,
        *,
        events: Any,
        seed: int = 0,
    ) -> None:
        if not num_nbrs or min(num_nbrs) < 1:
            raise ValueError(f"num_nbrs must hold integers of 1 or more, one per hop, but is {brief(num_nbrs)}")
        if len(seed_nodes_keys) != len(seed_times_keys):
            raise ValueError(
                f"seed_nodes_keys and seed_times_keys go together, but are {seed_nodes_keys} and {seed_times_keys}"
            )
        super().__init__(events, directed=directed, id=id, seed=seed)
        self.num_nbrs, self.seed_keys, self.time_keys = list(num_nbrs), list(seed_nodes_keys), list(seed_times_keys)
        rows = getattr(events, "edge_x", None)
        self.edge_x = torch.zeros(len(self.times), 0, device="cpu") if rows is None else as_tensor("edge_x", rows)

    def __call__(self, dg: Any, batch: Any) -> Any:  # noqa: ARG002 - TGM passes it
        """Set `seed_nids`, `seed_times`, `nbr_nids`, `nbr_edge_time` and `nbr_edge_x`, lists with an entry per hop."""
        parts = [
            (getattr(batch, own), getattr(batch, time))
            for own, time in zip(self.seed_keys, self.time_keys, strict=True)
        ]
        ids, times = (torch.cat(own) for own in zip(*parts, strict=True))
        numbers = torch.split(torch.arange(len(ids), device="cpu"), [len(own) for own, _ in parts])
        limits = torch.searchsorted(self.times, times.long()).clamp(max=self.first_event(batch))
        hops: list[tuple[torch.Tensor, ...]] = []
        for hop, width in enumerate(self.num_nbrs):
            mask, chosen = self.find(ids, limits, width, fold(self.key_of(batch), hop))
            order, places, sources = chosen
            nodes, moments, rows = (
                arranged(mask, places, None, values, padding)
                for values, padding in ((sources, PADDED_NODE_ID), (self.times[order], 0), (self.edge_x[order], 0))
            )
            hops.append((ids.int(), times.long(), nodes.int(), moments, rows))
            ids, times = nodes.flatten(), moments.flatten()
            limits = torch.searchsorted(self.times, times)
        return self.with_attributes(
            batch, *map(list, zip(*hops, strict=True)), dict(zip(self.seed_keys, numbers, strict=True))
        )

    def find(self, ids: torch.Tensor, limits: torch.Tensor, width: int, key: int) -> Any:
        """Return the mask of a hop; and for the places with a neighbour, its event, the place and the neighbour."""
        real = (ids >= 0).nonzero()[:, 0]
        hop = self.sample(ids[real].long(), limits[real], width, self.strategy, key)
        counts = torch.zeros(len(ids), dtype=torch.int64, device="cpu")
        counts[real] = hop.sampled_csc.indptr.diff().long()
        mask, places = place_edges(counts, width, self.align)
        return mask, (self.numbers[hop.original_edge_ids], places, hop.original_row_node_ids[hop.sampled_csc.indices])


class RecencyNeighborHook(NeighborSamplerHook):
    """Returns the latest earlier events of the seeds, from the oldest to the newest; rows are padded at their start.

    TGM keeps the last `max(num_nbrs)` events of each node, from which later hops lack those that newer ones displaced.
    Here, later hops are complete, so TGM's rows are the ends of these.

    Args:
        num_nodes: Number of nodes; not needed.
        num_nbrs, seed_nodes_keys, seed_times_keys, directed, id, events: As for `NeighborSamplerHook`.
    """

    strategy = "latest"
    align = "right"

    def __init__(self, num_nodes: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_nodes = num_nodes


class RandomNegativeEdgeSamplerHook(Hook):
    """Draws destinations `neg` from `low` to `high` - 1, as many as events times `neg_ratio`."""

    names = ("neg", "neg_time")

    def __init__(self, low: int, high: int, neg_ratio: float = 1.0, id: str | None = None, *, seed: int = 0) -> None:
        if not low < high or not 0 < neg_ratio <= 1:
            raise ValueError(f"low must be below high, and neg_ratio in 0 .. 1, but are {low}, {high}, {neg_ratio}")
        super().__init__(id, seed)
        self.low, self.high, self.neg_ratio = low, high, neg_ratio

    def __call__(self, dg: Any, batch: Any) -> Any:  # noqa: ARG002
        """Set `neg`, int32, and `neg_time`, the times of the batch."""
        count = round(self.neg_ratio * len(batch.edge_dst))
        times = batch.edge_time.clone() if count else batch.edge_time[:0]
        return self.with_attributes(batch, self.draw(batch, self.low, self.high, count).int(), times)


class HistoricalNegativeEdgeSamplerHook(EventHook):
    """Draws for each source one of its destinations in events before the batch; -1 if it has none.

    All rows of a source have the same one. `valid_neg_mask` is False where there is none.
    """

    names = ("neg", "neg_time", "valid_neg_mask")

    def __init__(self, id: str | None = None, *, events: Any, seed: int = 0) -> None:
        super().__init__(events, directed=True, id=id, seed=seed)

    def __call__(self, dg: Any, batch: Any) -> Any:  # noqa: ARG002
        """Set `neg`, int32, `neg_time` and `valid_neg_mask`."""
        limits = torch.full_like(batch.edge_time.long(), self.first_event(batch))
        hop = self.sample(batch.edge_src.long(), limits, 1, "uniform", self.key_of(batch))
        mask, places = place_edges(hop.sampled_csc.indptr.diff().long(), 1, "left")
        sources = hop.original_row_node_ids[hop.sampled_csc.indices]
        neg = arranged(mask, places, None, sources, PADDED_NODE_ID).flatten().int()
        return self.with_attributes(batch, neg, batch.edge_time.clone(), neg != PADDED_NODE_ID)


class TGBNegativeEdgeSamplerHook(Hook):
    """Looks up the negatives of a TGB data set of links, `tgbl-*`.

    Args:
        dataset_name, split_mode: Names of the data set and the split, for messages.
        id: Suffix of the attributes.
        lists: The negatives of that split, which `read_tgb_negatives` reads.
        seed: Random seed of batches without a key.
    """

    names = ("neg", "neg_batch_list", "neg_time")

    def __init__(
        self,
        dataset_name: str,
        split_mode: str,
        id: str | None = None,
        *,
        lists: FixedNegatives,
        seed: int = 0,
    ) -> None:
        super().__init__(id, seed)
        self.dataset_name, self.split_mode, self.lists = dataset_name, split_mode, lists

    def __call__(self, dg: Any, batch: Any) -> Any:  # noqa: ARG002
        """Set `neg`, the distinct ids, `neg_batch_list`, those of each event, and `neg_time`, random in the batch."""
        found, counts = self.lists.find(*(getattr(batch, name).numpy() for name in (*ENDS, "edge_time")))
        values = torch.from_numpy(found).int()
        neg = torch.from_numpy(np.unique(found)).int()
        low, high = int(batch.edge_time.min()), int(batch.edge_time.max())
        times = self.draw(batch, low, high + 1, len(neg))
        return self.with_attributes(batch, neg, list(torch.split(values, counts.tolist())), times)


class SavedDtype:
    """A dtype of integers or floats in a pickle."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "iuf":
            raise pickle.UnpicklingError(f"it has values of {self.dtype}")

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class SavedArray:
    """An array in a pickle, of which only the values matter."""

    def __init__(self, *_: Any) -> None:
        self.values = np.empty(0, np.int64)

    def __setstate__(self, state: Any) -> None:
        _, _, saved, _, content = state
        self.values = np.frombuffer(content, saved.dtype)


def saved_scalar(saved: SavedDtype, content: Any) -> Any:
    return np.frombuffer(content, saved.dtype)[0]


def saved_buffer(content: Any, saved: Any, *_: Any) -> SavedArray:
    made = SavedArray()
    made.values = np.frombuffer(content, (saved if isinstance(saved, SavedDtype) else SavedDtype(saved)).dtype)
    return made


LOADERS: dict[str, Any] = {
    "ndarray": None, "dtype": SavedDtype, "_reconstruct": SavedArray, "scalar": saved_scalar,
    "_frombuffer": saved_buffer,
}  # fmt: skip
"""Stand in for NumPy's functions, which create any object from the bytes of a file. None is only named, not called."""


class ArrayUnpickler(pickle.Unpickler):
    """Unpickler that only supports dicts of arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ARRAYS:
            return LOADERS[name]
        raise pickle.UnpicklingError(f"it uses {module}.{name}, which is not part of an array")


def read_tgb_negatives(path: str | Path) -> FixedNegatives:
    """Read the negatives of a TGB data set of links, such as `tgbl-wiki_val_ns_v2.pkl`. Its code is never run.

    `FixedNegatives.save` writes them as arrays, which are read faster.

    Raises:
        ValueError: The file has anything but negatives by source, destination and time.
    """
    with open(path, "rb", opener=regular_file) as file:
        try:
            content = ArrayUnpickler(file).load()
            if not isinstance(content, dict) or not all(isinstance(key, tuple) and len(key) == 3 for key in content):
                raise ValueError(
                    f"it must hold a dict of negatives by (source, destination, time), but is {brief(content)}"
                )
            return FixedNegatives(
                {key: own.values if isinstance(own, SavedArray) else own for key, own in content.items()}
            )
        except (*NOT_READ, pickle.UnpicklingError) as error:
            raise ValueError(f"{path} does not contain TGB's negatives: {error}") from error
