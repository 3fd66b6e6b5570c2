"""The only module that imports CuPy: it compiles the device code and starts kernels, on torch's streams and memory.

Kernels take addresses of torch's tensors, so CuPy allocates nothing and torch's allocator knows which stream uses a
block.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np
import torch

from graphfeed.ops.cuda.source import device_code
from graphfeed.ops.memory import pinned

THREADS = 256
"""Per block: eight warps, so that any device can run several blocks at once."""
WARP_SIZE = 32
MAX_BLOCKS = 1 << 16
"""Kernels stride by the grid, so more blocks would only take longer to start."""
OPTIONS = ("--std=c++17", "--fmad=false", "--device-as-default-execution-space")
"""Products are rounded before they are added, as on the CPU. Lambdas run on the device; CuPy 14 says so by itself."""


def launch(kernel: str, size: int, *arguments: Any) -> None:
    """Start a kernel on the current stream of its tensors' device, with a thread for each of `size` items."""
    if size == 0:
        return
    device = next(part.device for part in arguments if isinstance(part, torch.Tensor) and not part.is_cpu)
    # Those that read page-locked memory have no more threads than `set_max_uva_threads` allows, in whole blocks.
    over_the_bus = [part for part in arguments if isinstance(part, torch.Tensor) and part.is_cpu and part.numel()]
    most = max(pinned.max_uva_threads() // THREADS, 1) if over_the_bus else MAX_BLOCKS
    blocks = min(-(-size // THREADS), most)
    # CuPy's own context would go back to a device that nobody uses, such as the first one of each rank.
    with torch.cuda.device(device), stream_of(device):
        function_of(device.index, kernel)((blocks,), (THREADS,), tuple(as_argument(part) for part in arguments))
    for part in over_the_bus:
        if not pinned.is_locked_in_place(part):
            # Torch hands its pinned memory out again as soon as it is freed, unless a stream has copied of it.
            part.view(-1)[:1].to(device, non_blocking=True)


def upload(table: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a small tensor from the CPU to a device, without waiting for what runs there."""
    # CUDA stages such memory before the call returns, so the tensor may change or be freed then.
    return table.to(device, non_blocking=True)


def as_argument(value: Any) -> Any:
    """Return what CuPy passes to a kernel as 8 bytes; an empty tensor and None are null pointers."""
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous()
        if value.is_cpu and value.numel() and not pinned.is_page_locked(value):
            # A kernel that reads it would end the process.
            raise ValueError(
                f"a kernel on a GPU was given {value.numel()} values in the CPU's memory that are not page-locked; "
                "page-lock them with pin_memory_(), or move them with .to(...)"
            )
        return np.uint64(value.data_ptr())  # 0 for an empty one
    return value if isinstance(value, np.uint64) else np.int64(0 if value is None else value)


@cache
def function_of(device_index: int, kernel: str) -> Any:
    if not cupy.cuda.is_available():
        raise RuntimeError(
            f"torch has tensors on cuda:{device_index}, but CuPy finds no CUDA device; graphfeed doctor --cuda tells "
            "which CuPy fits, or run on the CPU"
        )
    # CuPy compiles for the current device, so each device has its own.
    return module().get_function(kernel)


@cache
def module() -> Any:
    # Compiled at the first use on a device; CuPy keeps the code on disk.
    return cupy.RawModule(code=device_code(), options=OPTIONS)


@dataclass(frozen=True)
class Handle:
    """A stream as CuPy 14 takes it from any torch."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        # The version of the protocol, and the stream.
        return 0, self.address


def stream_of(device: torch.device) -> Any:
    address = torch.cuda.current_stream(device).cuda_stream
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(Handle(address))
    return cupy.cuda.ExternalStream(address, device.index)


def finds_device() -> bool:
    return bool(cupy.cuda.is_available())


def compiler_version() -> str:
    return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
