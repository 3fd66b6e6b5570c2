"""Compilation of the device code with CuPy, and kernel launches on torch's streams and memory.

No other module imports CuPy. Kernels get the addresses of torch tensors, so CuPy allocates nothing, and torch's
allocator knows the stream that uses a block.
"""

import ctypes
from array import array
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from typing import Any

import cupy
import torch

from graphfeed.ops.cpu.issue_launches import issue_launches
from graphfeed.ops.cuda.source import INTS, device_code, file_of_kernel, parameters_of
from graphfeed.ops.memory import buffers, pinned
from graphfeed.ops.random import MASK

THREADS = 256
"""Threads per block: eight warps, so that any device can run several blocks at once."""
WARP_SIZE = 32
BUFFER_POINTER, BUFFER_SIZE = 1, 2
"""Tags of the driver for the address of a kernel's packed arguments, and for their size in bytes."""
DESCRIPTION = 6
"""Number of words that describe the arguments of a launch."""
INVALID_CONTEXT = 201
MAX_BLOCKS = 1 << 16
"""Maximum number of blocks. Kernels use grid-stride loops, so more blocks would only take longer to start."""
NOTHING = nullcontext()
"""A context without effect."""
OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
"""Lambdas run on the device; CuPy 14 sets this option itself."""


def launch(kernel: str, size: int, *arguments: Any) -> None:
    """Launch a kernel on the current stream of its tensors' device, with a thread for each of `size` items.

    Args:
        kernel: Name of the kernel.
        size: The number of items.
        arguments: Arguments of the kernel: numbers, tensors, or None for no tensor; structs as their fields.
    """
    if size == 0:
        return
    with_width, values = widths_of(kernel), list[int]()
    device, over_the_bus = None, dict[int, torch.Tensor]()
    for has_width, part in zip(with_width, arguments, strict=True):
        is_tensor = isinstance(part, torch.Tensor)
        if is_tensor and part.is_cpu and part.numel():
            over_the_bus[len(values)] = part
            values.append(0)  # until it can't be unlocked
        else:
            values.append(part if type(part) is int else as_argument(part))
            if is_tensor and not part.is_cpu:
                device = part.device
        if has_width:
            values.append(0 if part is None else part.itemsize)
    assert device is not None, f"{kernel} got no tensor on a GPU"
    blocks = min(-(-size // THREADS), MAX_BLOCKS)
    if over_the_bus:
        # Few threads read over the bus, in full blocks (see `set_max_uva_threads`).
        blocks = min(blocks, max(pinned.max_uva_threads() // THREADS, 1))
    with on_device(device), reading(over_the_bus.values(), device) if over_the_bus else NOTHING:
        for place, part in over_the_bus.items():
            values[place] = as_argument(part)
        start_driver(function_of(device.index, kernel), blocks, values, device)
    recorder = buffers.RECORDER.get()
    if recorder is not None:
        recorder.note(function_of(device.index, kernel), blocks, values, with_width, arguments)


@contextmanager
def reading(parts: Collection[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Keep page-locked memory locked while kernels that read it are launched."""
    pinned.READERS.add(device.index)
    # The lock keeps memory page-locked until the kernels have started; unlocking it then waits for the device.
    try:
        with pinned.LOCKED.lock:
            yield
    finally:
        pinned.unlock_unused()  # pages that were released in the meantime
    for part in parts:
        if not pinned.is_locked_in_place(part):
            # Torch reuses its pinned memory as soon as it is freed, unless a stream has copied from it.
            part.view(-1)[:1].to(device, non_blocking=True)


@cache
def widths_of(kernel: str) -> list[bool]:
    """Return which arguments of a kernel are arrays with a width."""
    return [part.kind in INTS for part in parameters_of(device_code(file_of_kernel()[kernel]))[kernel]]


def pack(launches: Sequence[Sequence[int]]) -> tuple["array[int]", list[int]]:
    """Pack the words of launches, each followed by its description; return them and the descriptions' addresses.

    A description has the size of the words, and then the address of the words and that of their size, for the driver.
    """
    packed = array("Q", [
        value & MASK
        for values in launches
        for value in (*values, 8 * len(values), BUFFER_POINTER, 0, BUFFER_SIZE, 0, 0)
    ])  # fmt: skip
    first, described, place = packed.buffer_info()[0], list[int](), 0
    for values in launches:
        end = place + len(values)
        packed[end + 2], packed[end + 4] = first + 8 * place, first + 8 * end
        described.append(first + 8 * (end + 1))
        place = end + DESCRIPTION
    return packed, described


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a device is the current one."""
    # CuPy's own context manager would restore a device that is not in use, such as the first one on each rank.
    return NOTHING if device.index == torch.cuda.current_device() else torch.cuda.device(device)


def start_driver(function: Any, blocks: int, values: Sequence[int], device: torch.device) -> None:
    """Launch a CuPy kernel on the current stream, with the words of its arguments."""
    packed, (described,) = pack([values])
    call = array("Q", [function.ptr, blocks, described])
    start_all(
        [*packed.buffer_info(), 0, 0, 0, 0, *call.buffer_info()],
        device,
        torch.cuda.current_stream(device.index).cuda_stream,
    )


def start_all(table: Sequence[int], device: torch.device, stream: int) -> None:
    """Launch kernels through the driver on a stream.

    CuPy would create an object per argument and a context per stream, which takes as long as most kernels run.

    Args:
        table: Address and size of the words, patches, bases and calls that `issue_launches` takes.
        device: The current device.
        stream: The address of its current stream.
    """
    words = [*table, launch_address(), THREADS, stream]
    status = issue_launches.call_words((), words)
    if status == INVALID_CONTEXT:
        torch.ones(1, device=device)  # The first work of a thread gives it the context of its device.
        status = issue_launches.call_words((), words)
    if status != 0:
        name = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError(f"CUDA could not launch a kernel: {(name.value or b'').decode() or 'error'} ({status})")


@cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL(pinned.DRIVER)


@cache
def launch_address() -> int:
    return ctypes.cast(driver().cuLaunchKernel, ctypes.c_void_p).value or 0


def upload(table: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a small tensor from the CPU to a device, without synchronizing."""
    # CUDA stages pageable memory before the call returns, so the tensor may be changed or freed afterwards.
    return table.to(device, non_blocking=True)


def constants(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return int64 numbers on a device, for any stream, because the first call waits for the copy. They stay there."""
    made, recorder = constants_on(values, device), buffers.RECORDER.get()
    # This stream may still read them when others take their place.
    made.record_stream(torch.cuda.current_stream(device.index))
    if recorder is not None:
        recorder.kept.append(made)
    return made


@lru_cache(maxsize=64)
def constants_on(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu").to(device)


def as_argument(value: Any) -> int:
    """Convert an argument to an integer; empty tensors and None are null pointers."""
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous()
        if value.is_cpu and value.numel() and not pinned.is_page_locked(value):
            # Reading it in a kernel would terminate the process.
            raise ValueError(
                f"a kernel on a GPU was given {value.numel()} values in the CPU's memory that are not page-locked; "
                "page-lock them with pin_memory_(), or move them with .to(...)"
            )
        if value.is_cpu and value.data_ptr() % value.itemsize:
            raise ValueError(
                f"a kernel on a GPU needs aligned values, but was given {value.dtype} at an address that is not a "
                "multiple of their size; copy it with .clone()"
            )
        return value.data_ptr()  # 0 for an empty one
    return 0 if value is None else int(value)


@cache
def function_of(device_index: int, kernel: str) -> Any:
    if not cupy.cuda.is_available():
        raise RuntimeError(
            f"torch has tensors on cuda:{device_index}, but CuPy finds no CUDA device; run graphfeed doctor "
            "--cuda to find the CuPy version to install, or run on the CPU"
        )
    # CuPy compiles for the current device, so each device has its own function.
    return module(file_of_kernel()[kernel]).get_function(kernel).kernel


@cache
def module(file: str) -> Any:
    # Compiled at the first use on a device; CuPy keeps the code on disk.
    return cupy.RawModule(code=device_code(file), options=OPTIONS)


def finds_device() -> bool:
    return bool(cupy.cuda.is_available())


def compiler_version() -> str:
    return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
