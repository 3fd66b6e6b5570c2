import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops import CompletedFuture, check_device, check_one_rank, is_gpu, kernels, load_kernels
from tests.kinds.refusals import check_refused
from tests.stand_ins import emulated_runtime
from tests.stand_ins.scripts import without_kernels


def test_a_device_without_kernels_and_one_that_is_not_there_are_named() -> None:
    assert kernels("rows.gather", torch.zeros(1)) is load_kernels("cpu", "rows.gather")
    assert [is_gpu(device) for device in ("cuda:3", torch.device("cuda"), "cpu", "meta")] == [True, True, False, False]
    text = r"gather has kernels for the CPU and CUDA, .* on meta; move it with .cpu\(\)"
    check_refused([(lambda: kernels("rows.gather", torch.zeros(1, device="meta")), ValueError, text)])
    check_device("copy_to", "cpu")
    if not torch.cuda.is_available():
        text = "copy_to needs the device 'cuda:1', and torch .* finds no CUDA device: install"
        check_refused([(lambda: check_device("copy_to", torch.device("cuda:1")), RuntimeError, text)])
    with emulated_runtime.installed():
        check_device("copy_to", "cuda:1")
        text = "copy_to needs the device 'cuda:5', but torch finds 2 CUDA devices; they are"
        check_refused([(lambda: check_device("copy_to", "cuda:5"), RuntimeError, text)])


@pytest.mark.slow
@pytest.mark.thorough
def test_numba_is_imported_only_to_compile_a_kernel_that_is_not_on_disk(tmp_path: Path) -> None:
    program = (
        "import sys, torch, graphfeed.ops as ops\n"
        "assert not {'llvmlite', 'numba'} & set(sys.modules)\n"
        "assert ops.coo_to_csc(torch.tensor([0]), torch.tensor([1]), 2).indptr.tolist() == [0, 0, 1]\n"
        "print('llvmlite' in sys.modules, 'numba' in sys.modules)\n"
    )
    environment = {**os.environ, **without_kernels(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    command = [sys.executable, "-c", program]
    outputs = [subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout for _ in range(2)]
    assert outputs == [b"True True\n", b"True False\n"]


@pytest.mark.slow
@pytest.mark.thorough
def test_kernels_are_compiled_anew_when_a_part_of_them_changes(tmp_path: Path) -> None:
    """Here the mixing function, which stands in another file than the kernel."""
    package = tmp_path / "graphfeed"
    shutil.copytree(Path(gf.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    ops = package / "ops"
    program = (
        "import numpy\n"
        "from graphfeed.ops.cpu.sampling.permute import hash_places\n"
        "hash_places(numpy.uint64(1), places := numpy.empty(3, dtype=numpy.uint64))\n"
        "print(places)\n"
    )
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "GRAPHFEED_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> str:
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    before = run()
    assert run() == before
    mixing = ops / "cpu" / "random.py"
    mixing.write_text(mixing.read_text().replace("np.uint64(31)", "np.uint64(30)"))
    assert run() != before


def test_more_ranks_are_refused_and_whole_numbers_of_any_type_are_taken() -> None:
    ready = CompletedFuture([1])
    assert ready.wait() is ready.wait() is ready.result
    check_one_rank(0, 1)
    check_one_rank(np.int64(0), np.int32(1))
    check_refused([
        (lambda: check_one_rank(0, 2), ValueError, "rank and world_size must be 0 and 1, but are 0 and 2; ids"),
        (lambda: check_one_rank(1, 1), ValueError, "rank and world_size must be 0 and 1, but are 1 and 1; ids"),
        (lambda: check_one_rank(False, True), ValueError, "rank and world_size must be 0 and 1, but are False and Tr"),
        (lambda: check_one_rank(0.0, 1), ValueError, "rank and world_size must be 0 and 1, but are 0.0 and 1; ids"),
    ])  # fmt: skip
