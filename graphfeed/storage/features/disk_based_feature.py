"""A feature in a file, read row by row; the file is neither mapped nor loaded."""

import os
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from graphfeed.ops import on_gpu
from graphfeed.ops.arguments import as_ids, check_ids, check_vector, checked
from graphfeed.ops.memory import ReadChoice, buffers, map_file, read_at_random
from graphfeed.ops.process import current_limits, in_one_step, regular_file, result_of
from graphfeed.ops.rows import SPAN_BYTES, gather_unchecked, read_blocks, read_bytes, read_rows
from graphfeed.storage.features.feature import DeferredRead, ReadsAhead, Spans, TorchBasedFeature, dtype_and_shape
from graphfeed.storage.memory.outside_files import check_saved_numbers, clear_headers
from graphfeed.storage.memory.staging import send_rows

GAP_BYTES = 1 << 15
"""Largest gap between rows that are read at once. A disk with 60,000 random reads or 1.5 GB of sequential reads per
second reads 25 kB more in the time of another read."""
MAPPED_ROWS_PER_TASK = 1 << 15
"""Like `Limits.rows_per_task`, for rows in the system's page cache: a millisecond or two."""
TASKS_PER_THREAD = 8
"""Number of parts per thread that a read ahead is split into, so that threads finish at about the same time."""
MOST_THREADS = 16
"""More concurrent reads don't make a disk faster."""


class DiskBasedFeature(ReadsAhead):
    """A feature whose rows stay in a `.npy` file.

    Ids are sorted, rows that are near each other are read at once, and large reads are split among a pool of threads,
    which starts with the first of them and ends with the feature. If reads found their rows in the system's page cache,
    the next ones copy rows from a mapping of the file, until they have to wait for the disk. After `copy_to("cuda")`,
    rows go to the GPU only through page-locked memory, and the loader reads them ahead of your step. The feature
    pickles as its path. Threads and forked processes may read it.

    Don't modify the file while it is in use. A read that fails raises an OSError, or an EOFError if the file has become
    shorter, and an epoch whose rows are read ahead starts with a RuntimeError if the file was written to; but the
    system kills a process that copies from a mapping at the moment at which its file is truncated (SIGBUS).

    Args:
        path: A NumPy file with two or more dimensions, in C order, without pickled objects.
        metadata: Any other information about the feature.
        num_threads: Number of concurrent reads. The default is four per core, but at most 16.

    Raises:
        ValueError: The array has fewer than two dimensions, has objects, is in Fortran order, or is truncated.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.array([[1], [2], [3]]))
        ...     DiskBasedFeature(file.name).read(torch.tensor([2, 0])).tolist()
        [[3], [1]]
    """

    plain_read = True
    waits_for = "the disk"

    @checked
    def __init__(
        self, path: str | Path, metadata: dict[str, Any] | None = None, num_threads: int | None = None
    ) -> None:
        if num_threads is not None and num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, but is {num_threads}; leave it out to use four per core")
        self._path = str(Path(path).resolve())
        self._metadata = metadata or {}
        self._num_threads = num_threads
        with open(self._path, "rb", opener=regular_file) as file:
            self._shape, self._dtype = npy_header(file, self._path)
            self._start = file.tell()
            # Duplicate the descriptor, since the file object closes its own.
            self._descriptor = os.dup(file.fileno())
        self._pools: dict[int, ThreadPoolExecutor] = {}
        # The finalizer must not refer to this object, which would then live forever.
        weakref.finalize(self, close_file, self._descriptor, self._pools)
        self._size = self._start + self.count() * self.row_bytes
        self._written = last_written(self._descriptor)
        there = self._written[0]
        if there < self._size:
            raise ValueError(f"{path} has {there} bytes, but needs {self._size} by its header; write it again")
        self._reads = ReadChoice()

    @property
    def _threads(self) -> int:
        return self._num_threads or min(4 * (os.cpu_count() or 1), MOST_THREADS)

    @cached_property
    def _direct(self) -> int:
        """Descriptor for reads past the page cache, or the usual one if the file system doesn't support them."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        except (AttributeError, OSError):  # not supported by the system or the file system
            return self._descriptor
        weakref.finalize(self, os.close, descriptor)
        if not os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
            return self._descriptor  # the path has another file by now
        try:
            read_blocks(descriptor, 0, 1)
        except OSError:  # a file system that opens such files, but can't read
            return self._descriptor
        return descriptor

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Read the rows at `ids`, or all rows if None, from the file into memory, or to the GPU that has the ids.

        Rows for a GPU pass through page-locked memory of a fixed size: while some are copied on the current stream, the
        next ones are read. An id outside of the rows raises an IndexError, a failed read an OSError.
        """
        if isinstance(ids, torch.Tensor) and on_gpu(ids):
            return self._read_on_gpu(ids)
        return self._submit_read(ids).wait()

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield once. By then the pool is reading the rows, unless they go to a GPU."""
        if on_gpu(as_ids("index", ids)):
            yield DeferredRead(lambda: self.read(ids))
        else:
            # A generator runs when its first stage is requested, so the read starts there.
            yield self._submit_read(ids, ahead=True)

    def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> list[Future[Spans]]:
        """Start to read many rows into memory in the pool, past the page cache if the system supports that.

        Rows near each other are read at once: 4 of 32 million rows of 128 bytes are read at 1.5 GB/s instead of 0.05.
        """
        parts = self._split(ids.numel(), current_limits().rows_per_task, TASKS_PER_THREAD * self._threads)
        return [self._submit(self._read_spans, ids[begin:end], out, positions[begin:end]) for begin, end in parts]

    @property
    def gap_bytes(self) -> int:
        """Largest gap between rows that are read at once."""
        return GAP_BYTES

    def join(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all futures are done.

        Raises:
            OSError: A read failed; an EOFError if the file became shorter.
            TimeoutError: A read takes longer than ten minutes.
        """
        seconds = current_limits().read_seconds
        try:
            for future in futures:
                result_of(future, seconds)
        except TimeoutError as error:
            raise TimeoutError(
                f"reading {self._path} took longer than {seconds:.0f} s; is its file system still there?"
            ) from error

    def check_unchanged(self) -> None:
        """Raise a RuntimeError if the file was written to since it was opened. Replacing the file is allowed."""
        # Checks the open file: a new file of the same name does not affect reads.
        (size, time), (size_now, time_now) = self._written, last_written(self._descriptor)
        if (size, time) != (size_now, time_now):
            raise RuntimeError(
                f"{self._path} was written to while it was in use: it had {size} bytes when it was opened and has "
                f"{size_now}, and was modified {abs(time_now - time) / 1e9:.3g} s later; open another DiskBasedFeature "
                "for it, and write new rows to a new file"
            )

    def read_into_memory(self) -> TorchBasedFeature:
        """Return a feature with all rows in memory. Many rows are shared with worker processes without a copy."""
        rows = buffers.empty_long_lived(tuple(self._shape), self._dtype, buffers.CPU)
        return TorchBasedFeature(self._submit_read(None, out=rows).wait(), self._metadata)

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._shape[1:]

    def count(self) -> int:
        """Return the number of rows."""
        return self._shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self._dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Raise a NotImplementedError: the file is never written to."""
        raise NotImplementedError(f"{self._path} is only read; write the new rows to a file and open that")

    def is_constant(self) -> bool:
        """Return True: the file is only read."""
        return True

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the feature."""
        return self._metadata

    def delivers_to_gpu(self) -> bool:
        """Return True: rows pass through page-locked memory."""
        return True

    def is_in_page_cache(self) -> bool:
        """Return whether the last reads found their rows in the system's page cache."""
        return not self._reads.from_disk

    @cached_property
    def _mapped(self) -> torch.Tensor:
        """All rows, mapped from the file."""
        memory = map_file(self._descriptor, self._path, self._size)
        flat = torch.frombuffer(memory, dtype=self._dtype, count=self._shape.numel(), offset=self._start)
        # Disables the system's read-ahead, because rows are read in random order.
        read_at_random([flat], yes=True)
        return flat.reshape(self._shape)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._path

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle the path, not the rows.
        return DiskBasedFeature, (self._path, self._metadata, self._num_threads)

    def __repr__(self) -> str:
        return f"DiskBasedFeature({self._path!r}, {dtype_and_shape(self._dtype, self._shape)})"

    def _submit_read(
        self, ids: torch.Tensor | None, ahead: bool = False, out: torch.Tensor | None = None
    ) -> DeferredRead:
        """Start a read in the pool. Unless `ahead`, the waiting thread reads one part itself, or all if it is one."""
        if ids is None:
            out = buffers.empty(tuple(self._shape), self._dtype) if out is None else out
            data = out.view(-1).view(torch.uint8).numpy()
            tasks = [
                partial(read_bytes, self._descriptor, self._start + begin, data[begin:end].data)
                for begin, end in self._split(out.nbytes, least=1 << 24)
            ]
            return self._start_tasks(out, tasks, ahead)
        ids = self._checked(ids)
        return self._submit_rows(ids, buffers.empty((ids.numel(), *self.size()), self._dtype), ahead)

    def _checked(self, ids: torch.Tensor) -> torch.Tensor:
        ids = as_ids("index", ids).cpu()
        check_vector("index", ids)
        check_ids("index", ids, self.count(), IndexError)
        return ids

    def _read_on_gpu(self, ids: torch.Tensor) -> torch.Tensor:
        here = self._checked(ids)

        def start(begin: int, end: int, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
            # The pool fills this block, while the caller copies the previous one to the GPU.
            return self._submit_rows(here[begin:end], rows, ahead=True).wait

        return send_rows(start, (len(here), *self.size()), self._dtype, ids.device)

    def _submit_rows(self, ids: torch.Tensor, out: torch.Tensor, ahead: bool) -> DeferredRead:
        """Start to read the rows at checked ids into memory."""
        pages: list[int] = []
        # Copy from the mapping while the system has the file in memory: 5 to 17 times as fast as reads, most for short
        # rows. With a truncated file, that would end the process with a bus error.
        if self.is_in_page_cache() and os.fstat(self._descriptor).st_size >= self._size and out.numel():
            parts = self._split(ids.numel(), MAPPED_ROWS_PER_TASK)
            copy = partial(self._counted, pages, gather_unchecked, self._mapped)
            tasks = [partial(copy, ids[begin:end], out[begin:end]) for begin, end in parts]
        else:
            rows = ids.to(torch.int64).contiguous().numpy()
            order = np.argsort(rows)  # in file order, so that neighbouring rows take one read
            by_id, positions = torch.from_numpy(rows[order]), torch.from_numpy(order)
            parts = self._split(ids.numel(), current_limits().rows_per_task)
            read = partial(self._counted, pages, read_rows, self._descriptor, self._start)
            tasks = [partial(read, by_id[begin:end], out, positions[begin:end], GAP_BYTES) for begin, end in parts]
        pending = self._start_tasks(out, tasks, ahead)

        def wait() -> torch.Tensor:
            rows = pending.wait()
            # The number of pages that came from the disk decides how the next rows are read.
            self._reads.decide(sum(pages), len(ids))
            return rows

        return DeferredRead(wait)

    def _split(self, length: int, least: int, most: int | None = None) -> list[tuple[int, int]]:
        """Return the bounds of parts: at most `most` (by default one per thread), of at least `least` each."""
        parts = max(1, min(most or self._threads, length // least))
        bounds = [length * part // parts for part in range(parts + 1)]
        return list(pairwise(bounds))

    def _start_tasks(self, out: torch.Tensor, tasks: Sequence[Callable[[], None]], ahead: bool) -> DeferredRead:
        # Unless it is ahead, the last part is left for the waiting thread, which would idle otherwise.
        pooled = len(tasks) if ahead else len(tasks) - 1
        futures = [self._submit(task) for task in tasks[:pooled]]

        def wait() -> torch.Tensor:
            for task in tasks[pooled:]:
                task()
            self.join(futures)
            return out

        return DeferredRead(wait)

    def _counted(self, pages: list[int], read: Callable[..., Any], *arguments: Any) -> None:
        with self._reads.count(pages):
            read(*arguments)

    def _read_spans(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> Spans:
        read_rows(self._direct, self._start, ids, out, positions, GAP_BYTES)
        return count_spans(ids, self.row_bytes, GAP_BYTES)

    def _submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            return in_one_step(self._pool().submit, task, *arguments)
        except RuntimeError:
            # At program exit, pools accept no tasks, so this thread runs it.
            future: Future[Any] = Future()
            future.set_result(task(*arguments))
            return future

    def _pool(self) -> ThreadPoolExecutor:
        """Return the pool of this process, because threads don't survive a fork."""
        pool = self._pools.get(os.getpid())
        # Concurrent callers get the same pool.
        if pool is None:
            pool = self._pools.setdefault(os.getpid(), ThreadPoolExecutor(self._threads, "graphfeed-disk"))
        return pool


def count_spans(rows: torch.Tensor, row_bytes: int, gap_bytes: int) -> Spans:
    """Return how ascending rows are read if rows at most `gap_bytes` apart are read at once."""
    if not rows.numel():
        return Spans(0, 0)
    ids = rows.numpy()
    # Last row of each stretch without a larger gap.
    last = np.append(np.flatnonzero(np.diff(ids) * row_bytes > gap_bytes + row_bytes), ids.size - 1)
    sizes = (ids[last] - ids[np.append(0, last[:-1] + 1)] + 1) * row_bytes
    # A row that is longer than a span still takes one read.
    return Spans(int(np.sum(-(-sizes // max(SPAN_BYTES, row_bytes)))), int(sizes.sum()))


def last_written(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def npy_header(file: BinaryIO, path: str) -> tuple[torch.Size, torch.dtype]:
    """Return the shape and dtype of a `.npy` file, and leave the file's position at the first row."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError as error:
        raise ValueError(f"{path} is not a .npy file: {error}; write it with numpy.save") from error
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        with clear_headers():
            shape, in_fortran_order, dtype = read(file)
    except ValueError as error:
        raise ValueError(f"{path} can't be read: {error}; write it again") from error
    if dtype.hasobject:
        raise ValueError(f"{path} has objects ({dtype}), which would have to be unpickled; save numbers")
    check_saved_numbers(path, dtype)
    if len(shape) < 2:
        raise ValueError(f"{path} must have 2 dimensions or more, but has {len(shape)}")
    if min(shape) < 0:
        raise ValueError(f"{path} is damaged: its shape is {shape}; write it again")
    if in_fortran_order:
        raise ValueError(
            f"{path} is in Fortran order, in which rows are not contiguous; save numpy.ascontiguousarray(...)"
        )
    if not dtype.isnative:
        raise ValueError(f"{path} is {dtype.str}, which is not this machine's byte order; save it with .astype(...)")
    return torch.Size(shape), torch.from_numpy(np.empty(0, dtype)).dtype


def close_file(descriptor: int, pools: dict[int, ThreadPoolExecutor]) -> None:
    # The threads are idle, because tasks keep their feature alive.
    os.close(descriptor)
    # The pools of other processes have no threads here.
    if pool := pools.get(os.getpid()):
        pool.shutdown(wait=False)
