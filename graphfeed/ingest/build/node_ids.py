"""How the ids in files become those of the graph: 0, 1, 2, ... in each node type."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.table import as_texts
from graphfeed.ops.records import TextNumbers, find_texts, index_texts
from graphfeed.storage.datasets import write_ids
from graphfeed.storage.memory import map_npy

DENSE = 8
"""Integer ids are looked up in a table as long as there are at most so many numbers for each."""

PENDING = 1 << 22
"""How many ids are collected before doubles are left out."""


class NodeIds(ABC):
    """The ids of the nodes of a type."""

    texts = False
    """Whether they are texts; otherwise they are integers."""
    names: "NodeIds | None" = None
    """What results are mapped back to, where edges name the nodes by row."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of nodes."""

    @abstractmethod
    def find(self, ids: Any) -> NDArray[np.int64]:
        """Return the node of each id, and -1 where there is none."""

    def describe(self) -> str:
        return "but no row of the nodes has that id"

    def write(self, folder: Path, name: str) -> dict[str, str] | None:  # noqa: ARG002
        """Write the ids, so that results can be mapped back; return the files, or None if that needs none."""
        return None


class RowIds(NodeIds):
    """Integers from 0 that are used as they are; the nodes may have names beside them."""

    def __init__(self, count: int, names: NodeIds | None = None) -> None:
        self.count, self.names = count, names

    def __len__(self) -> int:
        return self.count

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= self.count):
            return np.where((ids < 0) | (ids >= self.count), -1, ids)
        return ids

    def describe(self) -> str:
        return f"which is out of range: there are {self.count} nodes, from 0"


class IntegerIds(NodeIds):
    """Integers in any order."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self.ids = ids
        self.low = int(ids.min())
        span = int(ids.max()) - self.low + 1
        self.table = self.order = None
        if span <= DENSE * len(ids):
            self.table = np.full(span, -1, dtype=np.int32 if len(ids) < 1 << 31 else np.int64)
            self.table[ids - self.low] = np.arange(len(ids), dtype=self.table.dtype)
        else:
            self.order = np.argsort(ids, kind="stable")
            self.sorted = ids[self.order]

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.table is not None:
            inside = (ids >= self.low) & (ids <= self.low + (len(self.table) - 1))
            return np.where(inside, self.table[np.where(inside, ids - self.low, 0)], -1).astype(np.int64)
        assert self.order is not None
        positions = np.minimum(np.searchsorted(self.sorted, ids), len(self.sorted) - 1)
        return np.where(self.sorted[positions] == ids, self.order[positions], -1)

    def write(self, folder: Path, name: str) -> dict[str, str]:
        return write_ids(folder, name, self.ids, None)


class TextIds(NodeIds):
    """Texts, one behind the other."""

    texts = True

    def __init__(self, offsets: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
        # Where each begins and, at last, where all end; and the bytes of all.
        self.offsets, self.values = offsets, values

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def index(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # A hash table that is made once. Arrow's `index_in` makes one at each call.
        values, offsets = as_tensor(self.values), as_tensor(self.offsets)
        return values, offsets, index_texts(values, offsets)

    def find(self, ids: Any) -> NDArray[np.int64]:
        offsets, values = text_buffers(ids)
        nodes: NDArray[np.int64] = find_texts(*self.index, as_tensor(values), as_tensor(offsets)).numpy()
        return nodes

    def write(self, folder: Path, name: str) -> dict[str, str]:
        return write_ids(folder, name, self.values, self.offsets)


def text_buffers(texts: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each text of an Arrow array begins, and the bytes of all."""
    _, offsets, values = texts.buffers()
    # A slice of an array has the buffers of the whole.
    starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if values is None or not len(texts):
        return np.zeros(len(texts) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    return starts - starts[0], np.frombuffer(values, dtype=np.uint8)[starts[0] : starts[-1]]


def number_texts(numbers: TextNumbers, texts: Any) -> NDArray[np.int64]:
    offsets, values = text_buffers(texts)
    found: NDArray[np.int64] = numbers.number(as_tensor(values), as_tensor(offsets)).numpy()
    return found


def as_tensor(array: NDArray[Any]) -> torch.Tensor:
    # What Arrow holds is not for writing, and is copied.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class StoredIds:
    """The ids of the nodes of a type in files, read where a task runs, and there once for all tasks."""

    def __init__(self, folder: Path, files: dict[str, str] | None, count: int) -> None:
        self.folder, self.files, self.count = folder, files, count  # the files are those that `NodeIds.write` returned

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the ids themselves. A worker keeps what it has read, for the tasks that it gets one by one.
        if self.files is None:
            return StoredIds, (self.folder, None, self.count)
        written = tuple((self.folder / name).stat().st_mtime_ns for name in self.files.values())
        return stored_ids_of_worker, (self.folder, tuple(self.files.items()), self.count, written)

    @cached_property
    def ids(self) -> NodeIds:
        if self.files is None:
            return RowIds(self.count)
        values = np.array(map_npy(self.folder / self.files["values"]))
        if "offsets" not in self.files:
            return IntegerIds(values)
        return TextIds(np.array(map_npy(self.folder / self.files["offsets"])), values)


@lru_cache(maxsize=2)  # for both ends of edges
def stored_ids_of_worker(
    folder: Path,
    files: tuple[tuple[str, str], ...],
    count: int,
    written: tuple[int, ...],  # noqa: ARG001 - files that were written anew are read anew
) -> StoredIds:
    return StoredIds(folder, dict(files), count)


def first_of_each(ids: Any) -> NDArray[np.bool_]:
    """Return a mask of the ids that no earlier one equals; ids are integers, or an Arrow array of texts."""
    if not isinstance(ids, np.ndarray):
        codes = number_texts(TextNumbers(), ids)
        # Texts are numbered as they come: a new one has a larger number than all before it.
        before = np.maximum.accumulate(np.concatenate([[-1], codes]))[:-1]
        return codes > before
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.ones(len(ids), dtype=bool)
    first[order[1:]] = ordered[1:] != ordered[:-1]
    return first


class IdCollector:
    """Collects the ids of nodes without a table from the edges that name them."""

    def __init__(self) -> None:
        self.numbers = TextNumbers()
        self.parts: list[NDArray[np.int64]] = []
        self.pending = 0
        self.texts = False

    def add(self, ids: Any) -> None:
        self.texts = not isinstance(ids, np.ndarray)
        if self.texts:
            number_texts(self.numbers, ids)
            return
        self.parts.append(np.unique(ids))
        self.pending += len(self.parts[-1])
        # Only when twice as many as before have come, so that no id is sorted often.
        if self.pending > max(PENDING, 2 * len(self.parts[0])):
            self._merge()

    def _merge(self) -> None:
        self.parts, self.pending = [np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *self.parts]))], 0

    def distinct(self) -> Any:
        """Return each id once: integers in ascending order, or an Arrow array of texts as they came."""
        if self.texts:
            return as_texts(self.numbers.offsets.numpy(), self.numbers.values.numpy())
        self._merge()
        return self.parts[0]

    def finish(self) -> NodeIds:
        # In ascending order, whichever edges name them first.
        ids = self.distinct()
        return node_ids(ids.take(arrow("compute").sort_indices(ids)) if self.texts else ids)


def integer_ids(ids: NDArray[np.int64]) -> NodeIds:
    if not len(ids) or np.array_equal(ids, np.arange(len(ids))):
        return RowIds(len(ids))
    return IntegerIds(ids)


def node_ids(ids: Any) -> NodeIds:
    """Return the ids of nodes: integers, or an Arrow array of texts."""
    return integer_ids(ids) if isinstance(ids, np.ndarray) else TextIds(*text_buffers(ids))


def chosen(ids: Any, kept: NDArray[np.bool_]) -> Any:
    if kept.all():
        return ids
    return ids[kept] if isinstance(ids, np.ndarray) else ids.filter(arrow().array(kept))


def joined_ids(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if parts and not isinstance(parts[0], np.ndarray):
        return arrow().chunked_array(parts, arrow().large_string()).combine_chunks()
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
