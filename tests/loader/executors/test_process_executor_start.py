from multiprocessing import forkserver, resource_tracker

import pytest

from graphfeed.loader.executors.process_executor import make_context


def test_the_fork_server_starts_early_but_behind_what_unblocks_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(forkserver, "ensure_running", lambda: started.append("server"))
    monkeypatch.setattr(resource_tracker, "ensure_running", lambda: started.append("tracker"))
    assert make_context("spawn").get_start_method() == "spawn"
    assert make_context("forkserver").get_start_method() == "forkserver"
    assert started == ["tracker", "server"]
