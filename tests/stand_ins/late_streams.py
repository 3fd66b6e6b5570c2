"""Streams of a loader on an emulated GPU.

Work of a stream is done as late as a device may do it (`tests/stand_ins/emulated_runtime.py`). A non-blocking copy from
pinned memory reads its source only then, and has other values before. So code that doesn't wait, waits on the wrong
stream, or changes a source too early, gets wrong values.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from graphfeed.loader.transport.streams import SIDE_STREAMS
from graphfeed.ops.backend import PACKAGES
from tests.stand_ins import emulated_runtime
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, pretending
from tests.stand_ins.emulated_runtime import CALLER, OTHER_VALUE, Event, Stream, current_stream
from tests.stand_ins.locked_memory import empty_in

__all__ = ["CALLER", "OTHER_VALUE", "Event", "Stream", "current_stream", "late_streams", "running"]


@contextmanager
def late_streams() -> Iterator[list[tuple[Any, ...]]]:
    """Make `copy_to("meta")` find a device with streams; yield the operations on them in order."""
    SIDE_STREAMS.clear()
    Stream.log.clear()
    Stream.made = 0
    with ExitStack() as stack:
        stack.enter_context(emulated_runtime.installed())
        stack.enter_context(patch.object(emulated_runtime, "MODE", pretending))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", lambda own: EmulatedCuda.memory.pin_memory(own)))
        stack.enter_context(
            patch.object(torch.Tensor, "is_pinned", lambda own, device=None: EmulatedCuda.memory.is_pinned(own))
        )
        stack.enter_context(patch.object(torch, "empty", partial(empty_in, EmulatedCuda.memory, torch.empty)))
        stack.enter_context(patch.dict(PACKAGES, {"meta": "cuda"}))
        yield Stream.log
    SIDE_STREAMS.clear()


@contextmanager
def running(cuda: Cuda) -> Iterator[None]:
    """Run on a GPU, or on an emulated one with late streams."""
    with cuda.running(), late_streams() if isinstance(cuda, EmulatedCuda) else nullcontext():
        yield
