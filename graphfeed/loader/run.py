"""The context of one run of a pipeline: executor, cancellation and observer.

Stages store no state of a run: a stage that the loader inserted gets the context when it is iterated (`current_run`)
and passes it to the threads that it starts, all of which end by the end of the epoch. An exception takes the place of
its mini-batch, and the remaining ones are cancelled. Leaving a loop, by `break`, an exception or garbage collection,
cancels the run: waits end, pending tasks are dropped, and a running stage finishes its mini-batch, which is dropped.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import OBSERVER, Observer, Side
from graphfeed.loader.profile import EpochRecord
from graphfeed.loader.transport.thread_channel import wait_in_steps
from graphfeed.ops.memory import pinning
from graphfeed.ops.process import Changes
from graphfeed.storage.features import RowMemory

P = ParamSpec("P")
T = TypeVar("T")

END = object()


@dataclass(eq=False)
class RunContext:
    """The context that all stages of one run share: executor, observer, memory and cancellation."""

    executor: Executor | None = None
    """Runs the workers' side of the pipeline; None runs it where the pipeline is iterated."""
    observer: Observer | None = None
    record: EpochRecord | None = None
    """Measurements, if the run is profiled; the observer is then the record's recorder."""
    memories: dict[Any, RowMemory] = field(default_factory=dict)
    """Memory of rows that were read ahead, by stage. A loader passes it from run to run, so that rows stay."""
    pins: bool = False
    """Whether threads pin large results, because a later stage would pin them."""
    process: int = field(default_factory=os.getpid)
    """Id of the process that began the run."""
    cancelled: bool = field(default=False, init=False)
    """Whether the remaining mini-batches are no longer needed."""
    changes: Changes = field(default_factory=Changes, init=False)
    """Wakes the waiting threads of this run."""
    parts: "WeakSet[RunContext]" = field(default_factory=WeakSet, init=False)
    """Contexts of the stages that run ahead in threads."""
    last_calls: deque[Callable[[], Any]] = field(default_factory=deque, init=False)

    @property
    def is_here(self) -> bool:
        """Whether this process began the run, rather than a process that it was forked from."""
        return os.getpid() == self.process

    def cancel(self) -> None:
        """Cancel the run and its nested contexts, wake waiting threads, and call the functions of `when_cancelled`."""
        if not self.is_here:
            return  # A forked process has neither the waiting threads nor those that may hold their locks.
        self.cancelled = True
        self.changes.notify_all()
        while self.last_calls:
            try:
                last = self.last_calls.popleft()
            except IndexError:  # another thread removed it
                break
            last()
        for part in list(self.parts):
            part.cancel()

    def when_cancelled(self, function: Callable[[], Any]) -> None:
        """Call a function when the run is cancelled, or immediately if it already is."""
        self.last_calls.append(function)
        if self.cancelled:
            self.cancel()

    def nested(self, *, pins: bool = False) -> "RunContext":
        """Return a context for a thread that runs ahead. Cancelling this one cancels it too, but not vice versa."""
        part = replace(self, pins=self.pins or pins)
        self.parts.add(part)
        if self.cancelled:
            part.cancel()
        return part

    def drive(self, pipe: Iterable[Any]) -> Generator[Any, None, None]:
        """Iterate a pipeline in this context."""
        minibatches = self._call(iter, pipe)
        try:
            while (minibatch := self._call(next, minibatches, END)) is not END:
                yield minibatch
        finally:
            if hasattr(minibatches, "close"):
                minibatches.close()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # Set for each mini-batch, so that the caller's loop body does not run in the context.
        run, observer = RUN.set(self), OBSERVER.set(self.observer)
        try:
            if self.pins:
                with pinning():
                    return function(*arguments)
            return function(*arguments)
        finally:
            OBSERVER.reset(observer)
            RUN.reset(run)

    def wait(self, cut: Datapipe, side: Side, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that waits for the other side of a cut; raise a RuntimeError in a forked process."""
        if not self.is_here:
            raise RuntimeError(
                "this iterator and its workers belong to the process that this one was forked from; create another "
                "iterator here, with iter(loader)"
            )
        if self.observer is None:
            return function(*args, **kwargs)
        self.observer.wait_begin(cut, side)
        try:
            return function(*args, **kwargs)
        finally:
            self.observer.wait_end(cut, side)


class Arrivals:
    """The set of completed futures of a run, with a way to wait for them.

    `Future.done()` would take the future's lock. Ctrl-C may leave that locked, and the worker would then hang.

    Example:
        >>> future, arrivals = Future(), Arrivals(RunContext())
        >>> future.add_done_callback(arrivals.record)
        >>> future.set_result(1)
        >>> future in arrivals, arrivals.wait_for(future, 1)
        (True, True)
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        # Ids, as a future refers to its callbacks: without a cycle, results are freed without the garbage collector.
        self._done: set[int] = set()
        self._awaited = 0

    def record(self, future: "Future[Any]") -> None:
        """Record that a future is done. Register this callback before sharing the future, or within `uninterrupted`."""
        self._done.add(id(future))
        if self._awaited == id(future):
            self._run.changes.notify_all()

    def __contains__(self, future: "Future[Any]") -> bool:
        return id(future) in self._done

    def forget(self, *futures: "Future[Any]") -> None:
        """Remove futures that are no longer needed, because new futures may get their ids."""
        self._done.difference_update(map(id, futures))

    def wait_for(self, future: "Future[Any]", timeout_seconds: float) -> bool:
        """Wait until a future is done or the timeout expires; return False immediately if the run is cancelled."""
        run, self._awaited = self._run, id(future)
        wait_in_steps(run.changes, lambda: future in self or run.cancelled, timeout_seconds)
        return not run.cancelled

    def result(self, future: "Future[Any]", timeout_seconds: float) -> Any:
        """Wait for a future, forget it, and return its result. Raises a CancelledError if the run is cancelled."""
        if not self.wait_for(future, timeout_seconds):
            raise CancelledError
        if future not in self:
            raise TimeoutError(f"mini-batches were not sampled within {timeout_seconds:g} s (timeout)")
        self.forget(future)
        return future.result(0)


RUN_LISTENERS: WeakSet[Any] = WeakSet()
"""Objects whose `begin_run(pipe, seed, progress)` is called before a loader begins a run."""

RUN: ContextVar[RunContext | None] = ContextVar("graphfeed_run", default=None)

RUN_OF: WeakKeyDictionary[Datapipe, RunContext] = WeakKeyDictionary()
"""The run of each stage that a loader iterates, for user-defined stages that iterate others in their own threads."""


def current_run(stage: Datapipe | None = None) -> RunContext:
    """Return the run of this thread, or of the stage; a new one without an executor if there is no loader."""
    return RUN.get() or (RUN_OF.get(stage) if stage is not None else None) or RunContext()
