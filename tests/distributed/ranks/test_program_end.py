import multiprocessing
import sys
import threading

import pytest

from graphfeed.distributed.ranks import program_end


@pytest.fixture(autouse=True)
def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program of this process not have failed."""
    monkeypatch.setattr(program_end, "FAILED", threading.Event())
    monkeypatch.delattr(sys, "last_value", raising=False)


@pytest.mark.parametrize(("error", "fails"), [(ValueError(), True), (SystemExit(1), True), (SystemExit(0), False)])
def test_a_program_under_multiprocessing_fails_by_an_exception_or_an_exit_code(
    error: BaseException, fails: bool
) -> None:
    program_end.note_end()
    assert not program_end.program_failed()
    try:
        raise error
    except BaseException:
        program_end.note_end()
    assert program_end.program_failed() == fails


@pytest.mark.parametrize(("error", "fails"), [(ValueError(), True), (SystemExit(1), True), (SystemExit(0), False)])
def test_a_program_fails_by_what_leaves_the_function_of_its_process(error: BaseException, fails: bool) -> None:
    program_end.note_unwind(program_end.note_unwind.__code__, 0, error)
    assert not program_end.program_failed()
    program_end.note_unwind(multiprocessing.Process.run.__code__, 0, error)
    assert program_end.program_failed() == fails


def test_functions_of_python_stay_as_they_are() -> None:
    before = sys.exit, sys.excepthook, threading.excepthook
    program_end.watch_program()
    assert (sys.exit, sys.excepthook, threading.excepthook) == before


def test_an_error_in_an_interactive_session_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    assert program_end.program_failed()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not program_end.program_failed()
