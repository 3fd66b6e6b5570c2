"""A stand-in for CuPy that refuses what CuPy refuses, and what a GPU would take and do wrong.

A kernel starts on the thread's current device and a stream of it. Its arguments are 8 bytes each, as no type is checked
on a GPU: a pointer must be the address of a tensor that was given to this very launch, on this
device, with values as wide as the kernel takes them. CPU memory must be page-locked, and is only read.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from graphfeed.ops.cpu.instructions import LAUNCH
from graphfeed.ops.cuda.source import INTS, parameters_of
from tests.stand_ins.emulated_runtime import LOCAL, Stream, current_stream, index_of
from tests.stand_ins.locked_memory import LockedMemory
from tests.stand_ins.stream_order import ORDER

WIDTHS = {"i64": 8, "u64": 8, "double": 8, "int": 4, "unsigned": 4, "float": 4, "short": 2, "unsigned char": 1}
MAX_THREADS = 1024
FAILED = 719
"""The status of a launch that fails."""


class PerThread(threading.local):
    """State of CuPy and of a launch for each thread."""

    def __init__(self) -> None:
        self.given: dict[int, list[torch.Tensor]] = {}
        self.repeated: deque[list[torch.Tensor]] = deque()
        """The tensors of each recorded launch that comes next."""
        self.failures: list[BaseException] = []
        """Exceptions of launches by machine code."""


OWN = PerThread()


def current_default() -> Stream:
    """Return the default stream of the current device."""
    before, LOCAL.stream = LOCAL.stream, None
    try:
        return current_stream(LOCAL.device)
    finally:
        LOCAL.stream = before


class Parameter:
    """8 bytes that a kernel takes."""

    def __init__(self, kind: str, name: str) -> None:
        self.name, self.kind = name, kind
        self.points = "*" in self.kind
        self.const = self.kind.startswith("const ")
        self.width = WIDTHS.get(self.kind.removeprefix("const ").rstrip("* "))

    def refuse(self, value: int, tensor: torch.Tensor | None, memory: LockedMemory) -> str | None:
        """Say what is wrong about an argument, if anything is."""
        if not self.points or not value:
            return None
        if tensor is None:
            return f"{self.name} is no address of a tensor that this launch was given"
        if self.width not in (None, tensor.itemsize):
            return f"{self.kind} {self.name} was given a tensor of {tensor.dtype}"
        if not tensor.is_cpu:
            here = index_of(tensor.device) == LOCAL.device
            return None if here else f"{self.name} lies on {tensor.device}, but the kernel runs on {LOCAL.device}"
        if not self.const:
            return f"{self.name} lies in the CPU's memory, and the kernel writes to it"
        locked = memory.holds_all(tensor)
        return None if locked else f"illegal address: {self.name} has {tensor.numel()} values that are not page-locked"


def signatures_of(code: str) -> dict[str, list[Parameter]]:
    """Return the parameters of each kernel; arrays of any width are an address and that width."""
    found: dict[str, list[Parameter]] = {}
    for kernel, parts in parameters_of(code).items():
        found[kernel] = []
        for kind, name in parts:
            pointer = {INTS[0]: "const void *", INTS[1]: "void *"}.get(kind, kind)
            found[kernel] += [Parameter(pointer, name)] + [Parameter("i64", f"{name}.width")] * (kind in INTS)
    return found


class Launched:
    """The arguments of a launch, in the order of a kernel's parameters."""

    def __init__(self, parameters: list[Parameter], values: list[int]) -> None:
        self.parameters = parameters
        self.tensors = [self.tensor_at(v) if p.points else None for p, v in zip(parameters, values, strict=True)]

    @staticmethod
    def tensor_at(address: int) -> torch.Tensor | None:
        """Return the next tensor that was given with an address."""
        found = OWN.given.get(address)
        return None if not found else found.pop(0)

    def those(self, *, const: bool, on_cpu: bool = False) -> list[torch.Tensor]:
        """Return the tensors that are only read, or that are written."""
        pairs = zip(self.parameters, self.tensors, strict=True)
        return [
            tensor for own, tensor in pairs if tensor is not None and own.const == const and tensor.is_cpu == on_cpu
        ]


def note(value: Any) -> Any:
    """Note a tensor that is handed to the next kernel of this thread, and return what was given."""
    if isinstance(value, torch.Tensor) and value.numel():
        OWN.given.setdefault(value.data_ptr(), []).append(value)
    return value


class Function:
    """Stands for a kernel of cupy.RawModule; `start` runs it."""

    at: ClassVar[dict[int, "Function"]] = {}
    """The kernels by what the driver knows them by."""

    def __init__(
        self, name: str, parameters: list[Parameter], start: Callable[..., None], memory: LockedMemory
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.start = start
        self.memory = memory
        self.device = LOCAL.device
        self.kernel, self.ptr = self, id(self)
        Function.at[self.ptr] = self

    def __call__(self, blocks: int, threads: int, address: int, values: list[int]) -> None:
        for part in OWN.repeated.popleft() if OWN.repeated else ():
            note(part)
        try:
            assert 0 < blocks < 1 << 31
            assert 0 < threads <= MAX_THREADS
            assert threads % 32 == 0, "blocks consist of whole warps"
            assert self.device == LOCAL.device, f"{self.name} was loaded for {self.device}, not {LOCAL.device}"
            # Address 0 is the default stream of whichever device is the current one.
            stream = Stream.at[address] if address else current_default()
            assert index_of(stream.device) == LOCAL.device, "this stream was not created on the current device"
            given = Launched(self.parameters, values)
            for parameter, value, tensor in zip(self.parameters, values, given.tensors, strict=True):
                wrong = parameter.refuse(value, tensor, self.memory)
                assert wrong is None, f"{self.name}: {wrong}"
            assert not any(OWN.given.values()), f"{self.name} was given a tensor where it takes a number"
        finally:
            OWN.given.clear()
        ORDER.use(
            stream,
            self.name,
            reads=given.those(const=True),
            writes=given.those(const=False),
            bus=given.those(const=True, on_cpu=True),
        )
        self.start(stream, blocks, threads, values, given)


class Driver:
    """Stands for CUDA's driver, and takes what it takes."""

    def cuLaunchKernel(self, function: int, *given: Any) -> int:
        """Start a kernel."""
        blocks, rows, planes, threads, *more, stream, single, pieces = given
        assert (rows, planes, *more, single) == (1, 1, 1, 1, 0, None)
        tag, packed, second, size, end = (ctypes.c_uint64 * 5).from_address(pieces)
        assert (tag, second, end) == (1, 2, 0)
        count = ctypes.c_size_t.from_address(size).value // 8
        # ctypes passes the null pointer, the default stream, as None.
        Function.at[function](blocks, threads, stream or 0, list((ctypes.c_uint64 * count).from_address(packed)))
        return 0

    def cuGetErrorName(self, status: int, name: Any) -> None:
        """Raise the exception of the launch that failed."""
        raise OWN.failures.pop()


@LAUNCH  # type: ignore[untyped-decorator]
def launch_kernel(*given: Any) -> int:
    """Start a kernel, for machine code."""
    try:
        return DRIVER.cuLaunchKernel(*given)
    except BaseException as failure:
        OWN.failures.append(failure)
        return FAILED


DRIVER = Driver()
LAUNCH_ADDRESS = ctypes.cast(launch_kernel, ctypes.c_void_p).value


def make_cupy(module: type) -> SimpleNamespace:
    """Return what stands for the package."""
    return SimpleNamespace(__version__="pretended", RawModule=module, cuda=SimpleNamespace(is_available=lambda: True))
