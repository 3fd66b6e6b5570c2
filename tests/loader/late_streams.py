"""CUDA streams without a device: what is asked of one is done as late as a device may do it.

A copy that doesn't block happens when somebody waits for its stream, and reads what its source holds by then, if that
is pinned; until then the copy holds other values, and if its source is gone it keeps them. All else runs at once, on
tensors that pretend to be on a GPU. So what doesn't wait, waits on the wrong stream, or drops a source early, gives
wrong values.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphfeed.loader.transport.streams import side_stream
from graphfeed.ops.backend import PACKAGES
from tests.ops.emulated_cuda import EmulatedCuda, Pretended, run

LOCAL = threading.local()
OTHER_VALUE = 77


class Event:
    """Stands for torch.cuda.Event."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.done = False

    def finish(self) -> None:
        self.done = True

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.stream.work_until(self)


class Stream:
    """Stands for torch.cuda.Stream."""

    log: list[tuple[Any, ...]] = []  # noqa: RUF012
    made = 0

    def __init__(self, device: Any = None, name: str | None = None) -> None:
        Stream.made += 1
        self.name = name or f"side {Stream.made}"
        self.device = device
        self.lock = threading.RLock()
        self.waiting: list[Any] = []

    def __repr__(self) -> str:
        return self.name

    @property
    def cuda_stream(self) -> int:
        """The address, which is asked for when a kernel is about to start."""
        self.work()
        return 0

    def add(self, work: Any) -> None:
        with self.lock:
            self.waiting.append(work)

    def work(self, until: Event | None = None) -> None:
        with self.lock:
            while self.waiting and not (until is not None and until.done):
                self.waiting.pop(0)()

    def work_until(self, event: Event) -> None:
        self.work(event)

    def record_event(self) -> Event:
        event = Event(self)
        self.add(event.finish)
        Stream.log.append((self.name, "records"))
        return event

    def wait_event(self, event: Event) -> None:
        Stream.log.append((self.name, "waits for", event.stream.name))
        event.synchronize()

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())


CALLER = Stream(name="caller")


def current_stream(device: Any = None) -> Stream:
    """Return the calling thread's stream."""
    stream: Stream = getattr(LOCAL, "stream", CALLER)
    return stream


@contextmanager
def use(stream: Stream) -> Iterator[None]:
    """Make a stream the calling thread's."""
    before = current_stream()
    # Leaving the stream makes the thread's own device current again, which takes memory there if it is another one.
    own = getattr(LOCAL, "device", None)
    assert threading.current_thread() is threading.main_thread() or own == stream.device, f"a thread's device is {own}"
    LOCAL.stream = stream
    try:
        with Late():  # type: ignore[no-untyped-call]
            yield
    finally:
        LOCAL.stream = before


class Late(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts copies off; before all else that uses the device, does what its stream was asked."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        late = func.__name__.startswith("_to_copy") and kwargs.get("non_blocking")
        if not late or isinstance(args[0], Pretended) or torch.device(kwargs["device"]).type != "meta":
            if any(isinstance(part, Pretended) for part in tree_leaves((args, kwargs))):
                current_stream().work()
            return run(func, args, kwargs)
        target = torch.full_like(args[0], OTHER_VALUE)
        # CUDA sets other memory aside before it returns.
        source = weakref.ref(args[0]) if getattr(args[0], "pinned", False) else args[0].clone
        Stream.log.append((current_stream().name, "copies"))

        def copy() -> None:
            values = source()
            if values is not None:
                target.copy_(values)

        current_stream().add(copy)
        return Pretended(target)


def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Stand for pinning: return a copy that is known as pinned."""
    pinned = EmulatedCuda.memory.pin_memory(tensor)
    pinned.pinned = True  # type: ignore[attr-defined]
    return pinned


def record_stream(tensor: Pretended, stream: Stream) -> None:
    """Note who uses a tensor."""
    tensor.used_on = {*getattr(tensor, "used_on", ()), stream.name}  # type: ignore[attr-defined]


def set_device(device: torch.device) -> None:
    """Set the calling thread's device."""
    LOCAL.device = device


@contextmanager
def late_streams() -> Iterator[list[tuple[Any, ...]]]:
    """Let `copy_to("meta")` find a device with streams; yields what is asked of them, in order."""
    side_stream.cache_clear()
    Stream.log.clear()
    Stream.made = 0
    with ExitStack() as stack:
        for owner, name, value in (
            (torch.cuda, "Stream", Stream),
            (torch.cuda, "stream", use),
            (torch.cuda, "current_stream", current_stream),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "set_device", set_device),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "is_available", lambda: True),
            (torch.Tensor, "pin_memory", pin_memory),
        ):
            stack.enter_context(patch.object(owner, name, value))
        stack.enter_context(patch.object(Pretended, "record_stream", record_stream, create=True))
        stack.enter_context(patch.dict(PACKAGES, {"meta": "cuda"}))
        yield Stream.log
    side_stream.cache_clear()
