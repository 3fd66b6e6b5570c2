"""What one run of a pipeline shares: who computes, whether anyone still reads, and who watches.

Stages hold nothing of a run: one that the loader inserted asks for the context when it begins (`current_run`). A thread
that a stage starts gets it there. At the end of an epoch all such threads have ended. An exception travels in its
mini-batch's place, and the rest is cancelled. A loop that is left, by `break`, an exception or the collector, cancels
the run: waits end, what has not begun is dropped, and a stage at work ends with its mini-batch, which is dropped.
"""

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, InvalidStateError, wait
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary, WeakSet

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import OBSERVER, Observer, Side
from graphfeed.loader.profile import EpochRecord
from graphfeed.loader.transport.thread_channel import STEPS

P = ParamSpec("P")
T = TypeVar("T")

END = object()


@runtime_checkable
class LeavesRun(Protocol):
    """A stage that tells others when a run ends, so that those need not wait for it until a timeout."""

    def leave_run(self) -> None:
        """Tell them; called once, at the end of the run, however it ends."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """The context that the parts of one run share: executor, observer and cancellation."""

    executor: Executor | None = None
    """Runs the workers' side of the pipeline; None runs it where the pipeline is iterated."""
    observer: Observer | None = None
    record: EpochRecord | None = None
    """What is measured, if somebody wants to know; its recorder is the observer."""
    cancelled: "Future[None]" = field(default_factory=Future)
    """Done once nobody reads any more."""
    parts: "WeakSet[RunContext]" = field(default_factory=WeakSet)
    """Those that run ahead in threads."""
    process: int = field(default_factory=os.getpid)
    """The process whose threads run it."""

    @property
    def is_here(self) -> bool:
        """Whether this process began the run, rather than the one that it was forked from."""
        return os.getpid() == self.process

    def cancel(self) -> None:
        """Let those who wait in this run stop."""
        if not self.is_here:
            return  # A forked process lacks those who wait, and the threads that may have held their locks.
        with suppress(InvalidStateError):
            self.cancelled.set_result(None)
        for part in list(self.parts):
            part.cancel()

    def when_cancelled(self, function: Callable[[], Any]) -> None:
        """Call a function once nobody reads any more."""
        self.cancelled.add_done_callback(lambda _: function())

    def nested(self) -> "RunContext":
        """Return the context of a part that runs ahead in a thread: cancelled with this one, or by itself."""
        part = replace(self, cancelled=Future(), parts=WeakSet())
        self.parts.add(part)
        if self.cancelled.done():
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

    def wait_for(self, future: "Future[Any]", timeout_seconds: float) -> bool:
        """Wait until a future is done, or the time has passed; return False, sooner, if the run is cancelled."""
        # wait() is not told of a future that is cancelled before it runs; a callback is.
        ended: Future[None] = Future()
        future.add_done_callback(lambda _: ended.set_result(None))
        for _ in range(STEPS):
            if ended.done() or self.cancelled.done():
                break
            wait((ended, self.cancelled), timeout_seconds / STEPS, FIRST_COMPLETED)
        return not self.cancelled.done()


RUN: ContextVar[RunContext | None] = ContextVar("graphfeed_run", default=None)

RUN_OF: WeakKeyDictionary[Datapipe, RunContext] = WeakKeyDictionary()
"""The run of each stage that a loader iterates, for stages of users that iterate others in threads of their own."""


def current_run(stage: Datapipe | None = None) -> RunContext:
    """Return the context of what this thread runs; a pipeline without a loader has one without an executor."""
    return RUN.get() or (RUN_OF.get(stage) if stage is not None else None) or RunContext()
