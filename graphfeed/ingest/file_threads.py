"""Reads several files at the same time, in threads. What they hold comes in the order of the files."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from graphfeed.loader.executors.process_executor import available_cores

IN_FLIGHT = 8
"""The files that are read ahead may be one in so many of all bytes, because they take memory beside the result."""

T = TypeVar("T")


def threads_for(paths: Sequence[Path], most: int | None = None) -> int:
    """Return how many threads to read files with: 1 if there are few, or some are compressed and others aren't.

    Args:
        paths: The files, which must exist.
        most: The most threads; by default one for each core, shared with the other ranks of this machine.

    Example:
        >>> threads_for([Path(__file__)], most=8)
        1
    """
    if len({path.suffix == ".gz" for path in paths}) != 1:
        return 1  # Nobody knows how sizes compare.
    sizes = [path.stat().st_size for path in paths]
    ahead = sum(sizes) // (IN_FLIGHT * max(*sizes, 1))
    return max(min(own_cores() if most is None else most, ahead - 1), 1)


def own_cores(processes: int = 1) -> int:
    """Return how many cores a process may use that works beside others and beside the other ranks of this machine."""
    return max(available_cores() // (processes * max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)), 1)


def read_in_threads(paths: Sequence[Path], read: Callable[[Path], T], threads: int) -> Iterator[T]:
    """Yield what each file holds, in order. One file more than there are threads is in flight at most.

    Raises:
        Exception: What `read` raised for the first of the files that it raised for.
    """
    with ThreadPoolExecutor(threads, "graphfeed-read") as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for path in paths:
                waiting.append(pool.submit(read, path))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
