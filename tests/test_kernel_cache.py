"""Machine code on disk is made once for all processes, and no longer used once any part of the kernels has changed."""

import fcntl
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import graphfeed
from graphfeed.ops.cpu import kernel_cache

SCRIPT = """
import torch
from graphfeed.ops.sampling import permute
from graphfeed.ops.cpu.sampling import permute as module
print(permute(0, 3, 5000, key=1).tolist(), sum(module.permute.stats.cache_hits.values()))
"""


def start(folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: "subprocess.Popen[str]") -> tuple[str, str]:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    places, _, hits = output.strip().rpartition(" ")
    return places, hits


def run(folder: Path) -> tuple[str, str]:
    return end(start(folder))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package, without machine code."""
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(Path(graphfeed.__file__).parent, tmp_path / "graphfeed", ignore=ignored))


@pytest.mark.slow
def test_a_changed_part_makes_kernels_compile_anew(package: Path) -> None:
    folder = package.parent
    first, hits = run(folder)
    assert hits == "0"
    assert run(folder) == (first, "1")
    part = package / "ops" / "cpu" / "random.py"
    part.write_text(part.read_text().replace("np.uint64(31)", "np.uint64(30)"))
    changed, hits = run(folder)
    assert hits == "0"
    assert changed != first


@pytest.mark.slow
def test_processes_that_start_together_compile_a_kernel_once(package: Path) -> None:
    processes = [start(package.parent) for _ in range(2)]
    (first, hits), (second, other_hits) = map(end, processes)
    assert first == second
    assert {hits, other_hits} == {"0", "1"}


def is_free(lock: Path) -> bool:
    with lock.open("w") as file:
        return kernel_cache.locked(file.fileno())


def test_one_process_at_a_time_is_let_in(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with kernel_cache.only_one(lock):
        assert not is_free(lock)
    assert is_free(lock)


def test_a_child_that_was_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    stop = fork.Event()
    child = fork.Process(target=stop.wait, args=(60,))
    lock = tmp_path / "lock"
    with kernel_cache.only_one(lock):
        child.start()
    assert is_free(lock)
    stop.set()
    child.join()


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "WAIT_SECONDS", 0.02)
    lock = tmp_path / "lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with kernel_cache.only_one(lock):
            assert not is_free(lock)
        assert not is_free(lock)


def test_where_no_lock_can_be_made_there_is_none(tmp_path: Path) -> None:
    with kernel_cache.only_one(tmp_path / "missing" / "lock"):
        assert list(tmp_path.iterdir()) == []
