"""Counts what emulated kernels do: the accesses to memory of each thread, and the bytes that are moved.

g++ compiles the device code so that each load and store calls a function; `counted_access.cpp` has them. Threads are in
blocks of the size that a GPU would get, and columns are long from as many edges on as there.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from graphfeed.ops.cuda.source import KERNEL
from tests.stand_ins import compiled_kernels, emulated_cuda
from tests.stand_ins.compiled_kernels import make_library
from tests.stand_ins.emulated_cuda import EmulatedCuda, Pretended, import_launch
from tests.stand_ins.late_work import arguments_of

HOOKS = Path(__file__).with_name("counted_access.cpp")
PLACES = (
    "#define HUB_EDGES 4096\n#define MOST_THREADS 256\n",
    '\nextern "C" { extern const unsigned *const counted_place[3];'
    " const unsigned *const counted_place[3] = {&threadIdx.x, &blockIdx.x, &blockDim.x}; }\n",
)


@dataclass(frozen=True)
class Counted:
    """Counters of one kernel launch, or one torch operation."""

    kernel: str
    threads: int
    accesses: int
    """Of all threads, to arrays."""
    most: int
    """Of the thread with the most."""
    device_bytes: int
    """Bytes moved between the GPU and its memory, in full sectors."""
    bus_bytes: int
    """Bytes moved over the bus, for arrays in CPU memory."""
    bus_requests: int = 0
    """In how many requests, of a line of 128 bytes at most."""

    @property
    def is_kernel(self) -> bool:
        """Whether this is a kernel of graphfeed; for torch's operations only the bytes of their tensors are known."""
        return self.threads > 0


@contextmanager
def counting() -> Iterator[list[Counted]]:
    """Count what kernels and torch's operations do inside of `EmulatedCuda.running`."""
    launch = import_launch()
    noted: list[torch.Tensor] = []
    counts: list[Counted] = []
    as_argument, start = launch.as_argument, launch.start_driver

    def note(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel():
            noted.append(value)
        return as_argument(value)

    def counted_start(function: Any, blocks: int, packed: bytes, *rest: Any) -> None:
        ranges = [(part.data_ptr(), part.data_ptr() + part.numel() * part.itemsize) for part in noted]
        array, library = ctypes.c_uint64 * len(ranges), ctypes.CDLL(str(made[function.name]))
        library.counted_begin(len(ranges), array(*(low for low, _ in ranges)), array(*(high for _, high in ranges)))
        start(function, blocks, packed, *rest)
        found = (ctypes.c_uint64 * (2 * len(ranges) + 2))()
        library.counted_end(found)
        moved, (*requests, accesses, most) = found[: len(ranges)], found[len(ranges) :]
        far = [not isinstance(part, Pretended) for part in noted]
        over_the_bus = sum(compress(moved, far)), sum(compress(requests, far))
        own = accesses, most, sum(moved) - over_the_bus[0], *over_the_bus
        counts.append(Counted(function.name, launch.THREADS * blocks, *own))
        noted.clear()

    made: dict[str, Path] = {}

    def make(text: str) -> Path:
        library = make_library(PLACES[0] + text + PLACES[1], "-fsanitize=thread", beside=[HOOKS])
        made.update((name, library) for name, _ in KERNEL.findall(text))
        return library

    for cached in (compiled_kernels.compiled, launch.module, launch.function_of):
        cached.cache_clear()
    run = emulated_cuda.run

    def counted_run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = run(func, args, kwargs)
        parts = [part for part in tree_leaves((args, kwargs, result)) if isinstance(part, Pretended)]
        if parts and arguments_of(func) is not None:
            counts.append(Counted(f"torch.{func.__name__}", 0, 0, 0, sum(part.nbytes for part in parts), 0))
        return result

    with (
        patch.object(compiled_kernels, "make_library", make),
        patch.object(emulated_cuda, "run", counted_run),
        patch.object(EmulatedCuda, "late", False),
        patch.object(launch, "as_argument", note),
        patch.object(launch, "start_driver", counted_start),
    ):
        yield counts
    for cached in (compiled_kernels.compiled, launch.module, launch.function_of):
        cached.cache_clear()
