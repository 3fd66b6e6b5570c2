import json
import os
import subprocess
import sys
import time

import pytest
from torch import distributed

from graphfeed.distributed.ranks import rank_watch
from graphfeed.distributed.ranks.rank_watch import Presence, RankLostError, RankWatch


def ended_process() -> int:
    """Return the id of a process that has ended, and that nobody has waited for."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.read()
    while not Presence("", "here", process.pid).has_ended("here"):
        time.sleep(0.01)
    process.wait()
    return process.pid


def watches(*present: Presence) -> list[RankWatch]:
    """Return the watches of three ranks, some of which have come."""
    store = distributed.HashStore()  # type: ignore[attr-defined]  # torch does not list it
    for rank, presence in enumerate(present):
        store.set(f"here/{rank}", json.dumps(presence))
    return [RankWatch(store, rank, 3) for rank in range(3)]


def look_at_all(watch: RankWatch, silent_seconds: float = 60.0) -> None:
    for _ in range(3):
        watch.look(silent_seconds)


def test_a_process_is_seen_to_have_ended_only_where_its_id_means_something() -> None:
    ended, scope = ended_process(), Presence.here().scope
    assert Presence("", scope, ended).has_ended(scope)
    assert not Presence.here().has_ended(scope)
    assert not Presence("", "other", ended).has_ended(scope)
    assert not Presence("", "", ended).has_ended("")


def test_who_finds_a_rank_lost_tells_all_others() -> None:
    here = Presence.here()
    first, second, _ = watches(here, here._replace(host="(gone)", process=ended_process()))
    with pytest.raises(RankLostError, match=r"^rank 1 \(gone\) is lost before all ranks have met: its process has"):
        look_at_all(first)
    with pytest.raises(RankLostError, match=r"^rank 1 \(gone\) is lost .* load_state_dict"):
        second.look(60)


def test_a_rank_that_looks_no_more_is_lost_after_a_while() -> None:
    first, second, _ = watches(Presence.here(), Presence("(frozen)", "elsewhere", os.getpid()))
    second.look(60)
    look_at_all(first)
    time.sleep(0.02)
    with pytest.raises(RankLostError, match=r"rank 1 \(frozen\) is lost .*: it gave no sign of life for 0\.01 s"):
        look_at_all(first, 0.01)


def test_a_rank_whose_program_failed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = watches(Presence.here(), Presence.here())

    def fail() -> None:
        raise ConnectionAbortedError

    with monkeypatch.context() as patch:
        patch.setattr(rank_watch, "check_program", fail)
        with pytest.raises(ConnectionAbortedError):
            first.look(60)
    with pytest.raises(RankLostError, match=r"rank 0 .* is lost before all ranks have met: its program failed"):
        second.look(60)
