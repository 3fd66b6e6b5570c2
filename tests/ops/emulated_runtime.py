"""CUDA's runtime without a device: current devices, streams and events, and which work has waited for which.

Each stream has a vector clock, as in torch's own sanitizer: how much of each stream's work lies before what it does
next. A use of memory that is not behind the last write of it, or a write that is not behind all uses of it, is a fault
whether or not it gives wrong values this time. So is memory that is freed while a stream other than the one it was made
on may still use it, unless `record_stream` was called: torch's allocator hands it out again at once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any, ClassVar
from unittest.mock import patch

import torch

Clock = dict[int, int]
"""How much of the work of each stream, by its number."""


NUMBERS = count(1)


class PerThread(threading.local):
    """What CUDA keeps for each thread."""

    device = 0
    stream: "Stream | None" = None
    host: Clock | None = None


LOCAL = PerThread()


def join(clock: Clock, other: Clock) -> None:
    """Put whatever is behind one clock behind another, too."""
    for number, time in other.items():
        clock[number] = max(clock.get(number, 0), time)


class Event:
    """Stands for torch.cuda.Event."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.blocking = blocking
        self.stream: Stream | None = None
        self.clock: Clock = {}
        self.done = False

    def finish(self) -> None:
        self.done = True

    def record(self, stream: "Stream | None" = None) -> None:
        (stream or current_stream()).record_event(self)

    def query(self) -> bool:
        return self.done

    def work(self) -> None:
        """Do what comes before."""
        if self.stream is not None:
            self.stream.work(self)

    def synchronize(self) -> None:
        assert self.blocking, "the thread spins until the event has passed; make it with Event(blocking=True)"
        self.work()
        ORDER.host_waits(self.clock)


class Stream:
    """Stands for torch.cuda.Stream. What was put off happens when somebody waits for the stream."""

    log: ClassVar[list[tuple[Any, ...]]] = []
    made: ClassVar[int] = 0
    at: ClassVar[dict[int, "Stream"]] = {}
    """The streams by their addresses."""

    def __init__(self, device: Any = None, name: str | None = None, address: int | None = None) -> None:
        Stream.made += 1
        self.number = next(NUMBERS)
        self.name = name or f"side {Stream.made}"
        self.device = device
        self.clock: Clock = {}
        self.lock = threading.RLock()
        self.waiting: list[Callable[[], None]] = []
        self.address = self.number << 8 if address is None else address
        Stream.at[self.address] = self

    def __repr__(self) -> str:
        return self.name

    @property
    def cuda_stream(self) -> int:
        """The address, which is asked for when a kernel is about to start."""
        self.work()
        return self.address

    def add(self, work: Callable[[], None]) -> None:
        with self.lock:
            self.waiting.append(work)

    def work(self, until: Event | None = None) -> None:
        with self.lock:
            while self.waiting and not (until is not None and until.done):
                self.waiting.pop(0)()

    def synchronize(self) -> None:
        self.work()
        ORDER.host_waits(self.clock)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.stream, event.done = self, False
        event.clock = ORDER.now(self)
        self.add(event.finish)
        Stream.log.append((self.name, "records"))
        return event

    def wait_event(self, event: Event) -> None:
        assert event.stream is not None
        Stream.log.append((self.name, "waits for", event.stream.name))
        event.work()
        ORDER.waits(self, event.clock)

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())


CALLER = Stream(name="caller", address=0)
"""The stream on which a thread works that has chosen none."""
DEFAULTS = {0: CALLER}


def index_of(device: Any) -> int:
    """Return the number of a device; without one, that of the thread's current device."""
    if isinstance(device, int):
        return device
    if device is None:
        return LOCAL.device
    index: int | None = torch.device(device).index
    return 0 if index is None else index  # the emulated device "meta" is the first


def current_stream(device: Any = None) -> Stream:
    """Return the calling thread's stream on a device."""
    index = index_of(device)
    if LOCAL.stream is not None and index_of(LOCAL.stream.device) == index:
        return LOCAL.stream
    if index not in DEFAULTS:
        DEFAULTS[index] = Stream(torch.device("meta", index), f"caller on {index}")
    return DEFAULTS[index]


def set_device(device: Any) -> None:
    """Set the calling thread's device."""
    LOCAL.device = index_of(device)


MODE: Callable[[], AbstractContextManager[Any]] = nullcontext
"""Makes a context in which torch makes its tensors on the pretended device; each thread needs one of its own."""


@contextmanager
def use(stream: Stream) -> Iterator[None]:
    """Make a stream the calling thread's."""
    before, own = LOCAL.stream, LOCAL.device
    # Leaving the stream makes the thread's own device current again, which takes memory there if it is another one.
    on_main = threading.current_thread() is threading.main_thread()
    assert on_main or ("device" in vars(LOCAL) and own == index_of(stream.device)), "a thread has not set its device"
    LOCAL.stream, LOCAL.device = stream, index_of(stream.device)
    try:
        with MODE():
            yield
    finally:
        LOCAL.stream, LOCAL.device = before, own


class Uses:
    """The uses of a storage, which holds this as long as it lives."""

    def __init__(self, made_on: Stream) -> None:
        self.made_on = made_on
        self.written: tuple[int, int, str] | None = None
        """The last write: stream, time, and what it was."""
        self.latest: dict[int, tuple[int, str]] = {}
        """The last use on each stream."""
        self.recorded: set[int] = set()

    def __del__(self) -> None:
        ORDER.freed(self)


def uses_of(tensor: torch.Tensor) -> Uses:
    """Return the uses of the memory of a pretended tensor."""
    held: Any = tensor
    storage: Any = held.held.untyped_storage()
    if not hasattr(storage, "uses"):
        storage.uses = Uses(current_stream(tensor.device))
    uses: Uses = storage.uses
    return uses


def later(uses: Uses, clock: Clock) -> list[str]:
    """Return the uses of memory that are not known to lie before a clock."""
    return [what for number, (time, what) in uses.latest.items() if clock.get(number, 0) < time]


class StreamOrder:
    """Knows which work lies before which, and notes faults."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        self.main: Clock = {}
        """What the main thread has waited for."""
        self.faults: list[str] = []
        self.streams: list[Stream] = []
        self.bus: list[tuple[int, int, int, int, str]] = []
        """Reads of the CPU's memory: first byte, end, stream, time, and by what."""
        self.apart: set[int] = set()
        """Addresses of memory of which different parts are read and written at the same time."""

    def reset(self) -> None:
        """Begin anew, behind all that was done before."""
        for stream in self.streams:
            join(self.main, stream.clock)
        self.streams.clear()
        self.faults.clear()
        self.bus.clear()
        self.apart.clear()

    @property
    def host(self) -> Clock:
        """What the calling thread has waited for: at first, the same as the main one."""
        if threading.current_thread() is threading.main_thread():
            return self.main
        if LOCAL.host is None:
            LOCAL.host = dict(self.main)
        return LOCAL.host

    def now(self, stream: Stream) -> Clock:
        """Return a copy of a stream's clock."""
        with self.lock:
            join(stream.clock, self.host)
            return dict(stream.clock)

    def waits(self, stream: Stream, clock: Clock) -> None:
        """Note that a stream goes on behind a clock."""
        with self.lock:
            join(stream.clock, clock)

    def host_waits(self, clock: Clock) -> None:
        """Note that the program goes on behind a clock."""
        with self.lock:
            join(self.host, clock)

    def use(
        self, stream: Stream, what: str, reads: Iterable[Any], writes: Iterable[Any], bus: Iterable[Any] = ()
    ) -> None:
        """Note work on a stream: what it reads and writes on the device, and what it reads over the bus."""
        what = f"{what} on {stream}"
        with self.lock:
            join(stream.clock, self.host)
            time = stream.clock[stream.number] = stream.clock.get(stream.number, 0) + 1
            if stream not in self.streams:
                self.streams.append(stream)
            for tensor in reads:
                uses = uses_of(tensor)
                self.behind_write(stream.clock, f"{what} reads", uses)
                uses.latest[stream.number] = time, what
            for tensor in writes:
                uses = uses_of(tensor)
                self.behind_write(stream.clock, f"{what} writes", uses)
                if tensor.data_ptr() not in self.apart:
                    self.faults += [f"{what} writes what {other} may still use" for other in later(uses, stream.clock)]
                uses.written = stream.number, time, what
                uses.latest[stream.number] = time, what
            for tensor in bus:
                first = tensor.data_ptr()
                self.bus.append((first, first + tensor.nbytes, stream.number, time, what))

    def behind_write(self, clock: Clock, does: str, uses: Uses) -> None:
        """Note a fault unless a clock is behind the last write to some memory."""
        if uses.written is not None and clock.get(uses.written[0], 0) < uses.written[1]:
            self.faults.append(f"{does} what {uses.written[2]} may still write")

    def freed(self, uses: Uses) -> None:
        """Note a fault if memory is given back while another stream than its own may still use it."""
        if self.depth:
            with self.lock:
                uses.latest = {
                    number: use
                    for number, use in uses.latest.items()
                    if number not in (uses.made_on.number, *uses.recorded)
                }
                clock = self.now(uses.made_on)
                self.faults += [
                    f"memory of {uses.made_on} is freed while {use} may still use it" for use in later(uses, clock)
                ]

    def unlocked(self, start: int, end: int) -> None:
        """Note a fault if memory is no longer page-locked while it may still be read."""
        with self.lock:
            for first, stop, number, time, what in self.bus:
                if first < end and start < stop and self.host.get(number, 0) < time:
                    self.faults.append(f"memory is unlocked while {what} may still read it")

    def synchronize(self, device: Any = None) -> None:
        """Stand for torch.cuda.synchronize: wait for all streams of a device."""
        for stream in list(self.streams):
            if index_of(stream.device) == index_of(device):
                stream.synchronize()

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


@contextmanager
def installed() -> Iterator[StreamOrder]:
    """Let torch and graphfeed find the pretended devices and their streams."""
    with ExitStack() as stack:
        stack.enter_context(ORDER.checked())
        for name, value in (
            ("Stream", Stream),
            ("Event", Event),
            ("stream", use),
            ("current_stream", current_stream),
            ("current_device", lambda: LOCAL.device),
            ("set_device", set_device),
            ("synchronize", ORDER.synchronize),
            ("device_count", lambda: 2),
            ("memory_reserved", lambda device=None: int(any(index_of(s.device) == device for s in ORDER.streams))),
            ("is_available", lambda: True),
            ("is_initialized", lambda: True),
            ("default_generators", tuple(torch.Generator() for _ in range(2))),
        ):
            stack.enter_context(patch.object(torch.cuda, name, value))
        yield ORDER
