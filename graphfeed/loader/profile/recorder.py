"""Writes down when stages begin and end."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from torch.profiler import record_function

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import Observer, Side
from graphfeed.ops import Key

UNKNOWN = -1
"""The epoch and the index of a mini-batch without a key."""

FIRST_SERVER = 1 << 22
"""Servers count as processes from this number on. The numbers of their own processes may be those of some here."""


class Span(NamedTuple):
    """One call of a stage, or one wait at a cut. Times are nanoseconds of `time.perf_counter_ns`."""

    position: int
    """The position of the stage in the pipeline as written."""
    name: str
    """The class of the stage or the cut."""
    side: str
    """"reader" or "maker" for a wait at a cut, "" for a call of a stage."""
    epoch: int
    minibatch: int
    """Its index in the epoch."""
    begin: int
    end: int
    own: int
    """The time apart from that of spans within, in nanoseconds."""
    cpu: int
    """The CPU time of the thread apart from that of spans within, in nanoseconds."""
    process: int
    thread: int


@dataclass(frozen=True)
class Measured:
    """What a worker in another process sends while somebody measures: a mini-batch, and the spans of its stages."""

    minibatch: Any
    spans: Sequence[Span]

    def between(self, asked: int, answered: int, process: int) -> "Measured":
        """Return what a server sent with times of this machine's clock, and a span for the request.

        Request and answer are taken to have been on their way for as long as each other.
        """
        first, last = min(span.begin for span in self.spans), max(span.end for span in self.spans)
        ahead = (first + last - asked - answered) // 2
        moved = [span._replace(begin=span.begin - ahead, end=span.end - ahead, process=process) for span in self.spans]
        own, where, key = answered - asked, (os.getpid(), threading.get_ident()), moved[-1][3:5]
        request = Span(0, "request", "reader", *key, asked, answered, own, 0, *where)
        return Measured(self.minibatch, [request, *moved])


@dataclass(slots=True)
class Running:
    """A call or a wait that has begun in a thread."""

    begin: int
    cpu_begin: int
    torch_range: Any
    within: int = 0
    """The time of the spans within."""
    cpu_within: int = 0


class Recorder:
    """An observer that appends a span for each call of a stage and each wait; any threads may use it at once.

    A call costs about 3 microseconds, of which 1.2 read the thread's CPU clock, and 17 more with `record_functions`,
    which makes it a range of `torch.profiler.record_function` too. Another `observer` is told of the same.
    """

    def __init__(self, observer: Observer | None = None, *, record_functions: bool = False) -> None:
        self.spans: list[Span] = []
        self.observer = observer
        self.record_functions = record_functions
        self.process = os.getpid()
        # Weak, so that a profile keeps no pipeline alive: a run refers to its recorder, and is looked up by its stages.
        self._known: WeakKeyDictionary[Datapipe, tuple[int, str]] = WeakKeyDictionary()
        self._of_thread = threading.local()

    def stage_begin(self, stage: Datapipe, key: Key | None) -> None:
        """Take the time."""
        if self.observer is not None:
            self.observer.stage_begin(stage, key)
        self._begin(type(stage).__name__)

    def stage_end(self, stage: Datapipe, key: Key | None) -> None:
        """Write the span down."""
        self._end(stage, "", UNKNOWN if key is None else key.epoch, UNKNOWN if key is None else key.index)
        if self.observer is not None:
            self.observer.stage_end(stage, key)

    def wait_begin(self, cut: Datapipe, side: Side) -> None:
        """Take the time."""
        if self.observer is not None:
            self.observer.wait_begin(cut, side)
        self._begin(f"wait at {type(cut).__name__}")

    def wait_end(self, cut: Datapipe, side: Side) -> None:
        """Write the span down."""
        self._end(cut, side, UNKNOWN, UNKNOWN)
        if self.observer is not None:
            self.observer.wait_end(cut, side)

    def _begin(self, name: str) -> None:
        torch_range = None
        if self.record_functions:
            torch_range = record_function(name)
            torch_range.__enter__()  # type: ignore[no-untyped-call]
        stack = self._of_thread.__dict__.setdefault("stack", [])
        stack.append(Running(perf_counter_ns(), thread_time_ns(), torch_range))

    def _end(self, stage: Datapipe, side: str, epoch: int, index: int) -> None:
        stack: list[Running] = self._of_thread.stack
        running = stack.pop()
        cpu, begin, end = thread_time_ns() - running.cpu_begin, running.begin, perf_counter_ns()
        if running.torch_range is not None:
            running.torch_range.__exit__(None, None, None)
        if stack:
            stack[-1].within += end - begin
            stack[-1].cpu_within += cpu
        known = self._known.get(stage)
        if known is None:
            known = self._known[stage] = (stage.position, type(stage).__name__)
        own, thread = end - begin - running.within, threading.get_ident()
        self.spans.append(
            Span(*known, side, epoch, index, begin, end, own, cpu - running.cpu_within, self.process, thread)
        )
