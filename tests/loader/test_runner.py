"""Parts of an epoch."""

import threading
from dataclasses import replace

import pytest

import graphfeed as gf
from graphfeed.loader import LoaderOptions, make_plan
from graphfeed.loader import runner as runner_module
from graphfeed.loader.options import RemoteServers
from graphfeed.loader.profile import Profile
from graphfeed.loader.progress import Progress
from graphfeed.loader.runner import Runner
from graphfeed.loader.workers import Workers
from tests import pipelines
from tests.digests import digest, digests

pytestmark = pytest.mark.usefixtures("no_leaks")


def make_runner(num_workers: int, window: int = 2) -> Runner:
    options = LoaderOptions(num_workers, prefetch_factor=window)
    workers = Workers(None, RemoteServers(), "thread", num_workers, 60.0, persistent=True)
    return Runner(make_plan(pipelines.shuffled(), options), workers, None, 100)


@pytest.mark.parametrize("stop", range(9))
def test_what_was_begun_comes_out_and_the_rest_follows_in_another_part(stop: int) -> None:
    expected = digests(pipelines.shuffled().with_seed(3, 1))
    first, second = make_runner(2), make_runner(1)
    ending, got = threading.Event(), []
    for number, minibatch in enumerate(first.run(Progress(1, 0), 3, ending=ending)):
        got.append(digest(minibatch))
        if number == stop:
            ending.set()
    assert stop < len(got) <= stop + 1 + 4
    got += digests(second.run(Progress(1, len(got)), 3))
    assert got == expected
    for runner in (first, second):
        runner.workers.close()


def test_a_part_is_measured_by_itself() -> None:
    profile = Profile()
    runner = make_runner(1)
    list(runner.run(Progress(0, 0), 3, profile))
    list(replace(runner, plan=make_plan(pipelines.shuffled(), LoaderOptions(0))).run(Progress(0, 5), 3, profile))
    assert [len(record.handovers) for record in profile.records] == [9, 4]
    summary = profile.summary
    assert summary is not None
    assert (summary.setting.window, summary.num_minibatches) == (0, 3)
    runner.workers.close()


def test_a_run_that_fails_as_it_begins_is_ended_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(runner_module, "AT_BEGIN", [refuse])
    profile, runner, left = Profile(), make_runner(1), list[object]()
    monkeypatch.setattr(runner.workers, "leave", left.append)
    with pytest.raises(ZeroDivisionError):
        next(runner.run(Progress(0, 0), 3, profile))
    assert left == [runner.workers.pool]
    assert profile.records[0].after is not profile.records[0].before
    runner.workers.close()


def test_the_first_part_says_which_order_it_read() -> None:
    progress = Progress(0, 0)
    list(make_runner(0).run(progress, 3))
    assert progress.order is None
    assert gf.DataLoader(pipelines.shuffled(), num_workers=0).state_dict()["index"] == 0
