"""CUDA's runtime without a device: current devices, streams and events.

Work is done as late as a GPU may do it: when the program waits for its stream or for an event behind it, or another
stream's work does. Memory that the program frees is filled with other values as early as torch's allocator may hand it
out again. So what doesn't wait, waits on the wrong stream, or frees memory too early, finds other values.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar
from unittest.mock import patch

import torch

from tests.stand_ins.stream_order import ORDER, Clock, StreamOrder

Work = Callable[[], object]

NUMBERS = count(1)
OTHER_VALUE = 1
"""Content of memory before it is written and after it is freed: small, so that an index is not far out of range."""


class PerThread(threading.local):
    """CUDA's state of each thread."""

    device = 0
    stream: "Stream | None" = None


LOCAL = PerThread()


@dataclass
class Mark:
    """A place in the work of a stream."""

    stream: "Stream"
    clock: Clock
    done: bool = False
    passed_at: int = 0
    """How many pieces of work all streams had done when it was passed."""

    def passes(self) -> None:
        self.done, self.passed_at = True, Stream.pieces

    def work(self) -> None:
        """Do what comes before."""
        self.stream.work(self)


class Event:
    """Stands for torch.cuda.Event."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.blocking, self.enable_timing = blocking, enable_timing
        self.mark: Mark | None = None

    @property
    def stream(self) -> "Stream | None":
        """The stream that recorded it last."""
        return None if self.mark is None else self.mark.stream

    def record(self, stream: "Stream | None" = None) -> None:
        (stream or current_stream()).record_event(self)

    def query(self) -> bool:
        return self.mark is None or self.mark.done

    def elapsed_time(self, later: "Event") -> float:
        """Return a millisecond for each piece of work that was done between the two."""
        at = []
        for event in (self, later):
            assert event.enable_timing, "make the event with Event(enable_timing=True)"
            assert event.mark is not None, "the event was not recorded"
            assert event.mark.done, "the event has not passed"
            at.append(event.mark.passed_at)
        return float(at[1] - at[0])

    def synchronize(self) -> None:
        assert self.blocking, "the thread spins until the event has passed; make it with Event(blocking=True)"
        if self.mark is not None:
            self.mark.work()
            ORDER.host_waits(self.mark.clock)


class Stream:
    """Stands for torch.cuda.Stream. Its work is done when somebody waits for it."""

    log: ClassVar[list[tuple[Any, ...]]] = []
    made: ClassVar[int] = 0
    at: ClassVar[dict[int, "Stream"]] = {}
    """The streams by their addresses."""
    working: ClassVar[threading.RLock] = threading.RLock()
    """Held by the thread that does the work of streams; what stands for the device is one."""
    depth: ClassVar[int] = 0
    """How many streams that thread is working on, each waiting for the next."""
    pieces: ClassVar[int] = 0
    """How many pieces of work all streams have done, which stands for the time."""
    to_spoil: ClassVar[deque[tuple[Mark, Work]]] = deque()
    """Work that overwrites memory that may be in use elsewhere, and the mark that its own stream must have reached."""

    def __init__(self, device: Any = None, name: str | None = None, address: int | None = None) -> None:
        Stream.made += 1
        self.number = next(NUMBERS)
        self.name = name or f"side {Stream.made}"
        self.device = device
        self.clock: Clock = {}
        self.waiting: deque[Work] = deque()
        self.cuda_stream = self.number << 8 if address is None else address
        Stream.at[self.cuda_stream] = self

    def __repr__(self) -> str:
        return self.name

    def add(self, work: Work) -> None:
        """Put work off."""
        self.waiting.append(work)

    def work(self, until: Mark | None = None) -> None:
        """Do what was put off, up to a place."""
        # Work is on tensors of the CPU, whatever the thread's tensors pretend to be.
        with Stream.working, torch._C._DisableTorchDispatch():
            if Stream.depth == 0:
                while Stream.to_spoil:
                    mark, spoil = Stream.to_spoil.popleft()
                    mark.stream.go_on(mark)
                    spoil()
            self.go_on(until)

    def go_on(self, until: Mark | None) -> None:
        Stream.depth += 1
        try:
            while self.waiting and not (until is not None and until.done):
                Stream.pieces += 1
                self.waiting.popleft()()
        finally:
            Stream.depth -= 1

    def synchronize(self) -> None:
        self.work()
        ORDER.host_waits(self.clock)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.mark = Mark(self, ORDER.now(self))
        self.add(event.mark.passes)
        Stream.log.append((self.name, "records"))
        return event

    def wait_event(self, event: Event) -> None:
        assert event.mark is not None
        Stream.log.append((self.name, "waits for", event.mark.stream.name))
        self.add(event.mark.work)
        ORDER.waits(self, event.mark.clock)

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())

    def take_back(self, memory: torch.UntypedStorage, recorded: set["Stream"], in_use: bool) -> None:
        """Fill memory that this stream's tensors had with other values, when torch's allocator may hand it out again.

        Args:
            memory: What was freed.
            recorded: Other streams, whose work so far the allocator waits for.
            in_use: Whether still other streams may use it. This stream may be ahead of them by all that it need not
                wait for.
        """
        left = {stream.number for stream in recorded}

        def spoil() -> None:
            words = torch.empty(0, dtype=torch.uint8).set_(memory)
            words.zero_()[::8] = OTHER_VALUE

        def hand_out() -> None:
            if in_use:
                mark = Mark(self, {})
                self.add(mark.passes)
                Stream.to_spoil.append((mark, spoil))
            else:
                self.add(spoil)

        def passed(number: int) -> None:
            left.discard(number)
            if not left:
                hand_out()

        for stream in recorded:
            stream.add(lambda number=stream.number: passed(number))  # type: ignore[misc]
        if not recorded:
            hand_out()


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


SET: set[int] = set()
"""The devices that a thread has set."""


def set_device(device: Any) -> None:
    """Set the calling thread's device, which makes a context there."""
    LOCAL.device = index_of(device)
    SET.add(LOCAL.device)


def has_context(index: int) -> bool:
    """Return whether a device was set or used."""
    return index in SET or any(index_of(stream.device) == index for stream in ORDER.streams)


@contextmanager
def on_device(device: Any) -> Iterator[None]:
    """Stand for torch.cuda.device: make a device current, then the one from before if it has a context."""
    before = LOCAL.device
    set_device(device)
    try:
        yield
    finally:
        LOCAL.device = before if has_context(before) else LOCAL.device


def synchronize(device: Any = None) -> None:
    """Stand for torch.cuda.synchronize: wait for all streams of a device."""
    for stream in list(Stream.at.values()):
        if index_of(stream.device) == index_of(device):
            stream.synchronize()


MODE: Callable[[], AbstractContextManager[Any]] = nullcontext
"""Makes a context in which torch makes its tensors on the pretended device; each thread needs one of its own."""


class use:
    """Make a stream the calling thread's, in a context that can be entered again, as torch's."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.entered: list[Any] = []

    def __enter__(self) -> None:
        before, own = LOCAL.stream, LOCAL.device
        # Leaving the stream makes the thread's own device current again, which takes memory there if it is another one.
        same = index_of(self.stream.device) == own
        on_main = threading.current_thread() is threading.main_thread()
        assert (same and "device" in vars(LOCAL)) or (on_main and (same or has_context(own))), "set the thread's device"
        LOCAL.stream, LOCAL.device = self.stream, index_of(self.stream.device)
        mode = MODE()
        mode.__enter__()
        self.entered.append((before, own, mode))

    def __exit__(self, *error: object) -> None:
        before, own, mode = self.entered.pop()
        try:
            mode.__exit__(*error)
        finally:
            LOCAL.stream, LOCAL.device = before, own


@contextmanager
def done_at_the_end() -> Iterator[None]:
    """Do all work that was put off, or forget it after a failure."""
    try:
        yield
        for stream in list(Stream.at.values()):
            stream.work()
    finally:
        for stream in list(Stream.at.values()):
            stream.waiting.clear()
        Stream.to_spoil.clear()


@contextmanager
def installed() -> Iterator[StreamOrder]:
    """Make the pretended devices and their streams available to torch and graphfeed."""
    with ExitStack() as stack:
        outermost = ORDER.depth == 0
        stack.enter_context(ORDER.checked())
        stack.enter_context(done_at_the_end() if outermost else nullcontext())
        stack.callback(SET.clear)
        stack.callback(setattr, LOCAL, "device", LOCAL.device)
        for name, value in (
            ("Stream", Stream),
            ("Event", Event),
            ("stream", use),
            ("current_stream", current_stream),
            ("current_device", lambda: LOCAL.device),
            ("set_device", set_device),
            ("device", on_device),
            ("synchronize", synchronize),
            ("device_count", lambda: 2),
            ("memory_reserved", lambda device=None: int(has_context(device))),
            ("is_available", lambda: True),
            ("is_initialized", lambda: True),
            ("is_current_stream_capturing", lambda: False),
            ("default_generators", tuple(torch.Generator() for _ in range(2))),
        ):
            stack.enter_context(patch.object(torch.cuda, name, value))
        yield ORDER
