"""A feature in a file, read row by row and neither mapped nor loaded."""

import os
import weakref
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from graphfeed.ops import buffers, read_bytes, read_rows
from graphfeed.ops.checks import check_ids, check_vector
from graphfeed.storage.features.feature import DeferredRead, Feature, TorchBasedFeature, dtype_and_shape

READ_TIMEOUT_SECONDS = 600.0
ROWS_PER_TASK = 64
"""Below so many rows a task costs more than it saves."""
BYTES_PER_TASK = 1 << 24
MOST_THREADS = 16
"""More reads at once than a disk has use for."""


class DiskBasedFeature(Feature):
    """Rows of a `.npy` file. Nothing is mapped, so what was read counts as the system's page cache, not as our memory.

    Ids are sorted and neighbouring rows read at once, by a pool of threads that starts at the first large read and
    ends with the feature. Pickles as its path. Any thread may read; a forked process starts a pool of its own.

    Args:
        path: A NumPy file without pickled objects, two dimensions or more, in C order.
        metadata: What else is known.
        num_threads: How many reads run at once; by default four a core, for a thread that waits for the disk keeps no
            core busy, and 16 at most.

    Raises:
        ValueError: Fewer than two dimensions, an array of objects or in Fortran order, a file that is too short.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.array([[1], [2], [3]]))
        ...     DiskBasedFeature(file.name).read(torch.tensor([2, 0])).tolist()
        [[3], [1]]
    """

    def __init__(
        self, path: str | Path, metadata: dict[str, Any] | None = None, num_threads: int | None = None
    ) -> None:
        if num_threads is not None and num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, but is {num_threads}; leave it out to go by the cores")
        self._path = str(Path(path).resolve())
        self._metadata = metadata or {}
        self._num_threads = num_threads
        with open(self._path, "rb") as file:
            self._shape, self._dtype = read_header(file, self._path)
            self._start = file.tell()
            self._descriptor = os.dup(file.fileno())
        self._pools: dict[int, ThreadPoolExecutor] = {}
        weakref.finalize(self, release, self._descriptor, self._pools)
        needed = self._start + self.count() * self._row_bytes
        there = os.fstat(self._descriptor).st_size
        if there < needed:
            raise ValueError(f"{path} has {there} bytes, but its header promises {needed}; write it again")

    @property
    def _threads(self) -> int:
        return self._num_threads or min(4 * (os.cpu_count() or 1), MOST_THREADS)

    @property
    def _row_bytes(self) -> int:
        return self.size().numel() * self._dtype.itemsize

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids` in their order, or all rows, read from the file into memory.

        An id below 0 or beyond the rows raises an IndexError, a failed read an OSError.
        """
        return self._begin(ids).wait()

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield once: the rows, which the pool has begun to read."""
        yield self._begin(ids, ahead=True)

    def read_into_memory(self) -> TorchBasedFeature:
        """Return a feature that holds all rows in memory."""
        return TorchBasedFeature(self.read(), self._metadata)

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._shape[1:]

    def count(self) -> int:
        """Return the number of rows."""
        return self._shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """What rows are of."""
        return self._dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Raise: the file is not written to."""
        raise NotImplementedError(f"{self._path} is only read; write the new rows to a file and open that")

    def metadata(self) -> dict[str, Any]:
        """Return what else is known of the feature."""
        return self._metadata

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the rows."""
        return DiskBasedFeature, (self._path, self._metadata, self._num_threads)

    def __repr__(self) -> str:
        """Return path, dtype and shape."""
        return f"DiskBasedFeature({self._path!r}, {dtype_and_shape(self._dtype, self._shape)})"

    def _begin(self, ids: torch.Tensor | None, ahead: bool = False) -> DeferredRead:
        """Split a read among the threads; unless it is read ahead, who waits takes a part, and a small read alone."""
        if ids is None:
            out = buffers.empty(tuple(self._shape), self._dtype)
            tasks = [partial(self._read_all, *bounds, out) for bounds in self._split(out.nbytes, BYTES_PER_TASK)]
            return self._start_tasks(out, tasks, ahead)
        check_vector("index", ids)
        check_ids("index", ids, self.count(), IndexError)
        out = buffers.empty((ids.numel(), *self.size()), self._dtype)
        rows = ids.to("cpu", torch.int64).contiguous().numpy()
        order = np.argsort(rows)
        by_id, places = torch.from_numpy(rows[order]), torch.from_numpy(order)
        parts = self._split(ids.numel(), ROWS_PER_TASK)
        tasks = [partial(self._read_rows, by_id[begin:end], out, places[begin:end]) for begin, end in parts]
        return self._start_tasks(out, tasks, ahead)

    def _split(self, length: int, least: int) -> list[tuple[int, int]]:
        """Return where the parts of a length begin and end: one a thread, or fewer that are no shorter than `least`."""
        parts = max(1, min(self._threads, length // least))
        bounds = [length * part // parts for part in range(parts + 1)]
        return list(pairwise(bounds))

    def _start_tasks(self, out: torch.Tensor, tasks: Sequence[Callable[[], None]], ahead: bool) -> DeferredRead:
        pooled = len(tasks) if ahead else len(tasks) - 1
        futures = [self._pool().submit(task) for task in tasks[:pooled]]

        def wait() -> torch.Tensor:
            for task in tasks[pooled:]:
                task()
            self._join(futures)
            return out

        return DeferredRead(wait)

    def _read_rows(self, ids: torch.Tensor, out: torch.Tensor, places: torch.Tensor) -> None:
        read_rows(self._descriptor, self._start, ids, out, places)

    def _read_all(self, begin: int, end: int, out: torch.Tensor) -> None:
        read_bytes(self._descriptor, self._start + begin, out.view(-1).view(torch.uint8).numpy()[begin:end].data)

    def _join(self, futures: Sequence[Future[None]]) -> None:
        try:
            for future in futures:
                future.result(READ_TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(
                f"reading {self._path} took longer than {READ_TIMEOUT_SECONDS:.0f} s; is its file system still there?"
            ) from error

    def _pool(self) -> ThreadPoolExecutor:
        """Return this process's pool: threads don't survive a fork."""
        pool = self._pools.get(os.getpid())
        if pool is None:
            pool = self._pools.setdefault(os.getpid(), ThreadPoolExecutor(self._threads, "graphfeed-disk"))
        return pool


def read_header(file: BinaryIO, path: str) -> tuple[torch.Size, torch.dtype]:
    """Return shape and dtype of a `.npy` file, and leave the position where the rows begin."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError as error:
        raise ValueError(f"{path} is no .npy file: {error}; write it with numpy.save") from error
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_fortran_order, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"{path} holds objects ({dtype}), which would have to be unpickled; save numbers")
    if len(shape) < 2:
        raise ValueError(f"{path} must have 2 dimensions or more, but has {len(shape)}")
    if in_fortran_order:
        raise ValueError(
            f"{path} is in Fortran order, where rows don't lie together; save numpy.ascontiguousarray(...)"
        )
    if not dtype.isnative:
        raise ValueError(f"{path} holds {dtype.str}, which is not this machine's byte order; save it with .astype(...)")
    return torch.Size(shape), torch.from_numpy(np.empty(0, dtype)).dtype


def release(descriptor: int, pools: dict[int, ThreadPoolExecutor]) -> None:
    """Close the file and end this process's threads, which are idle: a task keeps its feature alive."""
    os.close(descriptor)
    if pool := pools.get(os.getpid()):
        pool.shutdown(wait=False)
