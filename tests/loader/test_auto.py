"""Loaders with `num_workers="auto"`: what is chosen, by the times that are measured, and that no bit depends on it."""

import copy
import multiprocessing
import pickle
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import auto
from graphfeed.loader.profile.epoch_record import StageRow
from graphfeed.loader.profile.summary import StageTime, summarise
from graphfeed.pyg.stages.ordered_item_sampler import OrderedItemSampler
from tests import pipelines
from tests.digests import digest, digests

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")

CORES = 8
Figures = dict[tuple[str, int], dict[str, Any]]


def measured(rate: float, work: float = 10.0, step: float = 5.0, cpu: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return what a profile finds: the rate, what a mini-batch takes to make and to use, and its share of a core."""
    return {
        "num_minibatches": 1000,
        "seconds": 1000 / rate,
        "waits": 0.5,
        "step_ms": step,
        "stages": (StageTime(StageRow(2, "Mine", "main"), work, work, 1.0, cpu),),
        "worker_ms": work,
        "worker_cpu_ms": cpu * work,
        "core_wait": 0.0,
        "main_ms": 0.0,
        **more,
    }


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Find these after each mini-batch, by worker and number of workers, on a machine with eight cores."""
    found: Figures = {("thread", 0): measured(50), ("thread", 3): measured(90)}

    def found_in(records: Any) -> Any:
        summary = summarise(records)
        setting = summary.setting
        return replace(summary, **found[setting.worker, setting.num_workers])

    monkeypatch.setattr(auto, "summarise", found_in)
    monkeypatch.setattr(auto, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(auto, "CHANGED", 1e9)
    monkeypatch.setattr(auto, "available_cores", lambda: CORES)
    monkeypatch.setattr(auto, "cpu_quotas", lambda: iter(()))
    return found


LOCKED = measured(90, work=20, cpu=0.5)
"""Three threads together use 0.9 cores, and wait."""


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


def tried(loader: gf.DataLoader) -> list[str]:
    """Return the choices that `explain()` lists."""
    lines = loader.explain().partition("workers: ")[2].splitlines()
    return [match[1] for line in lines if (match := re.match(r" +[\d.]+ +\d+ % +[\d.]+ \w+ +(num_workers=.*)", line))]


INLINE = ("num_workers=0", measured(50))
CASES: dict[str, tuple[Figures, list[str], str]] = {
    "so many that the step is busy, and one more": ({}, ["0", "3 thread"], "no other number"),
    "what is measured with workers counts too": (
        {("thread", 3): measured(90, 16), ("thread", 5): measured(120, 16)},
        ["0", "3 thread", "5 thread"],
        "no other number",
    ),
    "no more than there are cores": (
        {("thread", 0): measured(50, 1e3), ("thread", 8): measured(90, 1e3)},
        ["0", "8 thread"],
        "no other number",
    ),
    "more than cores where mini-batches wait": (
        {("thread", 0): measured(50, 1e3, cpu=0.1), ("thread", 32): measured(90, 1e3, cpu=0.1)},
        ["0", "32 thread"],
        "no other number",
    ),
    "others that take the cores are no reason to wait": (
        {("thread", 0): measured(50, 1e3, cpu=0.4, core_wait=0.6), ("thread", 8): measured(90, 1e3)},
        ["0", "8 thread"],
        "no other number",
    ),
    "none where the step is the limit": ({("thread", 0): measured(50, waits=0.01)}, ["0"], "your step is the limit"),
    "none where handing over costs more": ({("thread", 3): measured(40)}, ["0", "3 thread"], "no other number"),
    "what was planned, if it is about as fast": ({("thread", 3): measured(46)}, ["0", "3 thread"], "no other number"),
}
BEST = dict(zip(CASES, ["3", "5", "8", "32", "8", "0", "0", "3"], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_times_of_work_and_step_say_how_many_workers(figures: Figures, case: str) -> None:
    changes, expected, reason = CASES[case]
    figures |= changes
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        list(loader)
        names = [f"num_workers={name}".replace(" thread", ", worker='thread'") for name in expected]
        assert tried(loader) == names
        assert reason in loader.explain()
        assert loader.num_workers == int(BEST[case])
        assert f'num_workers="auto" chose num_workers={BEST[case]}' in loader.explain()
        assert (f"num_workers={loader.num_workers}" in repr(loader)) == (loader.num_workers > 0)


@pytest.mark.parametrize("start", [0, 7])
def test_switches_anywhere_change_no_bit(figures: Figures, start: int) -> None:
    figures |= {("thread", 3): measured(90, 16), ("thread", 5): measured(120, 16)}
    expected = digests(gf.DataLoader(sampled(), num_workers=0, seed=3))
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        loader.load_state_dict({**loader.state_dict(), "index": start})
        assert digests(loader) == expected[start:]
        assert len(tried(loader)) == 3
        assert digests(loader) == digests(sampled().with_seed(3, 1))


@pytest.mark.slow
def test_processes_follow_threads_that_wait_for_the_lock_and_change_no_bit(figures: Figures) -> None:
    figures |= {("thread", 3): LOCKED, ("process", 5): measured(200, 10)}
    figures["process", 3] = measured(150, 10)
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        for epoch in range(2):
            assert digests(loader) == digests(sampled().with_seed(3, epoch))
            assert loader.worker == "process"
        assert "num_workers=5, worker='process'" in tried(loader)


def fails_in_a_process(minibatch: Any) -> Any:
    if multiprocessing.parent_process() is not None:
        raise LookupError("not here")
    return minibatch


@pytest.mark.slow
def test_what_fails_in_processes_alone_is_made_by_threads(figures: Figures) -> None:
    figures |= {("thread", 3): LOCKED, ("thread", 5): measured(80)}
    with gf.DataLoader(waiting().transform(fails_in_a_process), num_workers="auto", seed=3) as loader:
        assert [int(minibatch.seeds) for minibatch in loader] == list(range(200))
        assert "refused: worker='process': LookupError: not here" in loader.explain()
        assert loader.worker == "thread"


def test_processes_that_do_not_start_are_ruled_out(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no processes today")

    monkeypatch.setattr("graphfeed.loader.runner.KEPT.take", fail)
    figures |= {("thread", 3): LOCKED, ("thread", 5): measured(80)}
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        assert digests(loader) == digests(sampled().with_seed(3))
        assert "refused: worker='process': RuntimeError: no processes today" in loader.explain()
        assert len(set(tried(loader))) == len(tried(loader)) > 1  # what was tried before that counts no more
        assert (loader.num_workers, loader.worker) == (3, "thread")


def test_a_stage_that_can_not_be_sent_rules_processes_out(figures: Figures) -> None:
    figures |= {("thread", 3): LOCKED, ("thread", 5): measured(80)}
    lock = threading.Lock()

    def keep(minibatch: Any) -> Any:
        with lock:
            return minibatch

    with gf.DataLoader(waiting().transform(keep), num_workers="auto") as loader:
        list(loader)
        assert "refused: worker='process': MiniBatchTransformer, stage 3, can't be sent to them" in loader.explain()


def test_a_failure_of_a_stage_is_the_user_s(figures: Figures) -> None:
    def fail(minibatch: Any) -> Any:
        if minibatch.key.index == 9:
            raise LookupError("a bad one")
        return minibatch

    with gf.DataLoader(waiting().transform(fail), num_workers="auto", seed=3) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            with pytest.raises(LookupError, match="a bad one") as caught:
                list(loader)
            assert "mini-batch 9 of epoch 0" in caught.value.__notes__[0]
            assert loader.state_dict()["index"] == 9


@pytest.mark.parametrize("taken", [1, 11])
def test_an_epoch_that_is_left_goes_on_from_its_state(figures: Figures, taken: int) -> None:
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


def test_two_epochs_at_once_are_right_and_one_is_measured(figures: Figures) -> None:
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        pairs = [(digest(one), digest(two)) for one, two in zip(iter(loader), iter(loader), strict=True)]
        assert len(tried(loader)) == 2
    expected = [digests(sampled().with_seed(3, epoch)) for epoch in range(2)]
    assert pairs == list(zip(*expected, strict=True))


def test_a_copy_measures_anew(figures: Figures) -> None:
    with gf.DataLoader(sampled(), num_workers="auto", seed=3) as loader:
        list(loader)
        for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
            assert "has num_workers=0, and measures the next mini-batches" in other.explain()
            assert digests(other) == digests(sampled().with_seed(3, 1))
            other.close()


def test_a_profile_and_a_bar_see_all_mini_batches(figures: Figures, capsys: pytest.CaptureFixture[str]) -> None:
    with gf.DataLoader(waiting(), num_workers="auto", seed=3, progress=True) as loader, loader.profile() as profile:
        assert len(list(loader)) == 200
    assert sum(len(record.handovers) for record in profile.records) == 200
    summary = profile.summary
    assert summary is not None
    assert summary.setting.num_workers == loader.num_workers == 3
    assert "200/200" in capsys.readouterr().err


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let measurements be short."""
    monkeypatch.setattr(auto, "SHORTEST_SECONDS", 0.02)


def test_small_epochs_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SHORTEST_SECONDS", 0.05)  # several epochs
    with gf.DataLoader(waiting(8), num_workers="auto", persistent_workers=False, seed=3) as loader:
        epochs = 0
        while len(tried(loader)) < 2 and epochs < 1000:
            assert [int(minibatch.seeds) for minibatch in loader] == list(range(8)), epochs
            epochs += 1
        assert epochs < 1000


def test_several_threads_are_chosen_for_what_waits(quick: None) -> None:
    with gf.DataLoader(waiting(200, 20), num_workers="auto", memory_limit="1G") as loader:
        list(loader)
        assert loader.num_workers >= 2
        assert loader.worker == "thread"


def test_a_slow_step_needs_no_workers(quick: None) -> None:
    with gf.DataLoader(pipelines.seeds(60).transform(), num_workers="auto") as loader:
        for _ in loader:
            time.sleep(0.03)  # so long that what a busy machine adds to a wait is little
        assert "your step is the limit" in loader.explain(), loader.explain()
        assert loader.num_workers == 0


@pytest.mark.parametrize(("expected", "anew"), [(1e6, True), (None, False)])
def test_an_epoch_with_another_rate_than_expected_is_planned_anew(
    figures: Figures, monkeypatch: pytest.MonkeyPatch, expected: float | None, anew: bool
) -> None:
    figures |= {("thread", 0): measured(50, waits=0.01)}
    with gf.DataLoader(waiting(40, 5), num_workers="auto") as loader:
        begin = time.perf_counter()
        list(loader)
        figures["thread", 0] = measured(expected or 40 / (time.perf_counter() - begin), waits=0.01)
        monkeypatch.setattr(auto, "CHANGED", 0.25 if expected else 10.0)
        loader._auto = loader._begin_auto()
        list(loader)
        assert ("still measuring" in loader.explain()) == anew
        figures |= {("thread", 0): measured(50)}
        list(loader)
        assert loader.num_workers == (3 if anew else 0)


def test_no_more_memory_is_taken_than_may_be(figures: Figures) -> None:
    with gf.DataLoader(waiting(), num_workers="auto", memory_limit=60) as loader:
        figures["thread", 1] = measured(80)
        list(loader)
        assert "refused: num_workers=3, worker='thread' would take" in loader.explain()
        assert "more than the 60 B of memory_limit" in loader.explain()
        assert loader.num_workers == 1
    with gf.DataLoader(waiting(), num_workers="auto", memory_limit=30) as loader:
        list(loader)
        assert loader.num_workers == 0


def test_memory_of_processes_has_what_is_copied_for_them(figures: Figures, small_is_shared: None) -> None:
    figures |= {("thread", 3): LOCKED, ("thread", 5): measured(80)}
    ids = torch.arange(10_000)
    pipe: gf.Datapipe = Waits(gf.ItemSampler(gf.ItemSet(ids, names="seeds"), batch_size=100))
    with gf.DataLoader(pipe, num_workers="auto", memory_limit=int(auto.WORKER_BYTES) + 80_000) as loader:
        list(loader)
        assert "num_workers=1, worker='process' would take 256 MB" in loader.explain()
        assert loader.worker == "thread"


class Doubles(gf.Datapipe):
    """Yields each mini-batch twice."""

    datapipe: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            yield from (minibatch, minibatch)


def ordered() -> gf.Datapipe:
    items = gf.ItemSet(8, names="seeds")
    pipe: gf.Datapipe = OrderedItemSampler(items, 2, order=torch.utils.data.SequentialSampler(range(8)))
    return pipe.transform()


def on_graph() -> Any:
    graph = gf.from_coo(torch.tensor([[0, 1], [1, 0]]), 2)
    return gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1).sample_neighbor(graph, [1])


@pytest.mark.parametrize(
    ("pipe", "reason"),
    [
        (pipelines.homogeneous(), ""),
        (pipelines.heterogeneous(), ""),
        (gf.MiniBatchTransformer([1, 2]), "the source has an order of its own"),  # type: ignore[arg-type]
        (Doubles(pipelines.seeds().transform()), "does not map one mini-batch to one"),
        (ordered(), "the source has an order of its own"),
        (pipelines.seeds(), "no stage runs in workers"),
        (on_graph().changed(cooperative=True), "ranks make joint mini-batches"),
        (pipelines.seeds().copy_to("cuda").sample_neighbor(on_graph().graph, [1]), "sampled on a GPU"),
    ],
)
def test_pipelines_whose_workers_can_not_change_in_the_middle_of_an_epoch(pipe: gf.Datapipe, reason: str) -> None:
    assert reason in auto.why_fixed(pipe)
    assert bool(reason) == bool(auto.why_fixed(pipe))


def test_a_pipeline_whose_workers_can_not_change_has_the_usual_number() -> None:
    with gf.DataLoader(gf.MiniBatchTransformer([1, 2, 3]), num_workers="auto") as loader:  # type: ignore[arg-type]
        usual = gf.DataLoader(gf.MiniBatchTransformer([1, 2, 3]))  # type: ignore[arg-type]
        assert loader.num_workers == usual.num_workers
        assert [*map(str, loader)] == ["1", "2", "3"]
        assert f'num_workers="auto" means {loader.num_workers}: the source has an order' in loader.explain()


@pytest.mark.parametrize(("ranks", "quotas", "most"), [("1", [3.5], 4), ("2", [], 4), ("100", [], 1)])
def test_cores_are_shared_by_the_ranks_of_a_machine(
    figures: Figures, monkeypatch: pytest.MonkeyPatch, ranks: str, quotas: list[float], most: int
) -> None:
    monkeypatch.setattr(auto, "cpu_quotas", lambda: iter(quotas))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    figures |= {("thread", 0): measured(50, 1e3), ("thread", most): measured(90, 1e3)}
    with gf.DataLoader(sampled(), num_workers="auto") as loader:
        list(loader)
        assert loader.num_workers == most


def test_a_loader_that_nobody_refers_to_is_gone_at_once(figures: Figures) -> None:
    loader = gf.DataLoader(sampled(), num_workers="auto", seed=3)
    list(loader)
    del loader
