"""A part of a pipeline in threads of this process, behind workers that are none."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.loader.in_workers import InWorkers


class InThreads(Datapipe):
    """Runs the transforms before it, up to the first other stage, in threads, and yields their mini-batches in order.

    As many mini-batches are in flight as there are threads, and one more, so that none waits for the reader.
    """

    datapipe: Datapipe
    num_threads: int
    timeout_seconds: float = field(default=600.0, repr=False)

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Start the threads, run, end them."""
        with ThreadPoolExecutor(self.num_threads, thread_name_prefix="graphfeed-fetch") as threads:
            yield from InWorkers(self.datapipe, self.num_threads, self.num_threads + 1, self.timeout_seconds, threads)

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)
