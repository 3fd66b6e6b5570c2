"""Which work on a device lies before which, and what may still use a piece of memory.

Each stream has a vector clock, as in torch's own sanitizer: how much of each stream's work lies before what it does
next. A use of memory that is not behind the last write of it, or a write that is not behind all uses of it, is a fault
whether or not it gives wrong values this time. So is memory that is freed while a stream other than the one it was made
on may still use it, unless `record_stream` was called: torch's allocator hands it out again at once.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Clock = dict[int, int]
"""How much of the work of each stream, by its number."""


class PerThread(threading.local):
    """The clock of each thread: the work that it has waited for."""

    host: Clock | None = None


LOCAL = PerThread()


def join(clock: Clock, other: Clock) -> None:
    """Put whatever is behind one clock behind another, too."""
    for number, time in other.items():
        clock[number] = max(clock.get(number, 0), time)


class Uses:
    """The uses of a block of memory on the device, which the program's tensors hold as long as they live."""

    def __init__(self, made_on: Any, memory: torch.UntypedStorage) -> None:
        self.made_on = made_on
        """The stream that was current when the memory was taken."""
        self.memory = memory
        self.written: tuple[int, int, str] | None = None
        """The last write: stream, time, and what it was."""
        self.latest: dict[int, tuple[int, str]] = {}
        """The last use on each stream."""
        self.recorded: set[Any] = set()
        """The streams that torch's allocator was told of."""

    def __del__(self) -> None:
        if ORDER.depth and self.memory.nbytes():
            unknown = ORDER.freed(self)
            self.made_on.take_back(self.memory, self.recorded - {self.made_on}, in_use=unknown)


def later(uses: dict[int, tuple[int, str]], clock: Clock) -> list[str]:
    """Return the uses of memory that are not known to lie before a clock."""
    return [what for number, (time, what) in uses.items() if clock.get(number, 0) < time]


class StreamOrder:
    """Knows which work lies before which, and notes faults."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        self.main: Clock = {}
        """The work that the main thread has waited for."""
        self.faults: list[str] = []
        self.streams: list[Any] = []
        self.bus: list[tuple[int, int, int, int, str]] = []
        """Reads of the CPU's memory: first byte, end, stream, time, and by what."""
        self.apart: set[int] = set()
        """Addresses of memory of which different parts are read and written at the same time."""

    def reset(self) -> None:
        """Start again, after all previous work."""
        for stream in self.streams:
            join(self.main, stream.clock)
        self.streams.clear()
        self.faults.clear()
        self.bus.clear()
        self.apart.clear()

    @property
    def host(self) -> Clock:
        """The work that the calling thread has waited for; initially that of the main thread."""
        if threading.current_thread() is threading.main_thread():
            return self.main
        if LOCAL.host is None:
            LOCAL.host = dict(self.main)
        return LOCAL.host

    def now(self, stream: Any) -> Clock:
        """Return a copy of a stream's clock."""
        with self.lock:
            join(stream.clock, self.host)
            return dict(stream.clock)

    def waits(self, stream: Any, clock: Clock) -> None:
        """Note that a stream goes on behind a clock."""
        with self.lock:
            join(stream.clock, clock)

    def host_waits(self, clock: Clock) -> None:
        """Note that the program goes on behind a clock."""
        with self.lock:
            join(self.host, clock)

    def use(self, stream: Any, what: str, reads: Iterable[Any], writes: Iterable[Any], bus: Iterable[Any] = ()) -> None:
        """Note work on a stream: what it reads and writes on the device, and what it reads over the bus."""
        what = f"{what} on {stream}"
        with self.lock:
            join(stream.clock, self.host)
            time = stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
            if stream not in self.streams:
                self.streams.append(stream)
            for tensor in reads:
                uses = tensor.uses
                self.behind_write(stream.clock, f"{what} reads", uses)
                uses.latest[stream.number] = time, what
            for tensor in writes:
                uses = tensor.uses
                self.behind_write(stream.clock, f"{what} writes", uses)
                if tensor.data_ptr() not in self.apart:
                    others = later(uses.latest, stream.clock)
                    self.faults += [f"{what} writes what {other} may still use" for other in others]
                uses.written = stream.number, time, what
                uses.latest[stream.number] = time, what
            for tensor in bus:
                first = tensor.data_ptr()
                self.bus.append((first, first + tensor.nbytes, stream.number, time, what))

    def behind_write(self, clock: Clock, does: str, uses: Uses) -> None:
        """Note a fault unless a clock is behind the last write to some memory."""
        if uses.written is not None and clock.get(uses.written[0], 0) < uses.written[1]:
            self.faults.append(f"{does} what {uses.written[2]} may still write")

    def freed(self, uses: Uses) -> bool:
        """Note a fault if memory is given back while another stream than its own may still use it.

        Returns:
            Whether streams of which the allocator was not told have used it.
        """
        known = {stream.number for stream in (uses.made_on, *uses.recorded)}
        with self.lock:
            unknown = {number: use for number, use in uses.latest.items() if number not in known}
            for use in later(unknown, self.now(uses.made_on)):
                self.faults.append(f"memory of {uses.made_on} is freed while {use} may still use it")
        return bool(unknown)

    def unlocked(self, start: int, end: int) -> None:
        """Note a fault if memory is no longer page-locked while it may still be read."""
        with self.lock:
            for first, stop, number, time, what in self.bus:
                if first < end and start < stop and self.host.get(number, 0) < time:
                    self.faults.append(f"memory is unlocked while {what} may still read it")

    @contextmanager
    def checked(self) -> Iterator["StreamOrder"]:
        """Note faults, and raise at the end if there are any."""
        if self.depth == 0:
            self.reset()
        self.depth += 1
        try:
            yield self
        finally:
            self.depth -= 1
        assert not self.faults, "\n".join(dict.fromkeys(self.faults))


ORDER = StreamOrder()
