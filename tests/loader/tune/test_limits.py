"""What a machine and a pipeline allow: memory for rows and workers, cores, processes."""

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader import memory_budget
from graphfeed.loader.executors import available_cores
from graphfeed.loader.memory_budget import MemoryBudget
from graphfeed.loader.plan import make_plan
from graphfeed.loader.rules import LoaderOptions
from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.tune import find_limits, limits, why_fixed
from graphfeed.loader.tune.choice import Limits
from graphfeed.loader.tune.limits import memory_of_worker
from graphfeed.pyg.stages.ordered_item_sampler import OrderedItemSampler
from tests import pipelines


def limits_of(pipe: gf.Datapipe, memory: int | None) -> Limits:
    options = LoaderOptions(memory=MemoryBudget(memory, tunes=True))
    return find_limits(make_plan(pipe, options), options)


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


@pytest.mark.parametrize(
    ("pipe", "reason"),
    [
        (pipelines.homogeneous(), ""),
        (pipelines.heterogeneous(), ""),
        (gf.MiniBatchTransformer([1, 2]), "the source has an order of its own"),  # type: ignore[arg-type]
        (Doubles(pipelines.seeds().transform()), "does not map one mini-batch to one"),
        (ordered(), "the source has an order of its own"),
        (pipelines.seeds(), "no stage runs in workers"),
    ],
)
def test_pipelines_whose_workers_can_change_in_the_middle_of_an_epoch(pipe: gf.Datapipe, reason: str) -> None:
    assert reason in why_fixed(pipe)
    assert bool(reason) == bool(why_fixed(pipe))


def test_ranks_that_work_together_keep_their_workers() -> None:
    graph = gf.from_coo(torch.tensor([[0, 1], [1, 0]]), 2)
    pipe: Any = gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1).sample_neighbor(graph, [1])
    assert why_fixed(pipe) == ""
    assert "ranks make joint mini-batches" in why_fixed(pipe.changed(cooperative=True))


def test_a_graph_on_a_gpu_leaves_nothing_to_choose() -> None:
    graph = gf.from_coo(torch.tensor([[0, 1], [1, 0]]), 2)
    pipe = gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1).copy_to("cuda").sample_neighbor(graph, [1])
    assert "sampled on a GPU" in why_fixed(pipe)


def test_limits_are_those_of_the_machine_shared_by_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cpu_quotas", lambda: iter([3.5]))
    monkeypatch.setattr(limits, "available_cores", lambda: 8)
    monkeypatch.setattr(memory_budget, "available_memory", lambda: 1000.0)
    found = limits_of(pipelines.homogeneous(), None)
    assert (found.num_cores, found.memory, found.no_processes) == (4, 500.0, "")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = limits_of(pipelines.homogeneous(), 123)
    assert (found.num_cores, found.memory) == (2, 61.5)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert limits_of(pipelines.homogeneous(), 123).num_cores == 1
    assert available_cores() >= 1


def test_a_stage_that_can_not_be_sent_rules_processes_out() -> None:
    pipe = pipelines.seeds().transform(threading.Lock().acquire)
    assert limits_of(pipe, None).no_processes == "MiniBatchTransformer, stage 2, can't be sent to them"


def test_tensors_of_the_user_are_copied_for_processes(small_is_shared: None) -> None:
    ids = torch.arange(10_000)
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(ids, names="seeds"), batch_size=100).transform()
    assert limits_of(pipe, None).copied_bytes == ids.nbytes
    assert limits_of(pipelines.seeds().transform(), None).copied_bytes == 0


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="asks /proc")
def test_the_memory_of_a_process_is_what_it_has_alone_and_with_others() -> None:
    alone, shared = memory_of_worker(os.getpid())
    assert alone > 10e6
    assert shared >= 0
    with pytest.raises(OSError, match="smaps_rollup"):
        memory_of_worker(1 << 30)


def test_rows_that_are_read_ahead_take_half_of_the_limit(tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", np.zeros((8, 2)))
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(tmp_path / "feat.npy")})
    pipe = pipelines.seeds().transform().fetch_feature(store, node_feature_keys=["feat"])
    assert limits_of(pipe, 100_001).memory == 100_001
    options = LoaderOptions(memory=MemoryBudget(100_001, tunes=True), window=2)
    plan = make_plan(pipe, options)
    (stage,) = find(plan.running, InWindows)
    assert isinstance(stage, InWindows)
    assert 49_000 < stage.max_size_in_bytes <= 50_000.5
    assert find_limits(plan, options).memory == 100_001 - stage.max_size_in_bytes


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let 1200 bytes be available, and note how often somebody asks."""
    answers: list[float] = []

    def available() -> float:
        answers.append(1200.0)
        return answers[-1]

    monkeypatch.setattr(memory_budget, "available_memory", available)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return answers


def test_a_limit_is_all_there_is(asked: list[float]) -> None:
    assert MemoryBudget(600).for_rows() == 600
    tuned = MemoryBudget(600, tunes=True)
    assert (tuned.for_rows(), tuned.for_workers(0), tuned.for_workers(250)) == (300, 600, 350)
    assert asked == []


def test_without_a_limit_it_goes_by_what_is_available_when_that_is_asked_first(asked: list[float]) -> None:
    budget = MemoryBudget(tunes=True)
    assert (budget.for_rows(), budget.for_workers(200), MemoryBudget().for_rows()) == (200, 600, 400)
    assert len(asked) == 2
    copy = pickle.loads(pickle.dumps(budget))
    assert copy == budget
    assert copy.for_rows() == 200
    assert len(asked) == 3


@pytest.mark.parametrize("limit", [None, 400])
def test_ranks_of_a_machine_share_it(asked: list[float], limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert MemoryBudget(limit).for_rows() == 100
    assert MemoryBudget(limit, tunes=True).for_workers(0) == (150 if limit is None else 100)
