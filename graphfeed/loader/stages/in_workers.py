"""The cut: the stages before it run in workers, those right after it possibly in threads."""

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, TypeAlias
from uuid import uuid4

from graphfeed.datapipes import Datapipe, Shardable, Transform, length
from graphfeed.datapipes.pipeline import keep_streams, torch_shard
from graphfeed.loader.executors.cores import available_cores
from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.executors.worker_task import WorkerTask, pack_work, work_packed
from graphfeed.loader.run import Arrivals, RunContext, current_run
from graphfeed.loader.transport.pickling import dump
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.ops.process import in_one_step, uninterrupted

Submit = Callable[..., Future[Any]]
"""Submits a task, with callbacks that are called with its future when that is done."""


Pending: TypeAlias = "deque[tuple[Any, tuple[Future[Any], ...]]]"
"""The tasks in flight, in order, each with its futures: the last one has the result."""


def unchanged(result: Any) -> Any:
    return result


class ByIndex(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Marks a source whose mini-batches any worker can build from their index."""

    datapipe: Datapipe

    @property
    def source(self) -> Shardable:
        """The marked source."""
        assert isinstance(self.datapipe, Shardable)
        return self.datapipe

    def __iter__(self) -> Iterator[Any]:
        return iter(self.datapipe)

    def __len__(self) -> int:
        return len(self.source)


class InWorkers(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Runs the transforms before it in the run's executor, and yields their mini-batches in order.

    At most `in_flight` of them are in flight. Without an executor, the transforms run in this thread.
    """

    datapipe: Datapipe
    num_workers: int
    in_flight: int
    """Maximum number of mini-batches in flight."""
    servers: tuple[str, ...] = ()
    """Addresses of the servers that replace workers."""
    timeout_seconds: float = field(default=600.0, repr=False)
    is_measured: bool = field(default=False, repr=False)
    """Whether workers in other processes also return the times of their stages."""
    pins: bool = field(default=False, repr=False)
    """Whether workers are threads that pin large results."""
    seed: int = field(default=0, repr=False)
    epoch: int = field(default=0, repr=False)
    start: int = field(default=0, repr=False)

    def keyed(self, seed: int, epoch: int, start: int) -> "InWorkers":
        """Return the same stage for a seed and an epoch, starting at mini-batch `start`."""
        return self.changed(seed=seed, epoch=epoch, start=start)

    def __len__(self) -> int:
        return length(self.datapipe)

    def __iter__(self) -> Iterator[Any]:
        run = current_run(self)
        yield from self.datapipe if run.executor is None else self.in_order(run)

    def tasks(self) -> Iterator[Any]:
        """Yield (seed, epoch, index), or mini-batches if the source has no `ByIndex`; a `Failure` comes last."""
        head, _ = transforms_before(self)
        if not isinstance(head, ByIndex):
            return with_failure(head)
        worker, num_workers = torch_shard()
        mine = (index for index in range(self.start, len(head)) if index % num_workers == worker)
        return ((self.seed, self.epoch, index) for index in mine)

    def make_submit(self, run: RunContext) -> "tuple[Submit, Callable[[Any], Any]]":
        """Return a function that submits a task to the run's executor, and one from its result to the mini-batch."""
        executor, observer, cut, unwrap = run.executor, run.observer, self, unchanged
        assert executor is not None
        if run.record is not None:
            cut, unwrap = self.changed(is_measured=True), run.record.unwrap
        if run.pins and isinstance(executor, (ThreadExecutor, ThreadPoolExecutor)):
            cut = cut.changed(pins=True)
        if isinstance(executor, (ThreadExecutor, ProcessExecutor)):
            return submit_own(executor.make_submit(cut, observer)), unwrap
        work = cut.work()
        if isinstance(executor, ThreadPoolExecutor):
            return submit_to(lambda task: in_one_step(executor.submit, work, task, observer)), unwrap
        packed = pack_work(work)
        # Other executors may serialize Python objects in their own way, but keep bytes unchanged. Some, such as Dask,
        # merge equal calls: without an id, leaving an epoch would cancel the tasks of a later run of the same epoch.
        run_id = uuid4().hex
        return (
            submit_to(lambda task: executor.submit(work_packed, packed, dump((run_id, task)))),
            lambda result: unwrap(pickle.loads(result)),
        )

    def work(self) -> WorkerTask:
        """Return the function that workers call with each task, the same for every epoch, so it is unpickled only once.

        Its source is None if the source can't build mini-batches from their index.
        """
        head, stages = transforms_before(self)
        source = head.source.keyed(0, 0, 0) if isinstance(head, ByIndex) else None
        assert source is None or isinstance(source, Shardable)
        return WorkerTask(source, detach(head, stages), self.is_measured, self.pins)

    def in_order(
        self, run: RunContext, more: int = 0, finish: Callable[..., Any] = unchanged
    ) -> Generator[Any, None, None]:
        """Yield mini-batches in order, with up to `in_flight` of them in workers.

        `more` is a number of threads that apply `finish` to the results of workers, each to one mini-batch at a time.
        """
        record, most, arrivals = run.record, self.in_flight + more, Arrivals(run)
        submit, receive = self.make_submit(run)
        if record is not None:
            submit = record.watch_trips(submit)
        threads = ThreadExecutor(more, "graphfeed-fetch") if more else None
        if threads is None:
            begin = partial(begin_one, submit, arrivals)
        else:
            begin = partial(begin_both, submit, arrivals, threads, lambda result: finish(receive(result), run.observer))
        begun = ((task, () if isinstance(task, Failure) else begin(task)) for task in self.tasks())
        wait_for = partial(self.wait_for, arrivals, getattr(run.executor, "start_seconds", 0.0))
        pending: Pending = deque()
        try:
            pending.extend(islice(begun, most))
            while pending:
                task, futures = pending[0]
                # Failure: raised instead of its mini-batch. A failure of the source is the last task.
                if isinstance(task, Failure):
                    raise task.error
                # Cancellation by a reader in another thread: the result is not needed.
                if not run.wait(self, "reader", wait_for, *futures):
                    return
                if record is not None:
                    ready = sum(bool(others) and others[-1] in arrivals for _, others in pending)
                    record.watch_pending(len(pending), ready)
                result = self.result_of(pending, arrivals, run.executor if threads is None else threads)
                # Success: another task is submitted before the mini-batch is yielded, so that workers stay busy.
                pending.popleft()
                arrivals.forget(*futures)
                pending.extend(islice(begun, most - len(pending)))
                yield receive(result) if threads is None else result
        finally:
            # After a failure, or when a reader closes this generator: pending tasks are dropped, and running ones are
            # not waited for. A forked process has no workers, and does not touch the futures' locks.
            if run.is_here:
                cancel_all(pending)
            if threads is not None:
                threads.shutdown(cancel_futures=True)

    def wait_for(self, arrivals: Arrivals, start_seconds: float, first: "Future[Any]", *rest: "Future[Any]") -> bool:
        """Wait until the futures of a task are done or the time is over; return False if the run is cancelled."""
        # Only workers may have to start first. If their future is not done in time, the others are not waited for.
        going = arrivals.wait_for(first, self.timeout_seconds + start_seconds)
        return going and all(arrivals.wait_for(each, self.timeout_seconds) for each in rest if first in arrivals)

    def result_of(self, pending: "Pending", arrivals: Arrivals, executor: Executor | None) -> Any:
        """Return the result of the first task's last future; errors name the task, and the stages that hang."""
        task, (*before, last) = pending[0]
        is_done = last in arrivals
        try:
            if not is_done:
                raise TimeoutError
            return last.result(0)
        except (WorkerLostError, TimeoutError) as error:
            if is_done:
                error.add_note(f"while computing {minibatch_name(task)}")
                raise
            at_work: list[str] = []
            if isinstance(executor, ThreadExecutor) and all(future in arrivals for future in before):
                # Before another thread replaces this one: it would begin tasks whose results are not needed.
                cancel_all(pending)
                at_work = executor.abandon(last)
            workers = "the worker" if self.num_workers == 1 else f"the {self.num_workers} workers"
            raise TimeoutError(
                f"{workers} finished no mini-batch for {self.timeout_seconds:g} s, waiting for "
                f"{minibatch_name(task)}{''.join(f'; {work}' for work in at_work)}; a stage hangs, or is slower than "
                "that: give the DataLoader a larger timeout"
            ) from error


class UpstreamPlaceholder(Datapipe, inserted=True, seeded=False):
    """Stands in for stages that run elsewhere, for example in a pipeline that is sent to a worker."""

    last_position: int
    minibatches: Iterable[Any] = ()
    """The output of those stages, if a part of a pipeline is iterated without them."""

    def __post_init__(self) -> None:
        self.__dict__["position"] = self.last_position

    def __iter__(self) -> Iterator[Any]:
        return iter(self.minibatches)


def detach(head: Datapipe, stages: tuple[Transform, ...], minibatches: Iterable[Any] = ()) -> tuple[Transform, ...]:
    """Return copies of stages without those before them, which may not be picklable, or belong to an epoch."""
    detached: list[Transform] = []
    end: Datapipe = UpstreamPlaceholder(head.position, minibatches)
    for stage in stages:

        def swap(source: Datapipe, old: Datapipe = stage.datapipe, new: Datapipe = end) -> Datapipe:
            return new if source is old else source

        detached.append(keep_streams(stage).with_inputs(swap))
        end = detached[-1]
    return tuple(detached)


class InThreads(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Runs the transforms between it and the workers before it in threads, and yields their mini-batches in order.

    A thread starts on a mini-batch as soon as its worker is done, without waiting for other mini-batches or the reader.
    There is one thread per worker or core, whichever is more, but at most one per mini-batch in flight. Each of them
    allows one more mini-batch in flight, so that the threads don't keep workers waiting.
    """

    datapipe: Datapipe

    def __iter__(self) -> Iterator[Any]:
        run = current_run(self)
        if run.executor is None:
            yield from self.datapipe
            return
        workers, stages = transforms_before(self)
        assert isinstance(workers, InWorkers)
        count = min(workers.in_flight, max(2, workers.num_workers, available_cores()))
        yield from workers.in_order(run, count, WorkerTask(None, stages, pins=run.pins))

    def __len__(self) -> int:
        return length(self.datapipe)


def submit_own(pass_on: "Callable[[Any, Future[Any]], None]") -> Submit:
    """Return a `Submit` function for graphfeed's executors, which complete a given future."""

    def submit(task: Any, *callbacks: "Callable[[Future[Any]], object]") -> "Future[Any]":
        future: Future[Any] = Future()
        for callback in callbacks:
            future.add_done_callback(callback)
        # Workers get the future only now, so that Ctrl-C above can't leave a lock held that a worker needs.
        pass_on(task, future)
        return future

    return submit


def submit_to(pass_on: "Callable[[Any], Future[Any]]") -> Submit:
    """Return a `Submit` function for executors that create the futures themselves."""

    def submit(task: Any, *callbacks: "Callable[[Future[Any]], object]") -> "Future[Any]":
        future = pass_on(task)
        with uninterrupted():
            for callback in callbacks:
                future.add_done_callback(callback)
        return future

    return submit


def begin_one(submit: Submit, arrivals: Arrivals, task: Any) -> "tuple[Future[Any], ...]":
    """Submit a task to the workers, and return its only future."""
    return (submit(task, arrivals.record),)


def begin_both(
    submit: Submit, arrivals: Arrivals, threads: ThreadExecutor, finish: Callable[[Any], Any], task: Any
) -> "tuple[Future[Any], ...]":
    """Submit a task to the workers, and then its result to threads that finish it. Return the futures of both."""
    second: Future[Any] = Future()
    second.add_done_callback(arrivals.record)
    return submit(task, arrivals.record, then(second, threads, finish)), second


def cancel_all(pending: "Pending") -> None:
    with uninterrupted():
        for _, futures in pending:
            for future in futures:
                future.cancel()


def then(
    second: "Future[Any]", threads: ThreadExecutor, function: Callable[[Any], Any]
) -> "Callable[[Future[Any]], None]":
    """Return a callback that completes `second` in a thread: with the function applied to the first future's result."""

    # No object here may keep a reference to `first`, which refers to the others: without a cycle, results are freed
    # immediately rather than by the garbage collector.
    def begin(first: "Future[Any]") -> None:
        # The threads may have been shut down after the reader left.
        with suppress(RuntimeError):
            threads.complete(second, lambda: function(first.result()))

    return begin


def chain_of(stage: Datapipe) -> Iterator[Transform]:
    # Starts with the last transform.
    while isinstance(stage, Transform):
        yield stage
        stage = stage.datapipe


def transforms_before(last: Datapipe) -> tuple[Datapipe, tuple[Transform, ...]]:
    """Return the stage before the transforms that precede a stage, and these transforms in order."""
    (source,) = last.inputs
    stages = tuple(chain_of(source))[::-1]
    return stages[0].datapipe if stages else source, stages


def with_failure(source: Datapipe) -> Generator[Any, None, None]:
    try:
        yield from source
    except Exception as error:
        # Yielded like a mini-batch, so that those before it are not lost.
        yield Failure(error)


def minibatch_name(task: Any) -> str:
    """Return the name of a task's mini-batch for messages."""
    if isinstance(task, tuple):
        _, epoch, index = task
    else:
        key = getattr(task, "key", None)
        if key is None:
            return "a mini-batch"
        epoch, index = key.epoch, key.index
    return f"mini-batch {index} of epoch {epoch}"
