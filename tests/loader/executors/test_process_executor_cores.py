import os

import pytest

from graphfeed.loader.executors.process_executor import ProcessExecutor


def test_it_takes_the_cores_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(77)))
    with ProcessExecutor() as executor:
        assert executor._dispatcher.max_workers == 77
