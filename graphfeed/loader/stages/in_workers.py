"""The cut: what comes before it runs in workers."""

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import field
from functools import partial
from itertools import chain, islice
from typing import Any

from graphfeed.datapipes.datapipe import Datapipe, Shardable, length
from graphfeed.datapipes.transform import Transform
from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.pace import Pace
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.worker_task import WorkerTask, work_here, work_packed
from graphfeed.loader.stages.sharder import Sharder
from graphfeed.loader.stages.upstream_placeholder import detach
from graphfeed.loader.transport.pickling import dump
from graphfeed.loader.transport.thread_channel import STEPS, Failure, ThreadChannel


class InWorkers(Datapipe):
    """Runs the transforms before it in an executor and yields their mini-batches in order.

    A bounded window of mini-batches is in flight. A failure comes out in its mini-batch's place. When the iteration
    ends early, what has not begun is cancelled. Without an executor the stages run here, and so they do for as long as
    handing a mini-batch over would cost more than making it.
    """

    datapipe: Datapipe
    num_workers: int
    window: int
    """How many mini-batches are in flight at most."""
    timeout_seconds: float = field(default=600.0, repr=False)
    executor: Executor | None = field(default=None, repr=False)
    pace: Pace | None = field(default=None, repr=False)
    """Tells when mini-batches are better made here than by a thread; None hands all of them over."""
    reader: ThreadChannel | None = field(default=None, repr=False)
    """Where the mini-batches go, if that is a thread's channel: once it is closed, nobody waits for workers."""
    behind: Callable[[Callable[[], Any], "Future[Any]"], "Future[Any]"] | None = field(default=None, repr=False)
    """Takes what gives a worker's mini-batch and the future to wait for before; returns that of what becomes of it."""
    seed: int = field(default=0, repr=False)
    epoch: int = field(default=0, repr=False)
    start: int = field(default=0, repr=False)

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Submit, wait, yield, in order."""
        if self.executor is None:
            yield from self.datapipe
            return
        head, stages = transforms_before(self)
        stages = detach(head, stages)
        if isinstance(head, Sharder):
            # Nothing of an epoch is in the work, so that a process unpacks it once and not every epoch.
            source = head.source.keyed(0, 0, 0)
            assert isinstance(source, Shardable)
            work = WorkerTask(source, stages)
            tasks: Iterator[Any] = ((self.seed, self.epoch, index) for index in range(self.start, len(head)))
        else:
            work = WorkerTask(None, stages)
            tasks = with_failure(head)
        submit = self.submitter(self.executor, work)
        for task in tasks:
            if not self.stays():
                left = chain((task,), tasks)
                # It may be a mini-batch, which nobody is to keep here.
                del task
                if not (yield from self.hand_over(left, submit)):
                    return
            elif isinstance(task, Failure):
                raise task.error
            else:
                yield self.run(work, task)

    def hand_over(
        self, tasks: Iterator[Any], submit: Callable[[Any], tuple[Any, "Future[Any]", Callable[[], Any]]]
    ) -> Generator[Any, None, bool]:
        """Yield what workers make of tasks, until the tasks end or are better done here; False where nobody reads."""
        pending: deque[tuple[Any, Future[Any], Callable[[], Any]]] = deque()
        try:
            pending.extend(submit(task) for task in islice(tasks, self.window))
            while pending:
                task, future, take = pending.popleft()
                if isinstance(task, Failure):
                    raise task.error
                if not self.wait_for(future):
                    future.cancel()
                    return False
                minibatch = take()
                more = 0 if self.stays() else self.window - len(pending)
                pending.extend(submit(task) for task in islice(tasks, more))
                yield minibatch
            return True
        finally:
            for _, future, _ in pending:
                future.cancel()

    def stays(self) -> bool:
        """Tell whether the next mini-batch is better made here."""
        return self.pace is not None and self.pace.quick

    def run(self, work: WorkerTask, task: Any) -> Any:
        """Make a mini-batch in this thread, whichever it is."""
        return work(task) if self.pace is None else self.pace.timed(work, task)

    def submitter(
        self, executor: Executor, work: WorkerTask
    ) -> Callable[[Any], tuple[Any, "Future[Any]", Callable[[], Any]]]:
        """Return how a task begins: what it is, the future to wait for, and what then gives its mini-batch."""
        start, finish = self.transport(executor, work)

        def submit(task: Any) -> tuple[Any, Future[Any], Callable[[], Any]]:
            if isinstance(task, Failure):
                return task, Future(), Future().result
            future = start(task)

            def take() -> Any:
                return finish(self.result_of(task, future))

            if self.behind is None:
                return task, future, take
            last = self.behind(take, future)
            return task, last, partial(self.result_of, task, last)

        return submit

    def transport(
        self, executor: Executor, work: WorkerTask
    ) -> tuple[Callable[[Any], "Future[Any]"], Callable[[Any], Any]]:
        """Return how a task is submitted and how its result is received: as it is, or as bytes by a foreign engine."""
        if isinstance(executor, ThreadPoolExecutor):
            return lambda task: executor.submit(self.run, work, task), lambda result: result
        packed = pickle.dumps(work, protocol=5)
        if isinstance(executor, ProcessExecutor):
            return lambda task: executor.submit(work_here, packed, task), lambda result: result
        return lambda task: executor.submit(work_packed, packed, dump(task)), pickle.loads

    def keyed(self, seed: int, epoch: int, start: int) -> "InWorkers":
        """Return the same stage for a seed and an epoch, from a mini-batch on."""
        return self.changed(seed=seed, epoch=epoch, start=start)

    def wait_for(self, future: "Future[Any]") -> bool:
        """Wait until a future is done, or time has passed; return False where nobody reads any more."""
        if self.reader is not None:
            return self.reader.wait_for(future, self.timeout_seconds)
        for _ in range(STEPS):
            try:
                future.exception(self.timeout_seconds / STEPS)
            except TimeoutError:
                continue
            break
        return True

    def result_of(self, task: Any, future: "Future[Any]") -> Any:
        """Return a future's result, or say who did not answer."""
        try:
            return future.result(0)
        except (WorkerLostError, TimeoutError) as error:
            note = f"while it made {describe_task(task)}"
            if future.done():
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
                raise
            raise TimeoutError(
                f"the {self.num_workers} workers finished no mini-batch for {self.timeout_seconds:g} s; "
                "a stage hangs, or is slower than that: give the DataLoader a larger timeout"
            ) from error

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)


def transforms_before(last: Datapipe) -> tuple[Datapipe, tuple[Transform, ...]]:
    """Return what comes before the transforms that a stage follows, and those in order."""
    stages: list[Transform] = []
    (source,) = last.inputs
    while isinstance(source, Transform):
        stages.append(source)
        source = source.datapipe
    return source, tuple(reversed(stages))


def with_failure(source: Datapipe) -> Iterator[Any]:
    """Yield what a source gives; a failure of its own is the last, so that what it gave before is not lost."""
    try:
        yield from source
    except Exception as error:
        yield Failure(error)


def describe_task(task: Any) -> str:
    """Name the mini-batch that a worker was asked for."""
    if isinstance(task, tuple):
        _, epoch, index = task
    else:
        key = getattr(task, "key", None)
        if key is None:
            return "a mini-batch"
        epoch, index = key.epoch, key.index
    return f"mini-batch {index} of epoch {epoch}"
