import os

import pytest

from graphfeed.ops.forks import after_fork_in_child
from tests.forked import in_child

CALLED: list[int] = []


@after_fork_in_child
def note() -> None:
    CALLED.append(os.getpid())


def test_a_function_is_called_in_a_forked_process_and_only_there() -> None:
    assert in_child(lambda: [os.getpid()] == CALLED) == "True"
    assert CALLED == []


def test_where_there_is_no_fork_a_function_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork")
    assert after_fork_in_child(note) is note
