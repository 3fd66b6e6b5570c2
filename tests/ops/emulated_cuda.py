"""CUDA without a device: the device code compiled for the CPU, behind tensors that pretend to be on a GPU.

The pretended tensors lie on torch's device "meta", hold a tensor of the CPU, and refuse what a GPU's would refuse:
NumPy, and operations together with tensors of the CPU. So the way from an op to its kernel runs as on a GPU: the op,
its CUDA module, the launch, the device code.
"""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from graphfeed.ops import backend
from graphfeed.ops.cpu.kernel_cache import only_one
from tests.ops.locked_memory import LockedMemory

DEVICE = torch.device("meta")
COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
# As a GPU compiler is told: products are rounded before they are added.
FLAGS = ("-std=c++20", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC")
LIBRARIES = HEADER.parent / "__pycache__"
SIGNATURE = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
ONE_AT_A_TIME = threading.Lock()
"""What stands for the device is one; kernels may be started in several threads."""
ORDERS = (0, 1, 2)
"""In which threads run: forwards, backwards, every other one first."""
MAY_MIX = ("_to_copy", "copy_", "index.")
"""What torch itself allows for tensors on several devices."""


class Pretended(torch.Tensor):
    """A tensor on a pretended GPU."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Pretended":
        made: Pretended = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def tolist(self) -> Any:
        EmulatedCuda.waits.append("tolist")
        return self.held.tolist()

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor on a GPU to numpy; use Tensor.cpu() first")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Pretended({self.held})"


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation of torch on the inner tensors, if a GPU would."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    pretended = [tensor for tensor in tensors if isinstance(tensor, Pretended)]
    plain = [tensor for tensor in tensors if not isinstance(tensor, Pretended) and tensor.dim() > 0]
    name = func.__name__
    if pretended and plain and not name.startswith(MAY_MIX):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, but some are on a GPU")
    on_gpu = bool(pretended)
    pins = kwargs.get("pin_memory") is True
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if kwargs.get("device") is not None:
        on_gpu = torch.device(kwargs["device"]).type == "meta"
        kwargs = {**kwargs, "device": "cpu"}
    if name.startswith("copy_"):
        on_gpu = isinstance(args[0], Pretended)
    if waits(name, args, kwargs, there=bool(pretended), crosses=on_gpu != bool(pretended) or bool(pretended and plain)):
        EmulatedCuda.waits.append(name)
    given = {id(tensor.held): tensor for tensor in pretended}
    result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))
    if pins:
        result = EmulatedCuda.memory.pin_memory(result)

    def wrap(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not on_gpu:
            return value
        return given[id(value)] if id(value) in given else Pretended(value)

    return tree_map(wrap, result)


def waits(name: str, args: Any, kwargs: dict[str, Any], *, there: bool, crosses: bool) -> bool:
    """Tell whether torch waits for a GPU in an operation: for a number, or a copy that is done when it returns."""
    if name.startswith("_to_copy"):
        return crosses and not kwargs.get("non_blocking")
    if name.startswith("copy_"):
        return crosses and not (len(args) > 2 and args[2])
    if name.startswith("repeat_interleave"):
        return there and kwargs.get("output_size") is None
    return there and (crosses or name.startswith(("_local_scalar_dense", "nonzero")))


def unwrap(value: Any) -> Any:
    """Return the tensor inside."""
    return value.held if isinstance(value, Pretended) else value


class Machine(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors on the device "meta" pretended ones."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


@cache
def compiled(code: str) -> tuple[ctypes.CDLL, dict[str, int]]:
    """Compile device code for the CPU; return it and how many parameters each kernel has."""
    kernels = {name: parameters.split(",") for name, parameters in SIGNATURE.findall(code)}
    parts = [f'#include "{HEADER}"', code]
    for name, parameters in kernels.items():
        kinds = [re.sub(r"\w+\s*$", "", parameter).strip() for parameter in parameters]
        passed = ", ".join(f"({kind})given[{place}]" for place, kind in enumerate(kinds))
        parts.append(
            f'extern "C" const char *run_{name}(unsigned blocks, unsigned threads, int order, const u64 *given) {{\n'
            f"    return emulate(blocks, threads, order, [=] {{ {name}({passed}); }});\n}}"
        )
    library = ctypes.CDLL(str(make_library("\n".join(parts))))
    return library, {name: len(parameters) for name, parameters in kernels.items()}


def make_library(text: str) -> Path:
    """Compile C++, once for all processes and until it or what it includes changes."""
    assert COMPILER is not None
    expand = [COMPILER, *FLAGS, "-E", "-x", "c++", "-"]
    expanded = subprocess.run(expand, input=text, check=True, capture_output=True, text=True).stdout
    digest = hashlib.blake2b("\n".join([expanded, *FLAGS]).encode(), digest_size=16).hexdigest()
    library = LIBRARIES / f"cuda-{digest}.so"
    LIBRARIES.mkdir(exist_ok=True)
    with only_one(library.with_suffix(".lock")):
        if not library.exists():
            with TemporaryDirectory(dir=LIBRARIES) as folder:
                source, made = Path(folder, "kernels.ii"), Path(folder, "kernels.so")
                source.write_text(expanded)
                subprocess.run([COMPILER, *FLAGS, "-o", made, source], check=True)
                os.replace(made, library)
    return library


class EmulatedModule:
    """Stands for cupy.RawModule."""

    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self.library, self.counts = compiled(code)
        self.order = 0

    def get_function(self, name: str) -> Callable[..., None]:
        function = getattr(self.library, f"run_{name}")
        function.restype = ctypes.c_char_p

        def call(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            assert len(arguments) == self.counts[name], f"{name} takes {self.counts[name]} arguments"
            assert all(value.nbytes == 8 for value in arguments)
            given = (ctypes.c_uint64 * len(arguments))(*(int(value) % 2**64 for value in arguments))
            with ONE_AT_A_TIME:
                failure = function(grid[0], block[0], EmulatedCuda.order, given)
            assert failure is None, f"{name}: {failure}"
            EmulatedCuda.launches.append((name, grid[0] * block[0]))

        return call


class EmulatedCuda:
    """Runs ops on pretended tensors; stands for a GPU in tests."""

    order = 0
    launches: list[tuple[str, int]] = []  # noqa: RUF012
    """Kernels started since `running`, and their threads."""
    waits: list[str] = []  # noqa: RUF012
    """Operations of torch since `running` for which a GPU would be waited for."""
    memory = LockedMemory()
    """What is page-locked."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the pretended device."""
        return Pretended(tensor.clone())

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in pinned memory."""
        return EmulatedCuda.memory.pin_memory(tensor)

    def is_there(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the device."""
        return isinstance(tensor, Pretended)

    def each_order(self) -> Iterator[AbstractContextManager[object]]:
        """Yield a context for each order in which threads may run."""
        for order in ORDERS:
            yield patch.object(EmulatedCuda, "order", order)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let ops find the device."""
        launch = import_launch()
        EmulatedCuda.launches.clear()
        EmulatedCuda.waits.clear()
        launch.function_of.cache_clear()
        launch.module.cache_clear()
        with (
            patch.dict(backend.PACKAGES, {"meta": "cuda"}),
            patch.object(launch, "cupy", CUPY),
            patch.object(launch, "as_argument", checked(launch.as_argument)),
            EmulatedCuda.memory.installed(),
            patch.object(torch.cuda, "device_count", lambda: 1),
            patch.object(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0)),
            Machine(),  # type: ignore[no-untyped-call]
        ):
            yield
        launch.function_of.cache_clear()
        launch.module.cache_clear()


def checked(as_argument: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that refuses what a GPU can't read, before it is handed to a kernel."""

    def check(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() and not isinstance(value, Pretended):
            locked = EmulatedCuda.memory.holds_all(value)
            assert locked, f"illegal address: a kernel got {value.numel()} values of the CPU that are not page-locked"
        return as_argument(value)

    return check


CUPY = SimpleNamespace(
    RawModule=EmulatedModule,
    cuda=SimpleNamespace(
        Device=lambda index: nullcontext(),
        Stream=SimpleNamespace(from_external=lambda stream: nullcontext(stream.__cuda_stream__())),
        is_available=lambda: True,
    ),
)


def import_launch() -> ModuleType:
    """Import the launching module, also where there is no CuPy."""
    with suppress(ModuleNotFoundError):
        return import_module("graphfeed.ops.cuda.launch")
    sys.modules["cupy"] = CUPY  # type: ignore[assignment]
    try:
        return import_module("graphfeed.ops.cuda.launch")
    finally:
        del sys.modules["cupy"]


class RealCuda:
    """Runs ops on a GPU."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the device."""
        return tensor.to("cuda")

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in pinned memory."""
        return tensor.pin_memory()

    def is_there(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor lies on the device."""
        return tensor.device.type == "cuda"

    def each_order(self) -> Iterator[AbstractContextManager[object]]:
        """Yield a context a repetition: the device chooses the order."""
        for _ in ORDERS:
            yield nullcontext()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Do nothing: the device is there."""
        yield


Cuda = EmulatedCuda | RealCuda


def device_of(cuda: Cuda) -> str:
    """Name the device."""
    return str(cuda.put(torch.zeros(1)).device)


ON_THE_CPU = {"row_starts", "bounds", "starts"}
"""Results that are sizes, not data: they stay where the next op's sizes come from."""


def check_equal(cuda: Cuda, result: Any, expected: Any, name: str = "") -> None:
    """Raise unless a result lies on the device, but for its sizes, and has the bits, dtype and shape expected."""
    if isinstance(expected, torch.Tensor):
        assert cuda.is_there(result) == (name not in ON_THE_CPU), f"{name} lies on {result.device}"
        values = unwrap(result).cpu()
        assert values.dtype == expected.dtype
        assert values.shape == expected.shape
        assert torch.equal(values, expected), f"{name}: {values} is not {expected}"
    elif isinstance(expected, list):
        for mine, its in zip(result, expected, strict=True):
            check_equal(cuda, mine, its)
    else:
        for name in expected._fields:
            check_equal(cuda, getattr(result, name), getattr(expected, name), name)
