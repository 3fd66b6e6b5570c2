from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed import cuda_report
from graphfeed.cuda_report import CudaReport, Finding, check_device, find_cupy, find_device, find_headers, look_around
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of, import_launch


def test_the_report_names_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cupy(package: str, op: str) -> Any:
        raise ImportError("no CuPy")

    monkeypatch.setattr(cuda_report, "load", no_cupy)
    subjects = [finding.subject for finding in look_around()]
    parts = ["graphfeed", "driver", "torch", "GPU", "CuPy", "NVRTC", "headers", "locked memory"]
    assert list(dict.fromkeys(subjects)) == parts
    assert "RLIMIT_MEMLOCK" in list(look_around())[-1].said


def test_a_gpu_and_its_compiler_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = import_launch()
    nvrtc = SimpleNamespace(getVersion=lambda: (13, 0))
    cupy = SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(is_available=lambda: False, nvrtc=nvrtc))
    monkeypatch.setattr(launch, "cupy", cupy)
    monkeypatch.setattr(cuda_report, "load", lambda package, op: launch)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    card = SimpleNamespace(name="Tesla T4", major=7, minor=5, total_memory=1 << 34)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    *_, gpu = find_device()
    assert gpu == Finding(
        "ok", "GPU", "cuda:0 is Tesla T4, sm_75, 16384 MiB; the kernels are tested for sm_80 and later"
    )
    found, compiler = find_cupy()
    assert found.status == "missing"
    assert 'finds no CUDA device; pip install ".[cuda13]" in a clone' in found.said
    assert compiler == Finding("ok", "NVRTC", "13.0")

    # Of two packages for CuPy, the later one has overwritten a part of the other.
    monkeypatch.setattr(cuda_report, "packages_distributions", lambda: {"cupy": ["cupy-cuda13x", "cupy-cuda12x"]})
    monkeypatch.setattr(cuda_report, "version", lambda name: "14.2.0")
    monkeypatch.setattr(cupy.cuda, "is_available", lambda: True)
    both = next(find_cupy())
    assert both.status == "failed"
    assert "cupy-cuda12x 14.2.0, cupy-cuda13x 14.2.0 lie in one folder and break each other" in both.said
    assert 'pip uninstall cupy-cuda12x cupy-cuda13x, then pip install ".[cuda13]" in a clone' in both.said

    def fail(*_: Any) -> Any:
        raise RuntimeError("libnvrtc.so.13: cannot open shared object file")

    monkeypatch.setattr(nvrtc, "getVersion", fail)
    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    assert [finding.status for finding in find_device()] == ["ok", "failed"]
    assert list(find_cupy())[1].status == "missing"


def test_on_a_gpu_the_compiler_and_locked_memory_are_checked(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_report, "PINNED_BYTES", 1 << 16)
    # What could be better keeps no kernel from running.
    monkeypatch.setattr(cuda_report, "look_around", lambda: [Finding("change", "headers", "")])
    device = torch.device(device_of(cuda))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_report, "check_device", lambda _: check_device(device))
    with cuda.running():
        report = cuda_report.cuda_check()
        assert report.ok, report
        assert str(report).endswith("\nCUDA is ready")
        assert [finding.subject for finding in report.findings] == ["headers", "compiler", "locked memory"]
        assert "a kernel read them" in report.findings[2].said
        if isinstance(cuda, EmulatedCuda):
            monkeypatch.setitem(cuda.memory.status, 0, 2)
            monkeypatch.setitem(cuda.memory.status, 8, 2)
            monkeypatch.setattr(import_launch().cupy, "RawModule", None)
            import_launch().module.cache_clear()
            import_launch().function_of.cache_clear()
            broken = cuda_report.cuda_check()
            assert [finding.status for finding in broken.findings] == ["change", "failed", "failed"]
            assert "cudaHostRegister returned 2" in broken.findings[2].said


def test_headers_are_found_where_conda_puts_them_and_are_no_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    with monkeypatch.context() as nowhere:
        nowhere.setattr(Path, "exists", lambda path: False)
        assert find_headers().status == "change"
    folder = tmp_path / "targets" / "x86_64-linux" / "include"
    folder.mkdir(parents=True)
    (folder / "cuda_runtime.h").touch()
    assert find_headers() == Finding("ok", "headers", f"in {folder}")


def test_a_report_counts_what_is_wrong() -> None:
    report = CudaReport((Finding("ok", "a", "x"), Finding("missing", "b", "y"), Finding("failed", "long", "z")))
    assert not report.ok
    lines = ["ok       a     x", "missing  b     y", "failed   long  z"]
    assert repr(report).splitlines() == [*lines, "CUDA is not ready: 1 missing and 1 failed"]
