"""Stages that threads of this process run on each mini-batch from worker processes."""

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

    A thread takes a mini-batch as soon as its worker is done, so no mini-batch waits for another one or for the reader.
    There are as many threads as workers or cores. Each thread adds one to the number of mini-batches in flight, so the
    mini-batches that threads work on keep no worker waiting.
    """

    datapipe: Datapipe

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Start the threads, run the stages, end the threads."""
        run = current_run(self)
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
    """Return a future for the result of a function that a thread applies to another future's result.

    If either fails, so does the new future. Nothing here may hold a reference to `first`, which holds references to the
    rest: without a cycle, results are freed at once rather than by the garbage collector.
    """
    second: Future[Any] = Future()

    def begin(first: "Future[Any]") -> None:
        # The reader may have left, and shut the threads down.
        with suppress(RuntimeError):
            threads.submit(partial(complete, second, function), first)

    first.add_done_callback(begin)
    return second


def complete(second: "Future[Any]", function: Callable[[Any], Any], first: "Future[Any]") -> None:
    """Apply a function to a future's result and complete the second future, unless that was cancelled meanwhile."""
    if not second.set_running_or_notify_cancel():
        return
    try:
        result = function(first.result())
    except BaseException as error:
        second.set_exception(error)
    else:
        second.set_result(result)
