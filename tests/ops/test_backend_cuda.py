"""Which kernels CUDA tensors reach, what is said where they can't, and whether the compiler takes the kernels."""

import ctypes
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.cuda.source import device_code
from tests.ops import emulated_runtime
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, import_launch
from tests.ops.strict_cupy import SIGNATURE


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


def compile_as_cupy_does(architecture: str) -> tuple[str, str]:
    """Compile all kernels as CuPy's RawModule does; return the binary with the PTX, and what the compiler said."""
    compiler = find_compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    code = device_code().encode()
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
    assert "warning" not in log.value.decode()
    made = b""
    for kind in ("CUBIN", "PTX"):
        assert getattr(compiler, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(compiler, f"nvrtcGet{kind}")(program, text) == 0
        made += text.raw
    assert compiler.nvrtcDestroyProgram(ctypes.byref(program)) == 0
    return made.decode("latin-1"), log.value.decode()


@pytest.mark.parametrize(
    "architecture",
    ["sm_80", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_90", "sm_100", "sm_120"))],
)
def test_the_compiler_takes_all_kernels(architecture: str) -> None:
    made, said = compile_as_cupy_does(architecture)
    names = [name for name, _ in SIGNATURE.findall(device_code())]
    assert len(names) == len(set(names)) > 10
    assert [name for name in names if f".text.{name}" not in made] == []
    assert "cvt.rn.f64.s64" in made or "div.rn.f64" in made, "this is no text in which .ftz would show"
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
    assert len(spilled) >= 2 * len(names)
    assert set(spilled) == {"0"}, "registers don't suffice, so values go through memory"
    assert ".ftz" not in made, "numbers that are too small for CuPy's -ftz=true would count as 0"


ON_GPU = torch.arange(4)
REFUSED: list[tuple[str, list[Any]]] = [
    (r"mark_new takes 6 arguments", [ON_GPU, ON_GPU, 0, 4, None]),
    (r"i64 most_neighbors takes int64, but was given a uint64", [ON_GPU, ON_GPU, 0, np.uint64(4), None, ON_GPU]),
    (r"const u64 \* first takes uint64, but was given a int64", [ON_GPU, 12345, 0, 4, None, ON_GPU]),
    (r"slots is no address of a tensor that this launch was given", [np.uint64(4096), ON_GPU, 0, 4, None, ON_GPU]),
    (r"const u64 \* first was given a tensor of torch.int32", [ON_GPU, ON_GPU.int(), 0, 4, None, ON_GPU]),
    (r"first lies on meta:1, but the kernel runs on 0", [ON_GPU, "other device", 0, 4, None, ON_GPU]),
    (r"is_new lies in the CPU's memory, and the kernel writes to it", [ON_GPU, ON_GPU, 0, 4, None, "pinned"]),
    (r"too large|too big|out of range", [ON_GPU, ON_GPU, 0, 2**63, None, ON_GPU]),
]


@pytest.mark.parametrize(("message", "given"), REFUSED)
def test_what_a_gpu_would_take_and_do_wrong_is_refused(message: str, given: list[Any]) -> None:
    """The emulation is strict: on a GPU each of these reads or writes any memory, or the size is another one."""
    cuda = EmulatedCuda()
    with cuda.running():
        special = {"other device": cuda.put(ON_GPU, torch.device("meta", 1)), "pinned": cuda.pin(ON_GPU)}
        parts = [cuda.put(part) if isinstance(part, torch.Tensor) else part for part in given]
        parts = [special[part] if isinstance(part, str) else part for part in parts]
        with pytest.raises((AssertionError, OverflowError), match=message):
            import_launch().launch("mark_new", 4, *parts)


def test_kernels_run_on_the_device_of_their_tensors_whichever_is_the_current_one() -> None:
    cuda, second = EmulatedCuda(), torch.device("meta", 1)
    with cuda.running():
        rows = ops.gather_rows(cuda.put(torch.eye(3), second), cuda.put(torch.tensor([2, 0]), second))
        assert rows.device == second
        assert rows.tolist() == [[0, 0, 1], [1, 0, 0]]
        # The first device is not set again: nobody uses it, and it would have to give memory to this process.
        assert not emulated_runtime.has_context(0)
        torch.cuda.set_device(0)
        assert ops.gather_rows(rows, cuda.put(torch.tensor([0]), second)).tolist() == [[0, 0, 1]]
        assert torch.cuda.current_device() == 0
        with torch.cuda.stream(torch.cuda.Stream(second)):  # type: ignore[no-untyped-call]
            assert ops.gather_rows(rows, cuda.put(torch.tensor([1]), second)).tolist() == [[1, 0, 0]]


def test_a_device_that_nobody_uses_is_not_set_again_by_the_stand_in_either() -> None:
    with EmulatedCuda().running():
        context = import_launch().cupy.cuda.Device(1)
        context.__enter__()
        with pytest.raises(AssertionError, match="device 0 is set, which nobody uses"):
            context.__exit__()
        assert torch.cuda.current_device() == 1


def test_a_stream_of_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = EmulatedCuda()
    with cuda.running():
        other = torch.cuda.Stream(torch.device("meta", 1))  # type: ignore[no-untyped-call]
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: other)
        with pytest.raises(AssertionError, match="this stream was not created on the current device"):
            ops.gather_rows(cuda.put(torch.eye(3)), cuda.put(torch.tensor([2, 0])))


def test_without_cupy_the_extra_is_named() -> None:
    program = (
        "import sys\n"
        "sys.modules['cupy'] = None\n"
        "from graphfeed.ops.backend import load\n"
        "try:\n"
        "    load('cuda', 'rows.gather')\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.startswith(
        'gather was given a tensor on a GPU, and the GPU\'s kernels need CuPy: pip install ".[cuda13]"'
    )


def test_an_op_without_cuda_kernels_is_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"counting_sort has kernels for the CPU alone.*\.cpu\(\)"):
        ops.count_edges(cuda.put(torch.tensor([0])), cuda.put(torch.tensor([0])))


def test_cupy_without_a_device_is_named(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with cuda.running():
        launch = sys.modules["graphfeed.ops.cuda.launch"]
        monkeypatch.setattr(launch.cupy.cuda, "is_available", lambda: False)
        launch.function_of.cache_clear()
        with pytest.raises(RuntimeError, match=r"CuPy finds no CUDA device; graphfeed doctor --cuda"):
            ops.gather_rows(cuda.put(torch.zeros(3, 1)), cuda.put(torch.tensor([0])))
