"""A meeting whose store is frozen."""

import threading
from typing import Any

import pytest
from torch import distributed

from graphfeed.distributed import MeetingPoint
from graphfeed.distributed.ranks import meeting
from graphfeed.distributed.ranks.meeting import Meeting
from tests.distributed.rank_processes import free_port


class FrozenStore:
    """Answers nothing, like the store of a process that is stopped."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def wait(self, *_: object) -> Any:
        self.ended.wait(60)

    add = set = check = get = wait


def test_a_store_that_does_not_answer_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PATIENCE_SECONDS", 0.05)
    store = FrozenStore()
    monkeypatch.setattr(MeetingPoint, "open_store", lambda *_: store)
    frozen = Meeting(1, 2, MeetingPoint("127.0.0.1", free_port(), 1, 2))
    with pytest.raises(TimeoutError, match=r"the store of rank 0 did not answer for 0\.05 s"):
        frozen.gather(0.05)
    with pytest.raises(TimeoutError, match="the store did not answer"):
        frozen.find_missing(0.05)
    store.ended.set()


class Frozen:
    """A process group's store that nobody can connect to any more."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def clone(self) -> Any:
        self.ended.wait(60)


@pytest.mark.parametrize("at_address", [False, True])
def test_a_process_group_whose_store_is_frozen_holds_no_constructor(
    monkeypatch: pytest.MonkeyPatch, at_address: bool
) -> None:
    monkeypatch.setattr(meeting, "PATIENCE_SECONDS", 0.05)
    store = Frozen()
    monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(meeting, "store_of_group", lambda _: store)
    frozen = Meeting(1, 2, MeetingPoint("127.0.0.1", free_port(), 1, 2) if at_address else None)
    with pytest.raises(TimeoutError, match=r"the store of rank 0 did not answer for 0\.05 s"):
        frozen.gather(0.05)
    store.ended.set()
