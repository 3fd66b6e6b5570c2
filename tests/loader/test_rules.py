import inspect

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.describe import describe_stage
from graphfeed.loader.rules import (
    LoaderOptions,
    cut_at_main_stages,
    fetch_in_threads,
    prefetch_before_copy,
    prefetch_main_stages,
    shard_items,
)
from tests import pipelines

THREADS = LoaderOptions(num_workers=2)
PROCESSES = LoaderOptions(num_workers=2, in_threads=False)
RULES = (shard_items, fetch_in_threads, cut_at_main_stages, prefetch_before_copy, prefetch_main_stages)


def names(pipe: gf.Datapipe) -> list[str]:
    return [type(stage).__name__ for stage in gf.traverse(pipe)]


def sampler() -> gf.ItemSampler:
    return gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)


class Work(gf.Transform):
    pass


class AtHome(gf.Transform):
    runs_in = gf.Process.MAIN


class ReadsAnywhere(gf.Transform):
    answer: bool
    runs_in = gf.Process.MAIN

    def may_run_in_threads(self) -> bool:
        return self.answer


@pytest.mark.parametrize("rule", RULES)
def test_inline_nothing_changes(rule: object) -> None:
    pipe = pipelines.heterogeneous()
    assert callable(rule)
    assert rule(pipe, LoaderOptions(num_workers=0)) is pipe


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_what_it_does_in_one_line(rule: object) -> None:
    documentation = inspect.getdoc(rule)
    assert documentation is not None
    assert "\n" not in documentation


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("options", [THREADS, PROCESSES])
def test_the_user_s_pipeline_is_left_as_it_was(rule: object, options: LoaderOptions) -> None:
    pipe = pipelines.heterogeneous()
    before = [(id(stage), describe_stage(stage), stage.runs_in) for stage in gf.traverse(pipe)]
    assert callable(rule)
    rule(pipe, options)
    assert [(id(stage), describe_stage(stage), stage.runs_in) for stage in gf.traverse(pipe)] == before


def test_any_source_by_index_is_sharded_and_an_iterable_is_not() -> None:
    class MySampler(gf.ItemSampler):
        pass

    mine = MySampler(gf.ItemSet(4, names="seeds"), batch_size=2)
    assert names(shard_items(Work(mine), THREADS)) == ["MySampler", "Sharder", "Work"]
    assert names(shard_items(Work([gf.MiniBatch()]), THREADS)) == ["IterableSource", "Work"]  # type: ignore[arg-type]


def test_fetching_moves_into_threads_only() -> None:
    moved = fetch_in_threads(ReadsAnywhere(sampler(), answer=True), THREADS)
    assert moved.runs_in is gf.Process.WORKER
    for answer, options in ((False, THREADS), (True, PROCESSES)):
        pipe = ReadsAnywhere(sampler(), answer=answer)
        assert fetch_in_threads(pipe, options) is pipe


def test_the_cut_falls_before_the_first_main_stage() -> None:
    cut = cut_at_main_stages(AtHome(Work(AtHome(Work(Work(sampler()))))), THREADS)
    assert names(cut) == ["ItemSampler", "Work", "Work", "InWorkers", "AtHome", "Work", "AtHome"]


def test_without_a_main_stage_all_runs_in_workers() -> None:
    assert names(cut_at_main_stages(Work(sampler()), THREADS)) == ["ItemSampler", "Work", "InWorkers"]


def test_where_there_is_nothing_to_work_on_there_is_no_cut() -> None:
    pipe = AtHome(sampler())
    assert cut_at_main_stages(pipe, THREADS) is pipe


def test_the_window_follows_the_prefetch_factor() -> None:
    cut = cut_at_main_stages(Work(sampler()), LoaderOptions(num_workers=3, prefetch_factor=4))
    assert describe_stage(cut) == "InWorkers(num_workers=3, window=12)"


def test_each_branch_of_a_join_is_cut() -> None:
    class Join(gf.Datapipe):
        left: gf.Datapipe
        right: gf.Datapipe

    cut = cut_at_main_stages(Join(Work(sampler()), AtHome(Work(sampler()))), THREADS)
    assert names(cut) == ["ItemSampler", "Work", "InWorkers"] * 2 + ["AtHome", "Join"]


def test_before_a_cpu_copy_the_main_stages_are_prefetched() -> None:
    pipe = AtHome(sampler()).copy_to("cpu")
    assert names(prefetch_before_copy(pipe, THREADS)) == ["ItemSampler", "AtHome", "Prefetch", "CopyTo"]


def test_workers_before_a_cpu_copy_run_ahead_by_themselves() -> None:
    pipe = cut_at_main_stages(Work(sampler()).copy_to("cpu"), THREADS)
    assert prefetch_before_copy(pipe, THREADS) is pipe


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_before_a_cuda_copy_comes_pinned_memory(device: torch.device | str) -> None:
    planned = prefetch_before_copy(AtHome(sampler()).copy_to(device), THREADS)
    assert names(planned) == ["ItemSampler", "AtHome", "Pin", "Prefetch", "CopyTo"]
    assert isinstance(planned, gf.CopyTo)
    assert planned.non_blocking


def test_main_stages_at_the_end_are_prefetched() -> None:
    assert names(prefetch_main_stages(AtHome(sampler()), THREADS)) == ["ItemSampler", "AtHome", "Prefetch"]
    for pipe in (cut_at_main_stages(Work(sampler()), THREADS), sampler().copy_to("cpu")):
        assert prefetch_main_stages(pipe, THREADS) is pipe
