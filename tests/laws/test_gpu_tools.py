"""The report and the measurements for a GPU; the latter run on an emulated one."""

import re
import sys
from pathlib import Path

import torch

from benchmarks.gpu_report import REPORT, Step, all_steps, run_step, run_steps
from benchmarks.gpu_speed import STEPS, Sizes
from tests.stand_ins.emulated_cuda import Cuda, device_of
from tests.stand_ins.late_streams import running
from tests.stand_ins.waiting import wait_until

SMALL = Sizes(300, 6, 8, 20, 1, 3, 3, (1 << 12, 1 << 14), 50)


def program(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", "\n".join(["import os, sys, time", "print('begun', flush=True)", *lines]))


def test_the_report_has_all_steps_in_order_whatever_became_of_each(tmp_path: Path) -> None:
    fails = program("raise ValueError(os.path.expanduser('~/secret'))")
    steps = [Step("first", program()), Step("crashes", program("os.abort()")), Step("raises", fails)]
    assert run_steps(steps, tmp_path / "new", 60) == ["crashes", "raises"]
    text = (tmp_path / "new" / REPORT).read_text()
    said = ["== first: done", "== crashes: ended by SIGABRT", "== raises: exit status 1", "ValueError: .../secret\n"]
    places = [text.index(part) for part in said]
    assert places == sorted(places)
    assert text.endswith("\nfailed: crashes, raises\n")
    assert run_steps(steps, tmp_path, 0) == []
    assert "no time was left for 3 steps, from first on\n" in (tmp_path / REPORT).read_text()
    assert all_steps(tmp_path)[1].name == "tests/laws/test_kernels_on_gpus.py"


def test_a_step_that_hangs_is_killed_with_what_it_started() -> None:
    child = "import time; time.sleep(1000)"
    started = f"print(__import__('subprocess').Popen([sys.executable, '-S', '-c', {child!r}]).pid, flush=True)"
    ended, (_, process) = run_step(program(started, "time.sleep(1000)"), 2)
    assert ended == "killed after 2 s"
    state = Path(f"/proc/{process}/stat")
    wait_until(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX")


def test_mini_batches_are_the_same_wherever_graph_and_features_lie(cuda: Cuda, tmp_path: Path) -> None:
    told: dict[bool, list[list[str]]] = {True: [], False: []}
    with running(cuda):
        device = torch.device(device_of(cuda))
        for name in STEPS.keys() - {"tables"}:
            torch.manual_seed(0)
            found = dict(STEPS[name](device, tmp_path / "trace.json", SMALL))
            assert ("over the bus" in found["rows"]) == ("pinned" in name)
            told["typed" in name].append(
                re.findall(r"(\d+) (?:edges|bytes) each", f"{found['mini-batches']}{found['rows']}")
            )
        tables = dict(STEPS["tables"](device, Path(), SMALL))
    assert all(sizes == [sizes[0]] * len(sizes) for sizes in told.values())
    assert list(tables) == ["rows of 3.8147e-06 GiB", "rows of 1.52588e-05 GiB"]
