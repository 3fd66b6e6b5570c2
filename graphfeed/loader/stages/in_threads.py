"""Stages that threads of this process run on each mini-batch from worker processes."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from graphfeed.datapipes import Datapipe, length
from graphfeed.loader.executors.cores import available_cores
from graphfeed.loader.executors.thread_executor import ThreadExecutor
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
        run = current_run(self)
        if run.executor is None:
            yield from self.datapipe
            return
        workers, stages = transforms_before(self)
        assert isinstance(workers, InWorkers)
        side = workers.worker_side(run)
        fetch = WorkerTask(None, stages)

        def finish(result: Any) -> Any:
            return fetch(side.receive(result), run.observer)

        def submit(task: Any) -> "tuple[Future[Any], Future[Any]]":
            sampled = side.submit(task)
            return sampled, then(sampled, threads, finish)

        count = min(workers.window, max(2, workers.num_workers, available_cores()))
        threads = ThreadExecutor(count, "graphfeed-fetch")
        try:
            yield from workers.in_order(run, side.tasks, submit, workers.window + count, threads)
        finally:
            threads.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        return length(self.datapipe)


def then(first: "Future[Any]", threads: ThreadExecutor, function: Callable[[Any], Any]) -> "Future[Any]":
    """Return a future for the result of a function that a thread applies to another future's result."""
    second: Future[Any] = Future()

    # Nothing here may hold a reference to `first`, which holds references to the rest: without a cycle, results are
    # freed at once rather than by the garbage collector.
    def begin(first: "Future[Any]") -> None:
        # The reader may have left, and shut the threads down.
        with suppress(RuntimeError):
            threads.complete(second, lambda: function(first.result()))

    first.add_done_callback(begin)
    return second
