"""What one run of a pipeline shares: who computes, whether anyone still reads, and who watches.

Stages hold nothing of a run: one that the loader inserted asks for the context when it begins (`current_run`). A thread
that a stage starts gets it there. At the end of an epoch all such threads have ended. An exception travels in its
mini-batch's place, and the rest is cancelled. A loop that is left, by `break`, an exception or the collector, cancels
the run: waits end, what has not begun is dropped, and a stage at work ends with its mini-batch, which is dropped.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary, WeakSet

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import OBSERVER, Observer, Side
from graphfeed.loader.profile import EpochRecord
from graphfeed.loader.transport.thread_channel import wait_in_steps
from graphfeed.ops.process import Changes

P = ParamSpec("P")
T = TypeVar("T")

END = object()


@runtime_checkable
class LeavesRun(Protocol):
    """A stage that tells others when a run ends, so that those need not wait for it until a timeout."""

    def leave_run(self) -> None:
        """Tell them; called once, at the end of the run, however it ends."""


@dataclass(eq=False)
class RunContext:
    """The context that the parts of one run share: executor, observer and cancellation."""

    executor: Executor | None = None
    """Runs the workers' side of the pipeline; None runs it where the pipeline is iterated."""
    observer: Observer | None = None
    record: EpochRecord | None = None
    """What is measured, if somebody wants to know; its recorder is the observer."""
    process: int = field(default_factory=os.getpid)
    """The process whose threads run it."""
    cancelled: bool = field(default=False, init=False)
    """Whether nobody reads any more."""
    changes: Changes = field(default_factory=Changes, init=False)
    """Wakes those who wait in this run."""
    parts: "WeakSet[RunContext]" = field(default_factory=WeakSet, init=False)
    """Those that run ahead in threads."""
    last_calls: deque[Callable[[], Any]] = field(default_factory=deque, init=False)

    @property
    def is_here(self) -> bool:
        """Whether this process began the run, rather than the one that it was forked from."""
        return os.getpid() == self.process

    def cancel(self) -> None:
        """Let those who wait in this run stop."""
        if not self.is_here:
            return  # A forked process lacks those who wait, and the threads that may have held their locks.
        self.cancelled = True
        self.changes.notify_all()
        while self.last_calls:
            try:
                last = self.last_calls.popleft()
            except IndexError:  # another thread has taken it
                break
            last()
        for part in list(self.parts):
            part.cancel()

    def when_cancelled(self, function: Callable[[], Any]) -> None:
        """Call a function once nobody reads any more."""
        self.last_calls.append(function)
        if self.cancelled:
            self.cancel()

    def nested(self) -> "RunContext":
        """Return the context of a part that runs ahead in a thread: cancelled with this one, or by itself."""
        part = replace(self)
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
        # Set anew for each mini-batch, so that the caller's loop between two of them is not in the context.
        run, observer = RUN.set(self), OBSERVER.set(self.observer)
        try:
            return function(*arguments)
        finally:
            OBSERVER.reset(observer)
            RUN.reset(run)

    def wait(self, cut: Datapipe, side: Side, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that waits for the other side of a cut; raise a RuntimeError in a forked process."""
        if not self.is_here:
            raise RuntimeError(
                "this iterator belongs to the process that this one was forked from, and so do its workers; begin "
                "another one here, with iter(loader)"
            )
        if self.observer is None:
            return function(*args, **kwargs)
        self.observer.wait_begin(cut, side)
        try:
            return function(*args, **kwargs)
        finally:
            self.observer.wait_end(cut, side)


class Arrivals:
    """Knows which futures of a run are done, and waits for them.

    Asking a future would take its lock, which Ctrl-C may leave held: then the worker that completes it would hang.

    Example:
        >>> future, arrivals = Future(), Arrivals(RunContext())
        >>> future.add_done_callback(arrivals.note)
        >>> future.set_result(1)
        >>> future in arrivals, arrivals.wait_for(future, 1)
        (True, True)
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        # The ids of futures, because a future refers to its callbacks: results are freed without the garbage collector.
        self._done: set[int] = set()
        self._awaited = 0

    def note(self, future: "Future[Any]") -> None:
        """Note that a future is done. Make it a callback before others have the future, or within `uninterrupted`."""
        self._done.add(id(future))
        if self._awaited == id(future):
            self._run.changes.notify_all()

    def __contains__(self, future: "Future[Any]") -> bool:
        return id(future) in self._done

    def forget(self, *futures: "Future[Any]") -> None:
        """Drop what is known of futures that nobody needs any more: others may get their ids."""
        self._done.difference_update(map(id, futures))

    def wait_for(self, future: "Future[Any]", timeout_seconds: float) -> bool:
        """Wait until a future is done, or the time has passed; return False, sooner, if the run is cancelled."""
        run, self._awaited = self._run, id(future)
        wait_in_steps(run.changes, lambda: future in self or run.cancelled, timeout_seconds)
        return not run.cancelled


RUN: ContextVar[RunContext | None] = ContextVar("graphfeed_run", default=None)

RUN_OF: WeakKeyDictionary[Datapipe, RunContext] = WeakKeyDictionary()
"""The run of each stage that a loader iterates, for stages of users that iterate others in threads of their own."""


def current_run(stage: Datapipe | None = None) -> RunContext:
    """Return the context of what this thread runs; a pipeline without a loader has one without an executor."""
    return RUN.get() or (RUN_OF.get(stage) if stage is not None else None) or RunContext()
