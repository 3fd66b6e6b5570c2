"""What threads of this process do with each mini-batch that comes from workers elsewhere."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.loader.executors.process_executor import available_cores
from graphfeed.loader.executors.worker_task import WorkerTask
from graphfeed.loader.run import current_run
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
        run = current_run()
        if run.executor is None:
            yield from self.datapipe
            return
        workers, stages = transforms_before(self)
        assert isinstance(workers, InWorkers)
        side = workers.worker_side(run.executor, run.observer)
        fetch = WorkerTask(None, stages)

        def finish(result: Any) -> Any:
            return fetch(side.receive(result), run.observer)

        def submit(task: Any) -> "tuple[Future[Any], Future[Any]]":
            sampled = side.submit(task)
            return sampled, then(sampled, threads, finish)

        count = min(workers.window, max(2, workers.num_workers, available_cores()))
        threads = ThreadPoolExecutor(count, thread_name_prefix="graphfeed-fetch")
        try:
            yield from workers.in_order(run, side.tasks, submit, workers.window + count)
        finally:
            threads.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)


def then(first: "Future[Any]", threads: ThreadPoolExecutor, function: Callable[[Any], Any]) -> "Future[Any]":
    """Return the future of what a function, called in a thread, makes of another future's result.

    A failure of either is the new future's. Nothing here refers to `first`, which refers to the rest, so that results
    are freed without the collector.
    """
    second: Future[Any] = Future()

    def begin(first: "Future[Any]") -> None:
        # Who reads may have left, and ended the threads.
        with suppress(RuntimeError):
            threads.submit(partial(complete, second, function), first)

    first.add_done_callback(begin)
    return second


def complete(second: "Future[Any]", function: Callable[[Any], Any], first: "Future[Any]") -> None:
    """Set a future to what a function makes of another one's result, unless it was cancelled meanwhile."""
    if not second.set_running_or_notify_cancel():
        return
    try:
        result = function(first.result())
    except BaseException as error:
        second.set_exception(error)
    else:
        second.set_result(result)
