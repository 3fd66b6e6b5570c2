"""What threads of this process do with each mini-batch that comes from workers elsewhere."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.datapipes.transform import call
from graphfeed.loader.executors.process_executor import available_cores
from graphfeed.loader.stages.in_workers import InWorkers, transforms_before


class InThreads(Datapipe):
    """Runs the transforms between it and the workers before it in threads, and yields their mini-batches in order.

    A mini-batch has a thread from when its worker is done with it, so none waits for another one, or for the reader.
    There are as many threads as workers or cores, and as many mini-batches more are in flight: those that threads work
    on keep no worker waiting.
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
        waiting: dict[Future[Any], tuple[Callable[[], Any], Future[Any]]] = {}

        def work(take: Callable[[], Any], last: "Future[Any]") -> None:
            if not last.set_running_or_notify_cancel():
                return
            try:
                minibatch = take()
                for stage in stages:
                    minibatch = call(stage, minibatch)
            except BaseException as error:
                last.set_exception(error)
            else:
                last.set_result(minibatch)

        def go_on(future: "Future[Any]") -> None:
            # The reader may have left.
            if (both := waiting.pop(future, None)) is not None:
                with suppress(RuntimeError):
                    threads.submit(work, *both)

        def begin(take: Callable[[], Any], future: "Future[Any]") -> "Future[Any]":
            last: Future[Any] = Future()
            waiting[future] = take, last
            future.add_done_callback(go_on)
            return last

        count = min(workers.window, max(2, workers.num_workers, available_cores()))
        threads = ThreadPoolExecutor(count, thread_name_prefix="graphfeed-fetch")
        try:
            yield from workers.changed(window=workers.window + count, behind=begin)
        finally:
            for future in list(waiting):
                waiting.pop(future, None)
                future.cancel()
            threads.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)
