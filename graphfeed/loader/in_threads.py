"""What threads of this process do with each mini-batch that comes from workers elsewhere."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.datapipes.transform import call
from graphfeed.loader.channel import ThreadChannel
from graphfeed.loader.in_workers import InWorkers, transforms_before


class InThreads(Datapipe):
    """Runs the transforms between it and the workers before it in threads, and yields their mini-batches in order.

    Each mini-batch that is in flight has a thread, which waits for the worker that makes it: so none waits for another
    one, or for the reader.
    """

    datapipe: Datapipe

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Start the threads, run, end them."""
        workers, stages = transforms_before(self)
        assert isinstance(workers, InWorkers)
        if workers.executor is None:
            yield from self.datapipe
            return
        # Nothing goes through it: closing it wakes the threads that wait for workers.
        leaving = ThreadChannel(1)

        def work(take: Callable[[], Any], future: "Future[Any]") -> Any:
            # The reader's wait, which is for one after the other, has the time limit: here some wait for their turn.
            while not future.done():
                if not leaving.wait_for(future, workers.timeout_seconds):
                    future.cancel()
                    raise CancelledError
            minibatch = take()
            for stage in stages:
                minibatch = call(stage, minibatch)
            return minibatch

        with ThreadPoolExecutor(workers.window, thread_name_prefix="graphfeed-fetch") as threads:
            try:
                yield from workers.changed(behind=lambda take, future: threads.submit(work, take, future))
            finally:
                leaving.close()

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)
