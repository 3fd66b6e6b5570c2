"""Fixed lists of negatives, such as those that a benchmark ranks each event among."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.process import regular_file
from graphfeed.storage.memory import Shareable, new_file

Int64s = NDArray[np.int64]


def whole(name: str, values: Any) -> Int64s:
    """Return integers as int64; raise unless all are integers."""
    found = np.asarray(values)
    if found.size and (found.dtype.kind not in "iuf" or (found.dtype.kind == "f" and (found != np.trunc(found)).any())):
        raise ValueError(f"{name} must be integers, but has {brief(values)}")
    return found.astype(np.int64)


class FixedNegatives(Shareable):
    """The negative destinations of events, found by source, destination and time.

    Raises:
        ValueError: There are no events, or too many for 64 bits.

    Example:
        >>> lists = FixedNegatives({(0, 5, 10): [6, 7], (1, 5, 12): [8]})
        >>> [part.tolist() for part in lists.find([1, 0], [5, 5], [12, 10])]
        [[8, 6, 7], [1, 2]]
    """

    def __init__(self, lists: Mapping[tuple[Any, Any, Any], Any]) -> None:
        events = sorted(lists, key=lambda event: tuple(map(int, event)))
        values = [whole("negatives", lists[event]).reshape(-1) for event in events]
        offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
        keys = np.stack(
            [whole("events", column) for column in zip(*events, strict=True)] or [np.empty(0, np.int64)] * 3, 1
        )
        self._set(keys, offsets, np.concatenate([*values, np.empty(0, np.int64)]))

    def _set(self, keys: Int64s, offsets: Int64s, values: Int64s) -> None:
        columns = [np.unique(column) for column in keys.T]
        if len(keys) == 0 or np.prod([float(len(column)) for column in columns]) >= 2**63:
            raise ValueError(
                f"lists must have 1 event or more, with fewer than 2**63 combinations, but has {len(keys)}"
            )
        self.keys, self.offsets, self.values = map(torch.from_numpy, (keys, offsets, values))
        self.columns = [*map(torch.from_numpy, columns)]
        self.codes = torch.from_numpy(self._codes(keys.T)[0])

    def _codes(self, event: Any) -> tuple[Int64s, NDArray[np.bool_]]:
        """Return a number per event, in the order of the keys, and whether its three values occur."""
        code, occurs = np.int64(0), np.True_
        for column, given in zip(self.columns, event, strict=True):
            known, wanted = column.numpy(), np.asarray(given)
            place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            code, occurs = code * len(known) + place, occurs & (known[place] == wanted)  # type: ignore[assignment]
        return code, occurs  # type: ignore[return-value]

    def find(self, sources: Any, destinations: Any, times: Any) -> tuple[Int64s, Int64s]:
        """Return the negatives of events, one list after the other, and their numbers."""
        wanted, occurs = self._codes((sources, destinations, times))
        codes, offsets = self.codes.numpy(), self.offsets.numpy()
        places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        missing = np.flatnonzero(~(occurs & (codes[places] == wanted)))
        if len(missing):
            event = tuple(np.asarray(part)[missing[0]].item() for part in (sources, destinations, times))
            raise ValueError(f"lists has no negatives for the event {event}; use the lists of this split and version")
        counts = offsets[places + 1] - offsets[places]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.values.numpy()[np.repeat(offsets[places], counts) + within], counts

    def save(self, path: str | Path) -> None:
        """Write the lists to a `.npz` file, which appears when it is complete."""
        needed = 8 * (self.keys.numel() + self.offsets.numel() + self.values.numel()) + 4096
        with new_file(Path(path), needed) as file:
            np.savez(file, keys=self.keys.numpy(), offsets=self.offsets.numpy(), values=self.values.numpy())

    @classmethod
    def load(cls, path: str | Path) -> "FixedNegatives":
        """Read lists that `save` wrote.

        Raises:
            ValueError: The file has anything else.
        """
        made = cls.__new__(cls)
        try:
            with open(path, "rb", opener=regular_file) as file, np.load(file, allow_pickle=False) as arrays:
                keys, offsets, values = (arrays[name] for name in ("keys", "offsets", "values"))
            rises = len(offsets) == len(keys) + 1 and offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all()
            if not rises or offsets[-1] != len(values):
                raise ValueError("the offsets don't fit the lists")
            made._set(keys, offsets, values)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} was not written by FixedNegatives.save: {error}") from error
        return made
