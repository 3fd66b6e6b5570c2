import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphfeed.distributed import program_end


@pytest.fixture(autouse=True)
def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program of this process not have failed."""
    monkeypatch.setattr(program_end, "FAILED", threading.Event())
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.delattr(sys, "last_value", raising=False)


@pytest.mark.parametrize(("error", "fails"), [(ValueError(), True), (SystemExit(1), True), (SystemExit(0), False)])
def test_a_program_fails_by_an_exception_or_an_exit_code(error: BaseException, fails: bool) -> None:
    program_end.note_end()
    assert not program_end.program_failed()
    try:
        raise error
    except BaseException:
        program_end.note_end()
    assert program_end.program_failed() == fails


@pytest.mark.parametrize(("status", "fails"), [(3, True), ("a message", True), (0, False), (None, False)])
def test_a_program_fails_by_sys_exit(status: int | str | None, fails: bool) -> None:
    program_end.watch_program()
    with pytest.raises(SystemExit) as error:
        sys.exit(status)
    assert error.value.code == status
    assert program_end.program_failed() == fails


def test_sys_exit_in_another_thread_ends_that_thread_alone() -> None:
    program_end.watch_program()
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(sys.exit, 3).exception(), SystemExit)
    assert not program_end.program_failed()


def test_an_error_in_an_interactive_session_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    assert program_end.program_failed()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not program_end.program_failed()
