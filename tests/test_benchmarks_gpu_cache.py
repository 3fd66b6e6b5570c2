"""The benchmark of caches on a GPU runs; what it measures is for a device to say."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_cache
from benchmarks.__main__ import main
from benchmarks.graphs import Shape
from benchmarks.scale import quick
from tests.ops.compiled_kernels import COMPILER
from tests.ops.emulated_cuda import EmulatedCuda


def test_without_a_device_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (message,) = gpu_cache.report(quick(tmp_path, 1))
    assert "no CUDA device" in message


def test_both_caches_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the device is pretended; what is shown is that all is run."""
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    monkeypatch.setattr(gpu_cache, "DEVICE", torch.device("meta"))
    monkeypatch.setattr(gpu_cache, "device_clock", time.perf_counter)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "pretended")
    scale = replace(
        quick(tmp_path, 1), products=Shape("small", 500, 3_000, 3), batch_size=4, gathered_rows=100, cached_batches=1
    )
    with EmulatedCuda().running():
        tables = list(gpu_cache.report(scale))
    assert tables[0] == "gpu_cache: pretended\n"
    assert [table.count("behind a cache of 1/8") for table in tables[1:]] == [1, 1]


@pytest.mark.gpu
def test_the_gpu_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gpu_cache", "--quick", "--repeats", "2", "--cache-dir", str(tmp_path)])
    assert "rows missed" in capsys.readouterr().out
