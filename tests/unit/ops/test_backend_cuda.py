"""Which kernels CUDA tensors reach, with how many threads, what they are given, and whether the compiler takes them."""

import ctypes
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch

from graphfeed import ops
from graphfeed.ops import backend
from graphfeed.ops.cuda.source import device_code, file_of_kernel
from graphfeed.ops.memory import pinned
from tests.stand_ins import emulated_runtime
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, import_launch
from tests.stand_ins.forked import in_child
from tests.stand_ins.strict_cupy import OWN


def find_compiler() -> ctypes.CDLL:
    """Load NVRTC from its wheel; skip where it is not installed."""
    spec = find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    paths = [path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc*.so.*") if "alt" not in path.name]
    libraries = {"builtins" in path.name: path for path in paths}
    if len(libraries) != 2:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    ctypes.CDLL(str(libraries[True]), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(libraries[False]))


def compile_as_cupy_does(file: str, architecture: str) -> tuple[str, str]:
    """Compile a file as CuPy's RawModule does; return the binary with the PTX, and what the compiler said."""
    compiler = find_compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    code = device_code(file).encode()
    assert compiler.nvrtcCreateProgram(ctypes.byref(program), code, b"graphfeed.cu", 0, None, None) == 0
    # CuPy puts the last three behind the options that it is given; the first of them from version 14 on.
    own = ("--device-as-default-execution-space", "-ftz=true", f"-arch={architecture}", "--ptxas-options=-v")
    options = (*import_launch().OPTIONS, *own)
    flags = [option.encode() for option in options]
    result = compiler.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    assert compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert compiler.nvrtcGetProgramLog(program, log) == 0
    assert result == 0, log.value.decode()
    # Not each file needs all constants of what it includes.
    assert not re.search(r"warning #(?!177-D: variable)", log.value.decode())
    made = b""
    for kind in ("CUBIN", "PTX"):
        assert getattr(compiler, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(compiler, f"nvrtcGet{kind}")(program, text) == 0
        made += text.raw
    assert compiler.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return made.decode("latin-1"), log.value.decode()


ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
FILES = sorted({*file_of_kernel().values()})
COMPILED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)
MOST_REGISTERS: dict[str, list[int]] = json.loads(Path(__file__).with_name("registers.json").read_text())
"""Of each kernel, how many registers a thread of it may have on each of the architectures."""


@pytest.mark.parametrize(
    ("place", "architecture"),
    [pytest.param(*own, marks=pytest.mark.thorough if own[0] else ()) for own in enumerate(ARCHITECTURES)],
)
def test_kernels_compile_to_no_more_registers_than_noted_and_keep_all_values_there(
    place: int, architecture: str
) -> None:
    """The more registers a thread has, the fewer threads wait for memory together."""
    found: dict[str, int] = {}
    for file in FILES:
        made, said = compile_as_cupy_does(file, architecture)
        for name, *bytes_in_memory, registers in COMPILED.findall(said):
            assert f".text.{name}" in made
            assert bytes_in_memory == ["0"] * 3, f"registers don't suffice for {name}, so values go through memory"
            found[name] = int(registers)
        assert ".ftz" not in made, "numbers that are too small for CuPy's -ftz=true would count as 0"
        assert file == "rows/decode.cu" or ".f32" not in made, "only codes are decoded into floats"
        assert ".f64" not in made, "every decision is one of integers, as on the CPU"
    assert found.keys() == file_of_kernel().keys() == MOST_REGISTERS.keys()
    assert {name: count for name, count in found.items() if count > MOST_REGISTERS[name][place]} == {}


ON_GPU = torch.arange(4)
REFUSED: list[tuple[str, list[Any]]] = [
    (r"mark_new was given a tensor where it takes a number", [ON_GPU, ON_GPU, 0, ON_GPU, None, ON_GPU]),
    (r"slots is no address of a tensor that this launch was given", [12345, ON_GPU, 0, 4, None, ON_GPU]),
    (r"const i64 \* slots was given a tensor of torch.int32", [ON_GPU.int(), ON_GPU, 0, 4, None, ON_GPU]),
    (r"first lies on meta:1, but the kernel runs on 0", [ON_GPU, "other device", 0, 4, None, ON_GPU]),
    (r"is_new lies in the CPU's memory, and the kernel writes to it", [ON_GPU, ON_GPU, 0, 4, None, "pinned"]),
]


def test_what_a_gpu_would_take_and_do_wrong_is_refused() -> None:
    """The emulation is strict: on a GPU each of these reads or writes any memory, or the size is another one."""
    cuda = EmulatedCuda()
    with cuda.running():
        special = {"other device": cuda.put(ON_GPU, torch.device("meta", 1)), "pinned": cuda.pin(ON_GPU)}
        for message, given in REFUSED:
            parts = [cuda.put(part) if isinstance(part, torch.Tensor) else part for part in given]
            parts = [special[part] if isinstance(part, str) else part for part in parts]
            with pytest.raises(AssertionError, match=message):
                import_launch().launch("mark_new", 4, *parts)
        with pytest.raises(ValueError, match="shorter"):
            import_launch().launch("mark_new", 4, *[cuda.put(ON_GPU)] * 5)


def test_kernels_run_on_the_device_of_their_tensors_whichever_is_the_current_one() -> None:
    cuda, second = EmulatedCuda(), torch.device("meta", 1)
    with cuda.running():
        rows = ops.gather_rows(cuda.put(torch.eye(3), second), cuda.put(torch.tensor([2, 0]), second))
        assert rows.device == second
        assert rows.tolist() == [[0, 0, 1], [1, 0, 0]]
        # The first device is not set again: it is unused, and would need memory for this process.
        assert not emulated_runtime.has_context(0)
        torch.cuda.set_device(0)
        assert ops.gather_rows(rows, cuda.put(torch.tensor([0]), second)).tolist() == [[0, 0, 1]]
        assert torch.cuda.current_device() == 0
        with torch.cuda.stream(torch.cuda.Stream(second)):  # type: ignore[no-untyped-call]
            assert ops.gather_rows(rows, cuda.put(torch.tensor([1]), second)).tolist() == [[1, 0, 0]]


def test_without_cupy_the_extra_is_named() -> None:
    def load_anew() -> None:
        for name in [name for name in sys.modules if name.startswith("graphfeed.ops.cuda.")]:
            del sys.modules[name]
        sys.modules["cupy"] = None  # type: ignore[assignment]
        backend.load_kernels.cache_clear()
        backend.load_kernels("cuda", "rows.gather")

    said = 'gather was given a tensor on a GPU, and the GPU\'s kernels need CuPy: pip install "graphfeed[cuda13]"'
    assert in_child(load_anew).startswith(f"ImportError: {said}")


def test_an_op_without_cuda_kernels_is_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"counting_sort has kernels for the CPU only.*\.cpu\(\)"):
        ops.count_edges(cuda.put(torch.tensor([0])), cuda.put(torch.tensor([0])))


def test_cupy_without_a_device_is_named(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with cuda.running():
        launch = sys.modules["graphfeed.ops.cuda.launch"]
        monkeypatch.setattr(launch.cupy.cuda, "is_available", lambda: False)
        launch.function_of.cache_clear()
        with pytest.raises(RuntimeError, match=r"CuPy finds no CUDA device; run graphfeed doctor --cuda"):
            ops.gather_rows(cuda.put(torch.zeros(3, 1)), cuda.put(torch.tensor([0])))


@pytest.fixture
def there(cuda: Cuda) -> Iterator[EmulatedCuda]:
    """Return the stand-in while it runs."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device doesn't tell what was started")
    with cuda.running():
        yield cuda
        OWN.given.clear()


@pytest.fixture
def launch(there: EmulatedCuda) -> ModuleType:
    """Return the launching module."""
    return import_launch()


def test_a_kernel_that_reads_over_the_bus_has_few_threads_but_at_least_one_block(there: EmulatedCuda) -> None:
    before, index = ops.max_uva_threads(), there.put(torch.arange(2000))
    try:
        for limit, threads in ((1, 256), (511, 256), (512, 512), (10240, 2048)):
            ops.set_max_uva_threads(limit)
            there.launches.clear()
            assert ops.gather_rows(there.pin(torch.arange(2000)), index).tolist() == list(range(2000))
            assert ("copy_rows", threads) in there.launches
    finally:
        ops.set_max_uva_threads(before)


def test_a_kernel_gets_no_values_with_gaps_between_addresses_or_in_memory_that_is_not_page_locked(
    there: EmulatedCuda, launch: ModuleType
) -> None:
    for values in (there.put(torch.arange(8))[::2], there.pin(torch.arange(8))[::2]):
        with pytest.raises(AssertionError):
            launch.as_argument(values)
    between = torch.frombuffer(there.pin(torch.arange(4)).numpy(), dtype=torch.int64, offset=4, count=3)
    with pytest.raises(ValueError, match=r"not a multiple of their size; copy it with \.clone"):
        launch.as_argument(between)
    with pytest.raises(ValueError, match=r"3 values in the CPU's memory that are not page-locked; page-lock them"):
        launch.launch("number_sets", 3, 1, torch.arange(3), 3, there.put(torch.full((3,), -1)))
    assert there.launches == []


def test_memory_stays_locked_from_the_check_to_the_start(there: EmulatedCuda, launch: ModuleType) -> None:
    """A feature may be updated while its former rows are fetched."""
    held: list[bool] = []
    start = launch.start_driver

    def noted(*given: Any) -> None:
        held.append(pinned.LOCKED.lock.locked())
        start(*given)

    with patch.object(launch, "start_driver", noted):
        ops.gather_rows(there.pin(torch.eye(3)), there.put(torch.tensor([1])))
        ops.gather_rows(there.put(torch.eye(3)), there.put(torch.tensor([1])))
    assert held == [True, False]
    assert not pinned.LOCKED.lock.locked()


WAITS: list[Callable[[Any], Any]] = [
    lambda x: x[x > 1],
    lambda x: x.__setitem__(x > 1, x[:2].clone()),
    lambda x: x.masked_select(x > 1),
    lambda x: torch.isin(x, x),
    lambda x: x.unique(),
    lambda x: x.unique_consecutive(),
    lambda x: x.nonzero(),
    lambda x: x.bincount(),
    lambda x: x.repeat_interleave(x),
    lambda x: x.equal(x),
    lambda x: x[0].item(),
    lambda x: int(x[0]),
    lambda x: bool(x[0] > 1),
    lambda x: x.tolist(),
    lambda x: x.cpu(),
]


def test_the_stand_in_counts_what_a_device_is_waited_for_and_no_other_operations(there: EmulatedCuda) -> None:
    for number, waits in enumerate(WAITS):
        waits(there.put(torch.arange(4)))
        assert len(there.waits) == number + 1
    there.waits.clear()
    values = there.put(torch.arange(4))
    values[values > 1] = 7
    values[torch.ones_like(values).cumsum(0) - 1] = values.masked_fill(values > 1, 0).cumsum(0)
    values.index_select(0, values.clamp(max=3)).sort()
    values.repeat_interleave(torch.ones_like(values), output_size=4)
    torch.searchsorted(values, values)
    assert there.waits == []


REORDERED: list[tuple[str, Callable[[Any], Any]]] = [
    ("several values are put to one place", lambda x: x.__setitem__(x.clamp(max=2), x)),
    ("see whether torch has kthvalue of {torch.int64} on a GPU", lambda x: x.kthvalue(1)),
    ("see whether torch has add of {torch.uint32} on a GPU", lambda x: x.to(torch.uint32) + 1),
]


@pytest.mark.parametrize("late", [False, True])
def test_operations_whose_results_a_gpu_may_not_have_are_refused(late: bool) -> None:
    cuda = EmulatedCuda()
    for message, does in REORDERED:
        with patch.object(EmulatedCuda, "late", late), pytest.raises(AssertionError, match=message), cuda.running():
            does(cuda.put(torch.arange(4)))
    with patch.object(EmulatedCuda, "late", late), cuda.running():
        ones = cuda.put(torch.tensor([1, 0, 1]))
        assert [part.tolist() for part in ones.sort()] == [[0, 1, 1], [1, 2, 0]]
        assert ones.sort(stable=True).indices.tolist() == [1, 0, 2]
