"""The command line: its commands, and the check of a machine."""

import re
import signal
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed import doctor
from graphfeed.__main__ import COMMANDS, main
from graphfeed.cuda_report import (
    CudaReport,
    Finding,
    find_cupy,
    find_device,
    find_headers,
    header_folders,
    look_around,
    report_of,
)  # fmt: skip
from graphfeed.distributed import open_part
from graphfeed.doctor import Machine
from graphfeed.loader.executors import cpu_quotas
from tests.kinds import partitioned_graphs as graphs
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, device_of, import_launch
from tests.stand_ins.scripts import REPOSITORY, run


def test_commands_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "ingest Builds a data set from tables" in text
    assert "partition Partitions a stored graph with its features" in text
    assert "serve Serves the mini-batches of a pipeline" in text
    assert list(COMMANDS) == ["doctor", "encode", "ingest", "inspect", "partition", "serve", "warm-up"]


def test_a_command_that_was_removed_names_what_replaces_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["reorder", "papers/", "-o", "papers-in-order/"])
    assert caught.value.code == 2
    assert "removed in 0.2.0; use the recipe in docs/how-to/larger-than-memory.md" in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_as_a_module(tmp_path: Path) -> None:
    graphs.plain().save(tmp_path / "graph")
    done = run("-m", "graphfeed", "partition", "graph", "parts", "--parts", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "100 nodes and 700 edges" in done.stdout
    assert open_part(tmp_path / "parts", 1).graph.book.num_parts == 2


def test_the_script_of_the_package_is_the_same() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"graphfeed": "graphfeed.__main__:main"}


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(tmp_path / "nothing"), str(tmp_path / "parts"), "--parts", "2"]) == 1
    assert capsys.readouterr().err.startswith("graphfeed partition: ")
    torch.save(torch.zeros(3), tmp_path / "tensor")
    assert main(["partition", str(tmp_path / "tensor"), str(tmp_path / "parts"), "--parts", "2"]) == 1
    assert "holds no graph that can be read" in capsys.readouterr().err


def test_an_interruption_while_commands_are_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("graphfeed.__main__.import_module", lambda _: signal.raise_signal(signal.SIGINT))
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "graphfeed: interrupted\n"


def test_a_line_says_how_each_part_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    subjects = ["packages", "cores", "memory", "/dev/shm", "huge pages", "descriptors", "kernels", "library"]
    assert [line[9:].partition("  ")[0] for line in lines[:8]] == subjects
    assert f"torch {torch.__version__}".partition("+")[0] in lines[0]


def test_the_newest_numba_that_was_tested_is_the_newest_that_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    major, minor, _ = doctor.NEWEST_NUMBA.split(".")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    allowed = f"numba>=0.60,<{major}.{int(minor) + 1}"
    assert allowed in project["dependencies"]
    assert project["optional-dependencies"]["compile"] == [allowed]
    assert f"\nnumba=={doctor.NEWEST_NUMBA}\n" in (REPOSITORY / "constraints.txt").read_text()
    main(["doctor"])
    assert f"the newest tested Numba is {doctor.NEWEST_NUMBA}\n" in capsys.readouterr().out


def test_what_is_missing_or_fails_is_named_with_what_to_do() -> None:
    def fail(nodes: Any) -> Any:
        raise OSError("no memory that can be executed")

    installed = {name: "1" for name in doctor.NEEDED if name not in ("numba", "tqdm")}
    assert doctor.check_versions(Machine(installed)) == Finding("missing", "packages", "pip install numba tqdm")
    assert doctor.check_versions(Machine({**installed, "tqdm": "1"}, library=("", ()))).status == "ok"
    failed = Finding("failed", "kernels", "OSError: no memory that can be executed")
    assert doctor.check_kernels(fail) == failed


def test_the_check_of_kernels_runs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no memory that can be executed")

    monkeypatch.setattr("graphfeed.ops.cpu.structure.compact.compact", fail)
    assert doctor.check_kernels() == Finding("failed", "kernels", "OSError: no memory that can be executed")


@pytest.mark.parametrize(
    "files",
    [
        {"proc__self__cgroup": "0::/job/step\n", "sys__fs__cgroup__job__cpu.max": "150000 100000\n"},
        {
            "proc__self__cgroup": "3:memory:/a\n2:cpu,cpuacct:/a\n",
            "sys__fs__cgroup__cpu__a__cpu.cfs_quota_us": "150000\n",
            "sys__fs__cgroup__cpu__a__cpu.cfs_period_us": "100000\n",
            "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "-1\n",
            "sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_the_cores_of_a_container_are_counted(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in {**files, "sys__fs__cgroup__cpu.max": "max 100000\n"}.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(cpu_quotas(tmp_path)) == [1.5]
    said = "1.5 of 16 may be used, but torch computes with 16 threads; set OMP_NUM_THREADS=2"
    assert doctor.check_cores(Machine(cores=16, usable_cores=1.5, threads=16)) == Finding("change", "cores", said)
    found = doctor.check_cores(Machine(cores=16, usable_cores=8, threads=8))
    assert found == Finding("ok", "cores", "8 of 16 may be used")


def test_what_is_scarce_is_said_with_what_to_do(tmp_path: Path) -> None:
    scarce = Machine(
        memory=(5e8, 1e9), shared_folder=tmp_path, shared_bytes=64 << 20, huge_pages=False, descriptors=(256, 4096),
        code_folders=((tmp_path,), None), library=("", ["a", "b", "c", "d"]),
    )  # fmt: skip
    found = {finding.subject: finding for finding in doctor.look_at_machine(scarce)}
    advice = {
        "memory": "use worker threads",
        "/dev/shm": "--shm-size",
        "huge pages": "Linux 6.1",
        "descriptors": "raise it to 4096 by ulimit -n",
        "machine code": "set GRAPHFEED_CACHE_DIR",
    }
    for subject, text in advice.items():
        assert found[subject].status == "change"
        assert text in found[subject].said
    assert found["library"].said == "was built from other sources, so these are compiled: a, b, c and 1 more"


def test_a_library_of_kernels_that_is_not_used_is_named(tmp_path: Path) -> None:
    whole = Machine(code_folders=((tmp_path,), None), library=("", ()))
    assert doctor.check_library(whole) == Finding("ok", "library", "has all kernels, so none is compiled")
    assert doctor.check_machine_code(whole).status == "ok"
    refused = "is not used: its content has changed; install graphfeed again"
    for reason, status in (("does not come with this installation", "ok"), (refused, "change")):
        assert doctor.check_library(Machine(library=(reason, ()))) == Finding(status, "library", reason)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_kernels_are_run_on_request_and_what_will_fail_is_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert [finding.status for finding in doctor.look_at_gpus(False, has_driver=True)] == ["change"]
    assert main(["doctor", "--cuda"]) == 1
    printed = capsys.readouterr()
    assert re.search(r"\nmissing  kernels +were not run because of: .*GPU", printed.out)
    assert re.fullmatch("graphfeed doctor: this will fail: .*GPU.*, kernels\n", printed.err)


def test_the_report_names_each_part() -> None:
    subjects = [finding.subject for finding in look_around()]
    parts = ["graphfeed", "driver", "torch", "GPU", "CuPy", "NVRTC", "headers", "locked memory"]
    assert list(dict.fromkeys(subjects)) == parts
    assert "RLIMIT_MEMLOCK" in list(look_around())[-1].said


def test_a_gpu_and_its_compiler_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("libnvrtc.so.13: cannot open shared object file")

    card = SimpleNamespace(name="Tesla T4", major=7, minor=5, total_memory=1 << 34)
    there: Any = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: card
    )
    *_, gpu = find_device(there, "13.0")
    said = "cuda:0 is Tesla T4, sm_75, 16384 MiB; the kernels are tested for sm_80 and later"
    assert gpu == Finding("ok", "GPU", said)
    launch = import_launch()
    nvrtc = SimpleNamespace(getVersion=lambda: (13, 0))
    cupy = SimpleNamespace(__version__="14.2.0", cuda=SimpleNamespace(is_available=lambda: False, nvrtc=nvrtc))
    monkeypatch.setattr(launch, "cupy", cupy)
    found, compiler = find_cupy(lambda *_: launch, there)
    assert found.status == "missing"
    assert 'finds no CUDA device; pip install "graphfeed[cuda13]"' in found.said
    assert compiler == Finding("ok", "NVRTC", "13.0")

    # Of two packages for CuPy, the later one has overwritten a part of the other.
    cupy.cuda.is_available = lambda: True
    two = {"cupy-cuda13x": "14.2.0", "cupy-cuda12x": "14.2.0"}
    both = next(find_cupy(lambda *_: launch, there, two))
    assert both.status == "failed"
    assert "cupy-cuda12x 14.2.0, cupy-cuda13x 14.2.0 share a folder and break each other" in both.said
    assert 'pip uninstall cupy-cuda12x cupy-cuda13x, then pip install "graphfeed[cuda13]"' in both.said

    there.get_device_properties = nvrtc.getVersion = fail
    assert [finding.status for finding in find_device(there, "13.0")] == ["ok", "failed"]
    assert list(find_cupy(lambda *_: launch, there))[1].status == "missing"


def test_a_cupy_that_can_t_be_imported_or_make_its_folder_is_named() -> None:
    """CuPy creates the folder when it is imported, which raises an OSError if the home folder is not writable."""

    def no_folder(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/missing/.cupy")

    def no_cupy(*_: Any) -> Any:
        raise ImportError("no CuPy")

    (found,) = find_cupy(no_folder)
    assert found.status == "failed"
    assert re.search(r"/missing/\.cupy.*; set CUPY_CACHE_DIR to a writable folder$", found.said)
    assert [finding.status for finding in find_cupy(no_cupy)] == ["missing", "missing"]


def test_on_a_gpu_the_compiler_and_locked_memory_are_checked(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    # Possible improvements don't prevent kernels from running.
    around, device = [Finding("change", "headers", "")], torch.device(device_of(cuda))
    with cuda.running():
        report = report_of(around, device)
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
            broken = report_of(around, device)
            assert [finding.status for finding in broken.findings] == ["change", "failed", "failed"]
            assert "cudaHostRegister returned 2" in broken.findings[2].said


def test_headers_are_found_where_conda_puts_them_and_are_no_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert find_headers([tmp_path]).status == "change"
    folder = tmp_path / "targets" / "x86_64-linux" / "include"
    folder.mkdir(parents=True)
    (folder / "cuda_runtime.h").touch()
    assert find_headers(header_folders()) == Finding("ok", "headers", f"in {folder}")


def test_a_report_counts_what_is_wrong() -> None:
    report = CudaReport((Finding("ok", "a", "x"), Finding("missing", "b", "y"), Finding("failed", "long", "z")))
    assert not report.ok
    lines = ["ok       a     x", "missing  b     y", "failed   long  z"]
    assert repr(report).splitlines() == [*lines, "CUDA is not ready: 1 missing and 1 failed"]
