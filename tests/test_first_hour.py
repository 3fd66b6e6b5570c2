import getpass
import json
import platform
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from graphfeed import doctor, first_hour
from graphfeed.__main__ import main
from graphfeed.cuda_report import Finding
from graphfeed.first_hour import REPORT, Outcome, Step, all_steps, run_step, without_private
from tests.waiting import wait_until

FOUND = {"status": "ok", "subject": "kernels", "said": "24 each mini-batch"}


def step(name: str, *lines: str, seconds: float = 60) -> Step:
    """Return a step that runs a program, behind a finding."""
    said = "\n".join(["import os, sys, time", f"print({json.dumps(json.dumps(FOUND))}, flush=True)", *lines])
    return Step(name, ("-S", "-c", said), seconds)


def test_the_report_has_all_steps_in_order_whatever_became_of_each(tmp_path: Path) -> None:
    progress, steps = StringIO(), [
        step("first"),
        step("crashes", "os.abort()"),
        step("raises", "print('a table')", "raise ValueError('no memory')"),
        step("last"),
    ]  # fmt: skip
    report = first_hour.first_hour(steps, tmp_path / "new", progress)
    first, crashed, raised, last = report.outcomes
    assert (first.ended, crashed.ended, raised.ended, last.ended) == (
        "done",
        "ended by SIGABRT",
        "exit status 1",
        "done",
    )
    assert all(outcome.findings == (Finding(**FOUND),) for outcome in report.outcomes)
    assert first.output == ()
    assert (raised.output[0], raised.output[-1]) == ("a table", "ValueError: no memory")
    assert report.wrong == ["crashes", "raises"]

    text = (tmp_path / "new" / f"{REPORT}.txt").read_text()
    assert text == str(report)
    assert text.endswith("\n4 steps, failed: crashes, raises\n")
    assert "ok       kernels  24 each mini-batch\n  | a table\n" in text
    written = json.loads((tmp_path / "new" / f"{REPORT}.json").read_text())
    assert [entry["name"] for entry in written["steps"]] == ["first", "crashes", "raises", "last"]
    assert written["steps"][1]["findings"] == [FOUND]
    assert written["steps"][2]["ended"] == "exit status 1"
    assert progress.getvalue().startswith("first: at most 60 s\n== first: done")


def test_a_step_that_hangs_is_killed_with_what_it_started() -> None:
    child = "import time; time.sleep(1000)"
    hanging = step(
        "hangs",
        "import subprocess",
        f"process = subprocess.Popen([sys.executable, '-S', '-c', {child!r}])",
        "print(process.pid, flush=True)",
        "time.sleep(1000)",
        seconds=2,
    )
    outcome = run_step(hanging)
    assert outcome.ended == "killed, as it took more than 2 s"
    assert outcome.findings == (Finding(**FOUND),)
    assert not outcome.ok
    (child_id,) = outcome.output
    wait_until(lambda: has_ended(Path(f"/proc/{child_id}/stat")))


def has_ended(status: Path) -> bool:
    """Return whether a process has ended, whether or not its parent has asked how."""
    try:
        return status.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_step_fails_by_what_it_finds() -> None:
    outcome = Outcome("kernels", "done", 1.0, (Finding("failed", "a", "3 values differ"),), ())
    assert not outcome.ok
    assert Outcome("kernels", "done", 1.0, (Finding("change", "a", "b"),), ()).ok


def test_a_report_says_nothing_of_user_machine_or_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe")
    monkeypatch.setattr(platform, "node", lambda: "lab7.example.org")
    monkeypatch.setenv("HOME", "/home/Jane Doe")
    for line, left in {
        "in /usr/local/cuda/include": "in .../include",
        'File "/home/Jane Doe/my work/x.py", line 3': 'File "~/my work/x.py", line 3',
        f"{sys.prefix}/lib/python3/site-packages/torch/cuda.py:7": ".../cuda.py:7",
        f"at {first_hour.CLONE}/graphfeed/ops/gather.py": "at .../gather.py",
        r"C:\Users\other\lib\a.dll is missing": ".../a.dll is missing",
        "jdoe@lab7 on lab7.example.org": "...@... on ...",
        "12.5 GB/s and 3 M/s; see https://pytorch.org/docs/stable": "12.5 GB/s and 3 M/s; see https://pytorch.org/docs/stable",
        "ok 24.0 each mini-batch": "ok 24.0 each mini-batch",
    }.items():  # fmt: skip
        assert without_private(line) == left
    told = run_step(step("tells", "print('/home/jdoe/a.py', file=sys.stderr)", "sys.exit('jdoe: no')"))
    assert told.output == (".../a.py", "...: no")
    monkeypatch.setattr(first_hour, "CLONE", tmp_path)
    folder = json.dumps(json.dumps({**FOUND, "said": f"in {tmp_path}/deep/folder"}))
    assert run_step(step("finds", f"print({folder})")).findings[1].said == "in .../folder"


def test_the_steps_are_the_checks_and_then_what_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name, _, _ in all_steps()]
    parts = [name.partition(":")[0] for name in names]
    assert list(dict.fromkeys(parts)) == [
        "checks", "kernels", "freed memory", "pytest -m gpu", "profile", "rows of pinned tables",
        "benchmarks cuda",
    ]  # fmt: skip
    monkeypatch.setattr(first_hour, "CLONE", tmp_path)
    assert [name for name, _, _ in all_steps()] == [name for name in names if "gpu" not in name and "marks" not in name]


def test_the_command_fails_with_the_steps_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = [step("works"), step("exits", "sys.exit(3)")]
    monkeypatch.setattr(doctor, "all_steps", lambda: made)
    assert main(["doctor", "--first-hour", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "== exits: exit status 3" in printed.out
    assert f"please send {tmp_path / REPORT}.txt and .json\n" in printed.out
    assert printed.err == "graphfeed doctor: failed: exits\n"
    del made[1]
    assert main(["doctor", "--first-hour", str(tmp_path)]) == 0
