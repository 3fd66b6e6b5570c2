import os
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import report
from tests.gpu.report import REPORT, Step, all_steps, run_step, run_steps
from tests.waiting import wait_until


def program(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", "\n".join(["import os, sys, time", "print('begun', flush=True)", *lines]))


def test_the_report_has_all_steps_in_order_whatever_became_of_each(tmp_path: Path) -> None:
    steps = [
        Step("first", program()),
        Step("crashes", program("os.abort()")),
        Step("raises", program("raise ValueError(os.path.expanduser('~/secret'))")),
        Step("last", program()),
    ]
    assert run_steps(steps, tmp_path / "new", 60) == ["crashes", "raises"]
    text = (tmp_path / "new" / REPORT).read_text()
    places = [
        text.index(part) for part in ("== first: done", "== crashes: ended by SIGABRT", "== raises: exit status 1")
    ]
    assert places == sorted(places)
    assert "ValueError: .../secret\n" in text
    assert text.count("begun\n") == 4
    assert text.endswith("\nfailed: crashes, raises\n")


def test_steps_for_which_no_time_is_left_are_counted(tmp_path: Path) -> None:
    assert run_steps([Step("first", program()), Step("last", program())], tmp_path, 0) == []
    assert "no time was left for 2 steps, from first on\n" in (tmp_path / REPORT).read_text()


def has_ended(process: str) -> bool:
    """Return whether a process has ended, whether or not its parent has asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_step_that_hangs_is_killed_with_what_it_started() -> None:
    child = "import time; time.sleep(1000)"
    started = f"print(__import__('subprocess').Popen([sys.executable, '-S', '-c', {child!r}]).pid, flush=True)"
    ended, (_, process) = run_step(program(started, "time.sleep(1000)"), 2)
    assert ended == "killed after 2 s"
    wait_until(lambda: has_ended(process))


def test_the_steps_begin_with_what_is_worth_most(tmp_path: Path) -> None:
    names = [step.name for step in all_steps(tmp_path)]
    assert names[:4] == ["checks", "tests/gpu/test_kernels.py", "tests/gpu/test_freed_memory.py", "speed gpu-gpu"]
    assert "tests/ops/rows/test_rows_cuda.py" in names
    assert len(names) == len(set(names))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is not missing")
def test_without_a_gpu_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "run_steps", os.abort)
    with pytest.raises(SystemExit, match="torch finds no GPU"):
        report.main([])
