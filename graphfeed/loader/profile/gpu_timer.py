"""Times what stages do on a GPU, by CUDA events."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from graphfeed.loader.transport.streams import with_index

MS = 1e6
"""Nanoseconds in a millisecond."""


class GpuCall(NamedTuple):
    """What one call of a stage did on a GPU. Times are nanoseconds."""

    position: int
    name: str
    epoch: int
    minibatch: int
    issued: int
    """When the call began on the CPU, by `time.perf_counter_ns`."""
    begin: int
    """When its work on the stream began, after the first event on this device."""
    end: int
    own: int
    """The time on the stream apart from that of calls within."""
    device: str
    stream: int


class EventPair(NamedTuple):
    """The events on a stream before and behind the work of a call."""

    begin: torch.cuda.Event
    end: torch.cuda.Event

    @property
    def nanoseconds(self) -> int:
        # Both have passed, or this would raise.
        ms: float = self.begin.elapsed_time(self.end)
        return round(ms * MS)


class Started(NamedTuple):
    """A call whose work begins on a stream of a device."""

    device: str
    stream: torch.cuda.Stream
    begin: torch.cuda.Event
    within: list[EventPair]
    """What calls within it did."""


class GpuTimer:
    """Puts an event on the stage's stream before and behind each call; threads may use it at once."""

    def __init__(self, devices: Mapping[tuple[int, str], str]) -> None:
        # By a stage's position in the pipeline and its class's name; stages on the CPU have none.
        self.devices = devices
        self._calls: list[GpuCall] = []
        self._pending: deque[tuple[GpuCall, EventPair, list[EventPair]]] = deque()
        self._first: dict[str, torch.cuda.Event] = {}
        self._reading = threading.Lock()

    def begin(self, stage: tuple[int, str]) -> Started | None:
        device = self.devices.get(stage)
        if device is None:
            return None
        stream, name = torch.cuda.current_stream(device), str(with_index(device))
        event = stream.record_event(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self._first.setdefault(name, event)
        return Started(name, stream, event, [])

    def end(self, started: Started, stage: tuple[int, str], key: tuple[int, int], issued: int) -> EventPair:
        event = started.stream.record_event(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        pair = EventPair(started.begin, event)
        # `key` is the epoch and the mini-batch.
        call = GpuCall(*stage, *key, issued, 0, 0, 0, started.device, started.stream.cuda_stream)
        self._pending.append((call, pair, started.within))
        # Events are read when later calls end, and when somebody asks for the times, if they have passed by then. So
        # nobody waits for the GPU.
        with self._reading:
            self._read()
        return pair

    def calls(self) -> Sequence[GpuCall]:
        with self._reading:
            self._read()
            return tuple(self._calls)

    def _read(self) -> None:
        """Take the times of calls whose events have passed; the caller holds the lock."""
        while self._pending:
            call, pair, within = self._pending[0]
            first = self._first[call.device]
            events = (first, pair.end, *(inner.end for inner in within))
            # The calls behind it wait for it, so that they stay in order.
            if not all(event.query() for event in events):  # type: ignore[no-untyped-call]
                break
            begin, took = EventPair(first, pair.begin).nanoseconds, pair.nanoseconds
            own = took - sum(inner.nanoseconds for inner in within)
            self._calls.append(call._replace(begin=begin, end=begin + took, own=own))
            self._pending.popleft()
