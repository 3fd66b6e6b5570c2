import sys

import pytest

from graphfeed.distributed import program_end


@pytest.mark.parametrize(("error", "fails"), [(ValueError(), True), (SystemExit(1), True), (SystemExit(0), False)])
def test_a_program_fails_by_an_exception_or_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, fails: bool
) -> None:
    monkeypatch.setattr(program_end, "FAILED", type(program_end.FAILED)())
    monkeypatch.delattr(sys, "last_value", raising=False)
    program_end.note_end()
    assert not program_end.program_failed()
    try:
        raise error
    except BaseException:
        program_end.note_end()
    assert program_end.program_failed() == fails
