"""Loaders with `num_workers="auto"`: the bits and the order are those without workers, whatever is tried."""

import copy
import multiprocessing
import os
import pickle
import signal
import time
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.tune import Choice, Limits, Proposal, Tuning, choice, tuning
from tests import pipelines
from tests.digests import digest, digests

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

PROCESSES = Choice("process", 2, 2)
THREADS = [Choice("thread", 3, 1), Choice("thread", 1, 4), Choice("thread", 2, 2)]


def sampled(count: int = 120) -> gf.Datapipe:
    """Return a pipeline with `count` mini-batches."""
    items = gf.ItemSet(torch.arange(2 * count) % pipelines.NUM_NODES, names="seeds")
    return pipelines.with_items(pipelines.shuffled(), lambda sampler: sampler.changed(item_set=items, batch_size=2))


class Waits(gf.Transform):
    """Takes some milliseconds, without a core."""

    ms: float = 2.0

    def __call__(self, minibatch: Any) -> Any:
        time.sleep(self.ms / 1000)
        return minibatch


def waiting(count: int = 200, ms: float = 2.0) -> gf.Datapipe:
    return Waits(gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1), ms)


def tuning_of(loader: gf.DataLoader) -> Tuning:
    assert loader._tuning is not None
    return loader._tuning


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[Choice]:
    """Propose what a test lists, and stop; a trial ends after two mini-batches."""
    monkeypatch.setattr(tuning, "FEWEST", 2)
    monkeypatch.setattr(tuning, "enough", lambda *_: 1)
    listed: list[Choice] = []

    def propose(tried: Any, limits: Limits) -> Proposal:
        left = [one for one in listed if one not in {trial.choice for trial in tried}]
        left = [one for one in left if one.worker == "thread" or not limits.no_processes]
        return Proposal(left[0] if left else None, "the script has ended")

    monkeypatch.setattr(tuning, "propose", propose)
    return listed


@pytest.mark.parametrize("start", [0, 7])
def test_switches_anywhere_change_no_bit(script: list[Choice], start: int) -> None:
    script += THREADS
    expected = digests(gf.DataLoader(sampled(), num_workers=0, seed=3))
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        loader.load_state_dict({**loader.state_dict(), "index": start})
        assert digests(loader) == expected[start:]
        assert [trial.choice for trial in tuning_of(loader).tried] == [Choice("thread", 0, 2), *THREADS]
        assert tuning_of(loader).settled
        assert loader.num_workers == tuning_of(loader).best.num_workers
        again = digests(loader)
    assert again == digests(sampled().with_seed(3, 1))


@pytest.mark.slow
def test_processes_start_beside_threads_and_change_no_bit(script: list[Choice]) -> None:
    script += [THREADS[0], PROCESSES, THREADS[1]]
    with gf.DataLoader(sampled(140), num_workers="auto", seed=3) as loader:
        for epoch in range(200):
            assert digests(loader) == digests(sampled(140).with_seed(3, epoch))
            if tuning_of(loader).settled:
                break
        assert [trial.choice for trial in tuning_of(loader).tried] == [Choice("thread", 0, 2), *script]
        limits = tuning_of(loader).limits
        assert limits is not None
        assert limits.no_processes == ""
        assert limits.worker_bytes > 0


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit(script: list[Choice]) -> None:
    script += [PROCESSES]
    killed = 0
    with gf.DataLoader(waiting(1500), num_workers="auto", seed=3) as loader:
        for epoch in range(20):
            got = []
            for minibatch in loader:
                got.append(int(minibatch.seeds))
                pids = tuning_of(loader).current.workers.pids()
                if loader.worker == "process" and pids and not killed:
                    os.kill(pids[0], signal.SIGKILL)
                    killed += 1
            assert got == list(range(1500)), epoch
            if killed:
                break
    assert killed == 1


def fails_in_a_process(minibatch: Any) -> Any:
    if multiprocessing.parent_process() is not None:
        raise LookupError("not here")
    return minibatch


@pytest.mark.slow
def test_what_fails_in_processes_alone_is_made_by_threads(script: list[Choice]) -> None:
    script += [PROCESSES]
    pipe = waiting(1500).transform(fails_in_a_process)
    with gf.DataLoader(pipe, num_workers="auto", seed=3) as loader:
        while not tuning_of(loader).settled:
            assert [int(minibatch.seeds) for minibatch in loader] == list(range(1500))
        limits = tuning_of(loader).limits
        assert limits is not None
        assert limits.no_processes == "LookupError: not here"
        assert "refused: worker='process': LookupError: not here" in loader.explain()


def test_processes_that_do_not_start_are_ruled_out(script: list[Choice], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, cut: Any) -> None:
        raise RuntimeError("no processes today")

    monkeypatch.setattr("graphfeed.loader.workers.Workers.start_ahead", fail)
    script += [PROCESSES, THREADS[0]]
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        assert digests(loader) == digests(sampled().with_seed(3))
        assert "RuntimeError: no processes today" in loader.explain()
        assert [trial.choice for trial in tuning_of(loader).tried] == [Choice("thread", 0, 2), THREADS[0]]


def test_a_failure_of_a_stage_is_the_user_s(script: list[Choice]) -> None:
    def fail(minibatch: Any) -> Any:
        if minibatch.key.index == 9:
            raise LookupError("a bad one")
        return minibatch

    script += THREADS
    with gf.DataLoader(waiting().transform(fail), num_workers="auto", seed=3) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            with pytest.raises(LookupError, match="a bad one") as caught:
                list(loader)
            assert "mini-batch 9 of epoch 0" in caught.value.__notes__[0]
            assert loader.state_dict()["index"] == 9


@pytest.mark.parametrize("taken", [1, 11])
def test_an_epoch_that_is_left_goes_on_from_its_state(script: list[Choice], taken: int) -> None:
    script += THREADS
    expected = digests(sampled().with_seed(3))
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        batches = iter(loader)
        got = [digest(next(batches)) for _ in range(taken)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        del batches
    with gf.DataLoader(sampled(), num_workers="auto") as loader:
        loader.load_state_dict(state)
        assert got + digests(loader) == expected
        assert len(loader) == len(expected)


def test_two_epochs_at_once_are_right_and_one_is_measured(script: list[Choice]) -> None:
    script += THREADS
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        pairs = [(digest(one), digest(two)) for one, two in zip(iter(loader), iter(loader), strict=True)]
    expected = [digests(sampled().with_seed(3, epoch)) for epoch in range(2)]
    assert pairs == list(zip(*expected, strict=True))


def test_a_copy_measures_anew(script: list[Choice]) -> None:
    script += THREADS
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        list(loader)
        for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
            assert tuning_of(other).tried == []
            assert digests(other) == digests(sampled().with_seed(3, 1))
            other.close()


def test_a_profile_and_a_bar_see_all_mini_batches(script: list[Choice], capsys: pytest.CaptureFixture[str]) -> None:
    script += THREADS
    with gf.DataLoader(waiting(), num_workers="auto", seed=3, progress=True) as loader, loader.profile() as profile:
        assert len(list(loader)) == 200
    assert sum(len(record.handovers) for record in profile.records) == 200
    assert len(profile.records) == 2 + 2 * tuning.ROUNDS * len(THREADS)
    summary = profile.summary
    assert summary is not None
    assert summary.setting.num_workers == loader.num_workers
    assert "200/200" in capsys.readouterr().err


def test_small_epochs_share_a_trial(script: list[Choice], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FEWEST", 20)
    script += THREADS[:1]
    with gf.DataLoader(sampled(8), num_workers="auto", persistent_workers=False, seed=3) as loader:
        for epoch in range(20):
            assert digests(loader) == digests(sampled(8).with_seed(3, epoch))
        assert len(tuning_of(loader).tried) == 2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trials be short."""
    monkeypatch.setattr(choice, "SHORTEST_SECONDS", 0.02)
    monkeypatch.setattr(choice, "MOST", 30)


def test_it_chooses_several_threads_for_what_waits_and_says_so(quick: None) -> None:
    with gf.DataLoader(waiting(1000), num_workers="auto", memory_limit="1G") as loader:
        while not tuning_of(loader).settled:
            list(loader)
        list(loader)
        chosen = tuning_of(loader).best
        assert chosen.num_workers >= 2
        assert (loader.num_workers, loader.worker) == (chosen.num_workers, chosen.worker)
        text = loader.explain()
        assert f'num_workers="auto" chose {chosen}' in text
        assert f"num_workers={loader.num_workers}" in repr(loader)


def test_it_never_takes_more_memory_than_it_may(quick: None) -> None:
    with gf.DataLoader(waiting(500), num_workers="auto", memory_limit=60) as loader:
        tuned = tuning_of(loader)
        while not tuned.settled:
            list(loader)
        assert max(trial.memory for trial in tuned.tried) <= 60
        assert tuned.refused
        assert "more than the 60 B of memory_limit" in loader.explain()


def test_a_slow_step_needs_no_workers(quick: None) -> None:
    with gf.DataLoader(pipelines.seeds(120).transform(), num_workers="auto") as loader:
        for _ in loader:
            time.sleep(0.03)  # so long that what a busy machine adds to a wait is little
        assert "your step is the limit" in loader.explain(), loader.explain()
        assert loader.num_workers == 0


def test_a_pipeline_whose_workers_can_not_change_has_the_usual_number() -> None:
    with gf.DataLoader(gf.MiniBatchTransformer([1, 2, 3]), num_workers="auto") as loader:  # type: ignore[arg-type]
        usual = gf.DataLoader(gf.MiniBatchTransformer([1, 2, 3]))  # type: ignore[arg-type]
        assert loader.num_workers == usual.num_workers
        assert [*map(str, loader)] == ["1", "2", "3"]
        assert f'num_workers="auto" means {loader.num_workers}: the source has an order' in loader.explain()


def test_a_loader_that_nobody_refers_to_is_gone_at_once(script: list[Choice]) -> None:
    script += THREADS
    loader = gf.DataLoader(sampled(), num_workers="auto", seed=3)
    list(loader)
    del loader
