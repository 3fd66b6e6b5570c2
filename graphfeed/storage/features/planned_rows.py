"""Rows of a slow feature that are read before the mini-batches that need them."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from graphfeed.ops import on_gpu
from graphfeed.ops.arguments import check_count, check_ids
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import uninterrupted
from graphfeed.ops.rows import (
    MOST_PLANNED,
    copy_rows,
    find_slots,
    gather_unchecked,
    new_row_plan,
    next_window,
    note_rows,
    place_rows,
    row_plan_bytes,
)
from graphfeed.storage.features.feature import Feature, ReadsAhead, RemoteFeature, Spans, dtype_and_shape
from graphfeed.storage.memory.staging import Wait, do_nothing, send_rows

MOST_OF_SLOTS = 4 / 5
"""Share of the memory that the rows of a window may take; the rest is for rows that stay for the next window."""
PARTS = 8
"""Number of parts in which the rows of a window are placed while the previous one is used, if they don't fit at once.
Each part costs two passes over the slots."""


def bytes_with_slots(feature: ReadsAhead, num_slots: int) -> int:
    return num_slots * feature.row_bytes + row_plan_bytes(feature.count(), num_slots)


def count_slots(feature: ReadsAhead, max_size_in_bytes: int) -> int:
    # The bookkeeping has a fixed size per row of the file, and another one per slot.
    fixed = bytes_with_slots(feature, 0)
    slots = (max_size_in_bytes - fixed) // (bytes_with_slots(feature, 1) - fixed)
    return max(0, min(feature.count(), slots, MOST_PLANNED))


def bytes_of_rows(feature: ReadsAhead) -> int:
    """Return the size of all rows of a feature in bytes."""
    return feature.count() * feature.row_bytes


@dataclass
class ReadCounts:
    """Statistics of the rows that were read ahead so far."""

    minibatches: int = 0
    windows: int = 0
    rows: int = 0
    """Number of rows read, including those that were read late because there was no memory for them."""
    reads: int = 0
    num_bytes: int = 0
    """Bytes that were read ahead, including those between rows."""
    seconds: float = 0.0
    """Time spent waiting for reads."""

    def add(self, spans: Iterable[Spans]) -> None:
        for reads, num_bytes in spans:
            self.reads += reads
            self.num_bytes += num_bytes


class PlannedRows(Feature):
    """Memory for some rows of a slow feature if the rows of the next mini-batches are known in advance.

    Mini-batches come in *windows* of several. The rows that a window needs and memory lacks are read once for all of
    its mini-batches, in the order of their ids. While a window is used, the next one is read into the memory of rows
    that no known mini-batch needs any more, starting with those that were used least; if this does not suffice, it is
    read in parts, as mini-batches are used. So a window may take nearly all memory, and no policy reads fewer rows for
    known mini-batches (Belady, 1966; Ginex, VLDB 2022, plans epochs like this; RapidGNN, 2025, plans requests to other
    machines). Local rows of a `RemoteFeature` take no memory here.

    Args:
        feature: The feature.
        max_size_in_bytes: Bound for the memory of rows and bookkeeping, which needs 5.25 bytes per row of the feature,
            and 12 per row in memory. A ValueError if it is too small for a row.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from graphfeed.storage import DiskBasedFeature
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.arange(100).reshape(-1, 1))
        ...     rows, ids = PlannedRows(DiskBasedFeature(file.name), 1000), torch.tensor([3, 9])
        ...     rows.add_minibatch([ids])
        ...     rows.start_window_read()
        ...     rows.wait()
        ...     rows.expect([ids])
        ...     print(rows.read(ids).tolist(), rows)
        [[3], [9]] PlannedRows(int64[100, 1], 22 rows in memory, 0 hits, 2 misses)
    """

    kind = "rows of the next mini-batches in memory"

    def __init__(self, feature: ReadsAhead, max_size_in_bytes: int) -> None:
        check_count("max_size_in_bytes", max_size_in_bytes, 0)
        self.num_slots = count_slots(feature, max_size_in_bytes)
        if self.num_slots < 1 <= feature.count():
            raise ValueError(
                f"max_size_in_bytes is {max_size_in_bytes}, but a row and the bookkeeping for {feature.count()} rows "
                f"take {bytes_with_slots(feature, 1)}"
            )
        self.feature = feature
        """Source of the rows."""
        self.max_size_in_bytes = bytes_with_slots(feature, self.num_slots)
        self.hits = 0
        self.misses = 0
        self.counts = ReadCounts()
        self._rows = torch.empty(self.num_slots, *self.feature.size(), dtype=self.feature.dtype, device="cpu")
        self._reads: list[Future[Spans]] = []
        self._plan = new_row_plan(feature.count(), self.num_slots)
        # Mini-batches are numbered in the order in which they are added.
        self._next = self._first = self._first_before = self._used = 0
        """Numbers of the mini-batches that are added next, that start windows, and that are used next."""
        self._noted = self._noted_before = 0
        """Numbers of rows that the window being collected and the previous one need."""
        self._kept = 0
        """Number of rows that keep a slot only for the window being collected."""
        self._largest = 0
        self._step = self._left = 0
        """Number of mini-batches that are used between two parts of placed rows, and until the next part."""
        self._expected: list[torch.Tensor] = []
        self._lacks_slots = False
        """Whether the window in use has rows without a slot."""

    def cancel(self) -> None:
        """Cancel a started read, even while another thread waits for it. Afterwards, use other memory."""
        with uninterrupted():
            for part in self._reads:
                part.cancel()

    def has_room(self) -> bool:
        """Return whether the window could have another mini-batch as large as the largest one."""
        count = self.feature.count()
        # Every row has a slot.
        if count == self.num_slots:
            return True
        # Assume as many rows as in the largest mini-batch.
        own, both = self._noted + self._largest, self._noted_before + self._kept + self._largest
        return min(own, count) <= MOST_OF_SLOTS * self.num_slots and min(both, count) <= self.num_slots

    def add_minibatch(self, ids: Sequence[torch.Tensor]) -> None:
        """Add a mini-batch to the window, with the ids of each of its reads. Costs about 10 ns per row."""
        number, self._next = self._next, self._next + 1
        self.counts.minibatches += 1
        if not ids:
            return
        # All of its reads count as one mini-batch, since their rows are released together.
        wanted = torch.cat(list(ids))
        if isinstance(self.feature, RemoteFeature):
            check_ids("ids", wanted, self.count(), IndexError)
            # Local rows are read on demand.
            wanted = gather_unchecked(wanted, self.feature.split_local(wanted)[0])
        noted = note_rows(self._plan, wanted, number, self._first, self._first_before)
        self._noted += noted.rows
        self._kept += noted.kept
        self._largest = max(self._largest, noted.rows)

    def start_window_read(self) -> None:
        """Start to read the rows that the window lacks, as memory allows, and start the next one; call `wait` first."""
        self._plan = next_window(self._plan, self._first)
        lacking = int(self._plan.num_waiting[0])
        self.misses += lacking
        self.hits += self._noted - lacking
        self.counts.windows += self._noted > 0
        # From here on, mini-batches belong to the next window.
        self._first_before, self._first = self._first, self._next
        self._noted_before, self._noted, self._kept = self._noted, 0, 0
        self._step = -(-(self._first_before - self._used) // PARTS)
        self._place()

    def expect(self, ids: Sequence[torch.Tensor]) -> None:
        """Set the reads of the mini-batch that is used next, as they were added. The source reads all other rows."""
        self._expected = list(ids)

    def mark_used(self) -> None:
        """Release the rows of one more mini-batch, in the order in which mini-batches were added."""
        self._used += 1
        self._left -= 1
        # Slots of used rows are free for others.
        if self._left <= 0:
            self._place()

    def _place(self) -> None:
        self._left = self._step
        rows, slots = place_rows(self._plan, self._used)
        self.counts.rows += rows.numel()
        if rows.numel():
            self._reads += self.feature.start_read(rows, self._rows, slots)

    def wait(self) -> None:
        """Wait until the last window's rows are read, like `join`. Mini-batches before it must have been used."""
        self._place()
        self._lacks_slots = self._plan.num_waiting[0] > 0
        self._join()

    def _join(self) -> None:
        begin = time.perf_counter()
        self.feature.join(self._reads)
        # Only waiting counts: reads that were hidden by the training took none of its time.
        self.counts.seconds += time.perf_counter() - begin
        self.counts.add(part.result() for part in self._reads)
        self._reads = []

    def is_read(self) -> bool:
        """Return whether the rows of the last window have been read."""
        with uninterrupted():
            return not self._plan.num_waiting[0] and all(part.done() for part in self._reads)

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, on their device. Rows for which there was no memory are read now."""
        if ids is None:
            return self.feature.read()
        here = ids.cpu()
        # The slots of rows that were not added may have others, which are being read.
        if not any(here.dtype == noted.dtype and torch.equal(here, noted) for noted in self._expected):
            return self.feature.read(ids)
        if self._lacks_slots:
            # A row without a slot in its window may have one in the next window, which is being read.
            self._join()
        if not on_gpu(ids):
            return self._take(ids, buffers.empty((ids.numel(), *self.size()), self.dtype))

        def start(begin: int, end: int, rows: torch.Tensor) -> Wait:
            # Planned rows are in memory, so there is nothing to wait for.
            self._take(here[begin:end], rows)
            return do_nothing

        return send_rows(start, (len(here), *self.size()), self.dtype, ids.device)

    def _take(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        # The ids are on the CPU.
        if not isinstance(self.feature, RemoteFeature):
            self._take_planned(ids, out, None)
            return out
        remote, write_local = self.feature.split_local(ids)
        write_local(out)
        self._take_planned(gather_unchecked(ids, remote), out, remote)
        return out

    def _take_planned(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor | None) -> None:
        """Write rows that were added before to some positions of `out`, or to all of it in order."""
        slots = find_slots(self._plan, ids)
        missing = torch.nonzero(slots < 0).flatten()
        if positions is not None:
            # Rows without a slot are overwritten below.
            copy_rows(self._rows, slots.clamp(min=0).long(), out, positions, distinct=True)
        else:
            gather_unchecked(self._rows, slots.clamp(min=0) if missing.numel() else slots, out)
        if missing.numel():
            self.counts.rows += missing.numel()
            out[missing if positions is None else positions[missing]] = self.feature.read(ids[missing])

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self.feature.size()

    def count(self) -> int:
        """Return the number of rows of the source."""
        return self.feature.count()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self._rows.dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Update the source."""
        self.feature.update(value, ids)

    def delivers_to_gpu(self) -> bool:
        """Return True: rows pass through page-locked memory."""
        return True

    def __repr__(self) -> str:
        rows = dtype_and_shape(self.dtype, torch.Size([self.feature.count(), *self.feature.size()]))
        return f"PlannedRows({rows}, {self.num_slots} rows in memory, {self.hits} hits, {self.misses} misses)"
