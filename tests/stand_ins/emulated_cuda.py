"""CUDA without a device: the device code compiled for the CPU, behind tensors that pretend to be on a GPU.

The pretended tensors lie on torch's device "meta", hold a tensor of the CPU, and refuse what a GPU's would refuse:
NumPy, and operations together with tensors of the CPU. So an op, its CUDA module and the launch run as on a GPU.
"""

import ctypes
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from graphfeed.ops import backend
from tests.stand_ins import emulated_runtime
from tests.stand_ins.compiled_kernels import WATCHED, compiled
from tests.stand_ins.emulated_runtime import Stream, current_stream
from tests.stand_ins.late_work import EMPTY, arguments_of, put_off
from tests.stand_ins.locked_memory import LockedMemory
from tests.stand_ins.repeated_launches import known_when_repeated
from tests.stand_ins.stream_order import ORDER, Uses
from tests.stand_ins.strict_cupy import DRIVER, LAUNCH_ADDRESS, OWN, Function, Launched, make_cupy, note, signatures_of
from tests.stand_ins.strict_torch import carry_out
from tests.stand_ins.watched_memory import note_empty, note_written, watch

DEVICE = torch.device("meta")
ORDERS = (0, 1, 2)
"""In which threads run: forwards, backwards, every other one first."""
GARBAGE = 0xA5
SIZED = ("_local_scalar_dense", "nonzero", "masked_select", "isin", "unique", "_unique", "bincount", "equal.")
"""Operations with a number of the CPU as result, or with results whose size depends on values."""
MAY_MIX = ("_to_copy", "copy_", "index.")
"""Operations that torch allows for tensors on several devices."""


class Pretended(torch.Tensor):
    """A tensor on a pretended GPU."""

    held: torch.Tensor
    uses: Uses
    """The uses of its memory, shared with all tensors that lie there."""
    used_on: set[str]
    """The streams that torch's allocator knows of, by name."""
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device = DEVICE) -> "Pretended":
        made: Pretended = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
        )
        made.held = inner
        storage: Any = inner.untyped_storage()
        uses = storage.uses() if hasattr(storage, "uses") else None
        made.uses = uses or Uses(current_stream(device), storage)
        storage.uses = weakref.ref(made.uses)
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def tolist(self) -> Any:
        EmulatedCuda.waits.append("tolist")
        if EmulatedCuda.watched:
            note_written(torch.ops.aten._to_copy.default, [self], [])
        stream = current_stream(self.device)
        ORDER.use(stream, "tolist", reads=[self], writes=[])
        stream.synchronize()
        return self.held.tolist()

    def record_stream(self, stream: Any) -> None:
        self.uses.recorded.add(stream)
        self.used_on = {*getattr(self, "used_on", ()), stream.name}

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
    places = {tensor.device for tensor in pretended}
    if len(places) > 1 and not name.startswith(MAY_MIX):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, but some are on {places}")
    device = next(iter(places), None)
    if kwargs.get("device") is not None:
        given_device = torch.device(kwargs["device"])
        device = (given_device if given_device.index else DEVICE) if given_device.type == "meta" else None
        kwargs = {**kwargs, "device": "cpu"}
    if name.startswith("copy_"):
        device = args[0].device if isinstance(args[0], Pretended) else None
    crosses = (device is not None) != bool(pretended) or bool(pretended and plain)
    blocks = waits(name, args, kwargs, there=bool(pretended), crosses=crosses)
    for tensor in plain if crosses else ():
        EmulatedCuda.memory.check_copy(tensor)
    given = {id(tensor.held): tensor for tensor in pretended}
    streams = [current_stream(place) for place in {*places, *([device] if device else [])}]
    for tensor in plain if crosses and not blocks and name.startswith(("_to_copy", "copy_")) else ():
        EmulatedCuda.memory.note_copy(tensor, streams[0])
    result = None
    if len(streams) == 1 and not blocks and EmulatedCuda.is_late() and arguments_of(func) is not None:
        result = put_off(streams[0], func, args, kwargs, EmulatedCuda.memory.source_of)
        if result is not None and crosses and device is not None:
            Stream.log.append((streams[0].name, "copies"))
            if name.startswith("copy_") and not EmulatedCuda.memory.holds_all(args[1]):
                EmulatedCuda.waits.append("copy_ out of memory that is not page-locked")
    if result is None:
        for stream in streams if arguments_of(func) is not None else ():
            stream.work()
        inner = tree_map(unwrap, args), tree_map(unwrap, kwargs)
        result = carry_out(func, *inner) if streams else func(*inner[0], **inner[1])
    if device is not None and name.startswith(EMPTY) and result.numel():
        result.view(-1).view(torch.uint8).fill_(GARBAGE)

    def wrap(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or device is None:
            return value
        return given[id(value)] if id(value) in given else Pretended(value, device)

    wrapped = tree_map(wrap, result)
    note_uses(func, args, kwargs, wrapped)
    if blocks:
        EmulatedCuda.waits.append(name)
        for stream in streams:
            stream.synchronize()
    return wrapped


def note_uses(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
    """Note what an operation of torch reads and writes on the pretended device."""
    named = arguments_of(func)
    if named is None:
        if EmulatedCuda.watched and func.__name__.startswith(EMPTY) and isinstance(result, Pretended):
            note_empty(result)
        return
    reads: list[Pretended] = []
    writes = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Pretended)]
    bus = []
    for name, value in (*zip(named, args, strict=False), *kwargs.items()):
        for leaf in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(leaf, Pretended):
                (writes if named[name] else reads).append(leaf)
            elif writes and isinstance(leaf, torch.Tensor) and leaf.dim() and EmulatedCuda.memory.holds_all(leaf):
                bus.append(leaf)
    if EmulatedCuda.watched:
        note_written(func, reads, writes)
    if reads or writes:
        place = (writes or reads)[0].device
        ORDER.use(current_stream(place), func.__name__, reads, writes, bus)


def waits(name: str, args: Any, kwargs: dict[str, Any], *, there: bool, crosses: bool) -> bool:
    """Return whether an operation of torch waits for a GPU: for a number, or for a blocking copy."""
    if name.startswith("_to_copy"):
        return crosses and not kwargs.get("non_blocking")
    if name.startswith("copy_"):
        # A copy into memory that is not page-locked is done when it returns, whatever was asked.
        early = isinstance(args[0], Pretended) or EmulatedCuda.memory.holds_all(args[0])
        return crosses and not (len(args) > 2 and args[2] and early)
    if name.startswith("repeat_interleave"):
        return there and kwargs.get("output_size") is None
    if name.startswith(("index.", "index_put")):  # a mask's places are counted, unless one number goes there
        masks = any(part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1])
        fills = len(args) > 2 and args[2].dim() == 0
        return there and (crosses or (masks and not fills))
    return there and (crosses or name.startswith(SIZED))


def unwrap(value: Any) -> Any:
    """Return the tensor inside."""
    return value.held if isinstance(value, Pretended) else value


class Machine(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors on the device "meta" pretended ones."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class PerThread(threading.local):
    """Whether torch makes pretended tensors in a thread."""

    pretends = False


LOCAL = PerThread()


@contextmanager
def pretending() -> Iterator[None]:
    """Make torch create pretended tensors in this thread."""
    if LOCAL.pretends:
        yield
        return
    LOCAL.pretends = True
    try:
        with Machine():  # type: ignore[no-untyped-call]
            yield
    finally:
        LOCAL.pretends = False


class EmulatedModule:
    """Stands for cupy.RawModule."""

    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self.library = compiled(code, *EmulatedCuda.flags, *(WATCHED if EmulatedCuda.watched else ()))
        self.signatures = signatures_of(code)

    def get_function(self, name: str) -> Function:
        function = getattr(self.library, f"run_{name}")
        function.restype = ctypes.c_char_p

        def start(stream: Stream, blocks: int, threads: int, values: list[int], given: Launched) -> None:
            passed = (ctypes.c_uint64 * len(values))(*values)
            # Not the CPU's memory, which may go while the kernel reads it.
            order, memory = EmulatedCuda.order, [part.held for part in given.tensors if isinstance(part, Pretended)]

            def work() -> None:
                failure = function(blocks, threads, order, passed)
                assert failure is None, f"{name}: {failure.decode()}"
                memory.clear()

            EmulatedCuda.launches.append((name, blocks * threads))
            if EmulatedCuda.watched:
                watch(self.library, given, passed)
            stream.add(work)
            if not EmulatedCuda.is_late():
                stream.work()

        return Function(name, self.signatures[name], start, EmulatedCuda.memory)


class EmulatedCuda:
    """Runs ops on pretended tensors; stands for a GPU in tests."""

    order = 0
    watched = False
    """Whether each load and store of a kernel is checked, which takes longer, and is done when the kernel starts."""
    flags: tuple[str, ...] = ()
    """For the compiler of the device code."""
    late = True
    """Whether work is done as late as it may."""
    launches: list[tuple[str, int]] = []  # noqa: RUF012
    """Kernels started since `running`, and their threads."""
    waits: list[str] = []  # noqa: RUF012
    """Operations of torch since `running` for which a GPU would be waited for."""
    memory = LockedMemory()
    """The page-locked memory."""

    @staticmethod
    def is_late() -> bool:
        """Return whether work is deferred now."""
        return EmulatedCuda.late and not EmulatedCuda.watched and ORDER.depth > 0

    def put(self, tensor: torch.Tensor, device: torch.device = DEVICE) -> torch.Tensor:
        """Return the tensor on the pretended device."""
        return Pretended(tensor.clone(), device)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in pinned memory."""
        return EmulatedCuda.memory.pin_memory(tensor)

    def is_there(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on the device."""
        return isinstance(tensor, Pretended)

    def each_order(self) -> Iterator[AbstractContextManager[object]]:
        """Yield a context for each order in which threads may run."""
        for order in ORDERS:
            yield patch.object(EmulatedCuda, "order", order)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the device available to ops."""
        launch, tables = import_launch(), import_launch("launch_table").LaunchTable
        convert = launch.as_argument
        EmulatedCuda.launches.clear()
        EmulatedCuda.waits.clear()
        OWN.given.clear()
        launch.function_of.cache_clear()
        launch.module.cache_clear()
        with (
            patch.dict(backend.PACKAGES, {"meta": "cuda"}),
            patch.object(launch, "cupy", CUPY),
            patch.object(launch, "driver", lambda: DRIVER),
            patch.object(launch, "launch_address", lambda: LAUNCH_ADDRESS),
            patch.object(launch, "as_argument", lambda value: convert(note(value))),
            known_when_repeated(tables),
            EmulatedCuda.memory.installed(),
            emulated_runtime.installed(),
            patch.object(emulated_runtime, "MODE", pretending),
            pretending(),
        ):
            yield
        launch.function_of.cache_clear()
        launch.module.cache_clear()


CUPY = make_cupy(EmulatedModule)


def import_launch(name: str = "launch") -> ModuleType:
    """Import the launching module, or another one, also where there is no CuPy."""
    with suppress(ModuleNotFoundError):
        return import_module(f"graphfeed.ops.cuda.{name}")
    sys.modules["cupy"] = CUPY  # type: ignore[assignment]
    try:
        return import_module(f"graphfeed.ops.cuda.{name}")
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
        """Return whether a tensor is on the device."""
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
        values = result.cpu()
        assert values.dtype == expected.dtype
        assert values.shape == expected.shape
        assert torch.equal(values, expected), f"{name}: {values} is not {expected}"
    elif isinstance(expected, list):
        for mine, its in zip(result, expected, strict=True):
            check_equal(cuda, mine, its)
    else:
        for name in expected._fields:
            check_equal(cuda, getattr(result, name), getattr(expected, name), name)
