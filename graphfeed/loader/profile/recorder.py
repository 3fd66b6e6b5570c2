"""Records when stages begin and end."""

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
"""Epoch and index of a mini-batch without a key."""

FIRST_SERVER = 1 << 22
"""First process id of spans of servers, whose real process ids may also exist on this machine."""


class Span(NamedTuple):
    """One call of a stage, or one wait at a cut. Times are nanoseconds of `time.perf_counter_ns`."""

    position: int
    """Position of the stage in the pipeline as written."""
    name: str
    """Class name of the stage or the cut."""
    side: str
    """"reader" or "maker" for a wait at a cut, "" for a call of a stage."""
    epoch: int
    minibatch: int
    """Index in the epoch."""
    begin: int
    end: int
    own: int
    """Nanoseconds without nested spans, and with the span's share of work that was done before (`add_time`)."""
    cpu: int
    """CPU time of the thread without nested spans, in nanoseconds."""
    process: int
    thread: int


@dataclass(frozen=True)
class Measured:
    """Result of a worker in another process during profiling: a mini-batch, and the spans of its stages."""

    minibatch: Any
    spans: Sequence[Span]

    def between(self, asked: int, answered: int, process: int) -> "Measured":
        """Convert the result of a server to times of this machine's clock, and add a span for the request.

        This assumes that the request and the response took equally long.
        """
        first, last = min(span.begin for span in self.spans), max(span.end for span in self.spans)
        ahead = (first + last - asked - answered) // 2
        moved = [span._replace(begin=span.begin - ahead, end=span.end - ahead, process=process) for span in self.spans]
        own, where, key = answered - asked, (os.getpid(), threading.get_ident()), moved[-1][3:5]
        request = Span(0, "request", "reader", *key, asked, answered, own, 0, *where)
        return Measured(self.minibatch, [request, *moved])


@dataclass(slots=True)
class Running:
    """An unfinished call or wait of a thread."""

    begin: int
    cpu_begin: int
    torch_range: Any
    within: int = 0
    """Time of nested spans."""
    cpu_within: int = 0


class Recorder:
    """A thread-safe observer that appends a span for each call of a stage and each wait.

    A call costs about 3 microseconds, of which 1.2 read the thread's CPU clock, and 17 more with `record_functions`,
    which also makes it a range of `torch.profiler.record_function`. Another `observer` gets the same calls.
    """

    def __init__(self, observer: Observer | None = None, *, record_functions: bool = False) -> None:
        self.spans: list[Span] = []
        self.observer = observer
        self.record_functions = record_functions
        self.process = os.getpid()
        # Weak, so that a profile keeps no pipeline alive.
        self._known: WeakKeyDictionary[Datapipe, tuple[int, str]] = WeakKeyDictionary()
        self._of_thread = threading.local()

    def stage_begin(self, stage: Datapipe, key: Key | None) -> None:
        """Record the start time of a call."""
        if self.observer is not None:
            self.observer.stage_begin(stage, key)
        self._open_span(type(stage).__name__)

    def stage_end(self, stage: Datapipe, key: Key | None) -> None:
        """Append the span of a call."""
        self._end(stage, "", UNKNOWN if key is None else key.epoch, UNKNOWN if key is None else key.index)
        if self.observer is not None:
            self.observer.stage_end(stage, key)

    def add_time(self, wall: int, cpu: int) -> None:
        """Add nanoseconds to the running call: its share of work that was done before, for several mini-batches."""
        running: Running = self._of_thread.stack[-1]
        running.within -= wall
        running.cpu_within -= cpu

    def wait_begin(self, cut: Datapipe, side: Side) -> None:
        """Record the start time of a wait."""
        if self.observer is not None:
            self.observer.wait_begin(cut, side)
        self._open_span(f"wait at {type(cut).__name__}")

    def wait_end(self, cut: Datapipe, side: Side) -> None:
        """Append the span of a wait."""
        self._end(cut, side, UNKNOWN, UNKNOWN)
        if self.observer is not None:
            self.observer.wait_end(cut, side)

    def _open_span(self, name: str) -> None:
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
