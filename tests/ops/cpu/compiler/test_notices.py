import logging
import os
from pathlib import Path

import pytest

from graphfeed.ops.cpu.compiler import notices
from graphfeed.ops.cpu.compiler.notices import CompileClock, warn_once
from tests.ops.cpu.compiler.bare import printed
from tests.ops.cpu.compiler.kernels import add, double, scale, was_compiled

COMPILING = "graphfeed is compiling its kernels for this machine, "


def compile_for(seconds: float, clock: CompileClock, folder: Path | None = None) -> None:
    """Have compiled for some time."""
    with clock.timing(folder):
        clock.spent += seconds


def test_a_subject_is_warned_of_once(unsaid: None, caplog: pytest.LogCaptureFixture) -> None:
    for subject in ("first", "second", "first"):
        warn_once(subject, f"the {subject}")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "the first"),
        (logging.WARNING, "the second"),
    ]


def test_nothing_is_said_for_two_seconds_in_all(unsaid: None, caplog: pytest.LogCaptureFixture) -> None:
    clock, other = CompileClock(), CompileClock()
    compile_for(1.9, clock)
    compile_for(1.9, other)
    assert not caplog.records
    compile_for(0.2, clock)
    compile_for(9.0, clock)
    assert [record.message for record in caplog.records] == [f"{COMPILING}and can't save them"]


def test_it_is_said_where_kernels_are_kept(unsaid: None, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="the compiler's"), CompileClock().timing(Path("/folder")):
        raise ValueError("the compiler's")
    assert not caplog.records
    compile_for(2.5, CompileClock(), Path("/folder"))
    assert [record.message for record in caplog.records] == [f"{COMPILING}once, and keeps them in /folder"]


def test_of_the_processes_of_a_run_one_says_it(unsaid: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def say() -> int:
        notices.SAID.clear()  # as in another process
        compile_for(2.5, CompileClock(), tmp_path)
        return len(caplog.records)

    assert [say(), say()] == [1, 1]
    (note,) = tmp_path.iterdir()
    os.utime(note, (0, 0))  # a run of long ago
    assert [say(), say()] == [2, 2]


def test_what_is_compiled_counts_and_what_is_found_does_not(
    kept: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert was_compiled(add)
    spent = notices.COMPILE_CLOCK.spent
    assert spent > 0
    monkeypatch.setattr(notices, "SILENT_SECONDS", 0.0)
    assert not was_compiled(add)
    assert notices.COMPILE_CLOCK.spent == spent
    assert not caplog.records
    assert was_compiled(double)
    assert was_compiled(scale, ("int64", "float32"))
    assert [record.message for record in caplog.records] == [f"{COMPILING}once, and keeps them in {kept}"]


def test_a_program_that_has_set_up_no_logging_sees_it_on_stderr(kept: Path) -> None:
    body = """
import contextlib, io
from graphfeed.ops.cpu.compiler import notices
from tests.ops.cpu.compiler.kernels import add
notices.SILENT_SECONDS = 0.0
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    add(1, 2)
print(stderr.getvalue(), end="")
"""
    assert printed(body) == f"{COMPILING}once, and keeps them in {kept}\n"
    assert printed(body) == ""
