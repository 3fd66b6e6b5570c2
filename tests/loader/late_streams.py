"""CUDA streams without a device: what is asked of one is done as late as a device may do it.

A copy that doesn't block happens when somebody waits for its stream, and reads what its source holds by then, if that
is pinned; until then the copy holds other values, and if its source is gone it keeps them. All else runs at once, on
tensors that pretend to be on a GPU. So what doesn't wait, waits on the wrong stream, or drops a source early, gives
wrong values.
"""

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
from tests.ops import emulated_runtime
from tests.ops.emulated_cuda import EmulatedCuda, Pretended, run
from tests.ops.emulated_runtime import CALLER, ORDER, Event, Stream, current_stream

OTHER_VALUE = 77


class Late(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts copies off; before all else that uses the device, does what its stream was asked."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__.startswith("copy_") and len(args) > 2 and args[2] and isinstance(args[0], Pretended):
            return copy_into(args[0], args[1])
        late = func.__name__.startswith("_to_copy") and kwargs.get("non_blocking")
        if not late or isinstance(args[0], Pretended) or torch.device(kwargs["device"]).type != "meta":
            if any(isinstance(part, Pretended) for part in tree_leaves((args, kwargs))):
                current_stream().work()
            return run(func, args, kwargs)
        target = torch.full_like(args[0], OTHER_VALUE)
        # CUDA sets other memory aside before it returns.
        source = weakref.ref(args[0]) if getattr(args[0], "pinned", False) else args[0].clone
        stream = current_stream(kwargs["device"])
        Stream.log.append((stream.name, "copies"))

        def copy() -> None:
            values = source()
            if values is not None:
                target.copy_(values)

        stream.add(copy)
        made = Pretended(target)
        ORDER.use(stream, "copy", reads=[], writes=[made], bus=[args[0]])
        return made


def copy_into(target: Pretended, source: torch.Tensor) -> Pretended:
    """Put a copy into memory on the device off; what it reads may be overwritten meanwhile, if it is pinned."""
    stream = current_stream(target.device)
    held = source
    if not EmulatedCuda.memory.holds_all(source):
        EmulatedCuda.waits.append("copy_ out of memory that is not page-locked")
        held = source.clone()
    target.held.fill_(OTHER_VALUE)

    def copy() -> None:
        target.held.copy_(held)

    stream.add(copy)
    Stream.log.append((stream.name, "copies"))
    ORDER.use(stream, "copy", reads=[], writes=[target], bus=[source])
    return target


__all__ = ["CALLER", "OTHER_VALUE", "Event", "Late", "Stream", "current_stream", "late_streams"]


def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Stand for pinning: return a copy that is known as pinned."""
    pinned = EmulatedCuda.memory.pin_memory(tensor)
    pinned.pinned = True  # type: ignore[attr-defined]
    return pinned


@contextmanager
def late_streams() -> Iterator[list[tuple[Any, ...]]]:
    """Let `copy_to("meta")` find a device with streams; yields what is asked of them, in order."""
    side_stream.cache_clear()
    Stream.log.clear()
    Stream.made = 0
    with ExitStack() as stack:
        stack.enter_context(emulated_runtime.installed())
        stack.enter_context(patch.object(emulated_runtime, "MODE", Late))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", pin_memory))
        stack.enter_context(patch.dict(PACKAGES, {"meta": "cuda"}))
        yield Stream.log
    side_stream.cache_clear()
