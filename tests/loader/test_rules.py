import inspect
from typing import Any

import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.description import describe_stage
from graphfeed.loader.placement_rules import cut_at_main_stages
from graphfeed.loader.plan import RULES, make_plan
from graphfeed.loader.rules import (
    LoaderOptions,
    copy_on_stream,
    device_of,
    moves,
    overlap_feature_fetch,
    overlap_graph_fetch,
    pin_before_copy,
    prefetch_before_copy,
    prefetch_main_stages,
    prefetch_on_stream,
)
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.stream_prefetch import StreamPrefetch
from tests import pipelines
from tests.pipelines import seeds

THREADS = LoaderOptions(num_workers=2)
PROCESSES = LoaderOptions(num_workers=2, in_threads=False)


def names(pipe: gf.Datapipe) -> list[str]:
    return [type(stage).__name__ for stage in gf.traverse(pipe)]


class Work(gf.Transform):
    pass


class AtHome(gf.Transform):
    runs_in = gf.Placement.MAIN


class ReadsAnywhere(gf.Transform):
    answer: bool

    def may_run_in_threads(self) -> bool:
        return self.answer


class ReadsShared(ReadsAnywhere):
    def may_run_in_processes(self) -> bool:
        return self.answer


def test_a_rule_says_what_it_does_in_one_line_and_leaves_the_user_s_pipeline_as_it_was() -> None:
    pipe = pipelines.heterogeneous()
    before = [(id(stage), describe_stage(stage), stage.runs_in) for stage in gf.traverse(pipe)]
    for rule in RULES:
        documentation = inspect.getdoc(rule)
        assert documentation is not None
        assert "\n" not in documentation
        assert rule(pipe, LoaderOptions(num_workers=0)) is pipe, "inline nothing changes"
        for options in (THREADS, PROCESSES):
            rule(pipe, options)
            assert [(id(stage), describe_stage(stage), stage.runs_in) for stage in gf.traverse(pipe)] == before, rule
    plans = [make_plan(pipe, PROCESSES) for _ in range(2)]
    assert plans[0].explain() == plans[1].explain()
    assert plans[0].written is pipe


def test_applied_rules_are_those_that_changed_something_in_their_order() -> None:
    plan = make_plan(pipelines.homogeneous(), THREADS)
    assert [rule.__name__ for rule in plan.applied] == ["shard_items", "fetch_in_threads", "cut_at_main_stages"]
    assert [rule for rule in RULES if rule in plan.applied] == list(plan.applied)
    assert make_plan(pipelines.homogeneous(), LoaderOptions(num_workers=0)).applied == ()


def test_before_a_copy_to_another_device_the_main_stages_are_prefetched() -> None:
    pipe = AtHome(seeds()).copy_to("meta")
    assert names(prefetch_before_copy(pipe, THREADS)) == ["ItemSampler", "AtHome", "Prefetch", "CopyTo"]


def test_a_copy_that_moves_nothing_is_prefetched_with_the_main_stages() -> None:
    pipe = AtHome(seeds()).copy_to("cpu")
    assert prefetch_before_copy(pipe, THREADS) is pipe
    assert names(prefetch_main_stages(pipe, THREADS)) == ["ItemSampler", "AtHome", "CopyTo", "Prefetch"]


def test_workers_before_a_copy_run_ahead_by_themselves() -> None:
    pipe = cut_at_main_stages(Work(seeds()).copy_to("meta"), THREADS)
    assert prefetch_before_copy(pipe, THREADS) is pipe


def test_what_leads_to_a_cuda_copy_runs_ahead_on_a_stream() -> None:
    for device in ("cuda", "cuda:1", torch.device("cuda")):
        planned = copy_on_stream(AtHome(seeds()).copy_to(device), THREADS)
        assert names(planned) == ["ItemSampler", "AtHome", "CopyTo", "StreamPrefetch"]
        assert isinstance(planned, StreamPrefetch)
        assert (planned.stream, planned.device, planned.buffer_size) == ("copy", device, 2)


def test_what_is_copied_on_a_stream_is_pinned_and_nothing_else() -> None:
    copied = AtHome(seeds()).copy_to("cuda")
    assert pin_before_copy(copied, THREADS) is copied
    planned = pin_before_copy(copy_on_stream(copied.transform(), THREADS), THREADS)
    assert names(planned) == ["ItemSampler", "AtHome", "Pin", "CopyTo", "StreamPrefetch", "MiniBatchTransformer"]
    (copy,) = gf.find(planned, gf.CopyTo)
    assert isinstance(copy, gf.CopyTo)
    assert copy.non_blocking
    assert pin_before_copy(planned, THREADS) is planned
    twice = pin_before_copy(copy_on_stream(copied.copy_to("cuda:1"), THREADS), THREADS)
    assert names(twice) == ["ItemSampler", "AtHome", "Pin", "CopyTo", "CopyTo", "StreamPrefetch"]


def test_a_gpu_s_copy_has_no_plain_thread_before_or_behind_it() -> None:
    for pipe in (AtHome(seeds()).copy_to("cuda"), AtHome(seeds()).copy_to("cuda").transform()):
        assert prefetch_before_copy(pipe, THREADS) is pipe
        assert prefetch_main_stages(pipe, THREADS) is pipe


def test_main_stages_at_the_end_are_prefetched() -> None:
    assert names(prefetch_main_stages(AtHome(seeds()), THREADS)) == ["ItemSampler", "AtHome", "Prefetch"]
    for pipe in (cut_at_main_stages(Work(seeds()), THREADS), seeds().copy_to("meta")):
        assert prefetch_main_stages(pipe, THREADS) is pipe


class Samples(gf.Transform):
    overlap_fetch: bool = False
    reads_graph = True


class Fetches(gf.Transform):
    overlap_fetch: bool = True
    runs_in = gf.Placement.MAIN

    def may_run_in_threads(self) -> bool:
        return False


def streams(pipe: gf.Datapipe, **options: Any) -> dict[str, list[str]]:
    """Return the stages on each stream."""
    planned = make_plan(pipe, LoaderOptions(**options)).running
    found = {}
    for stage in gf.find(planned, StreamPrefetch):
        assert isinstance(stage, StreamPrefetch)
        found[stage.stream] = names(stage)[:-1]
    return found


def on_a_gpu() -> gf.Datapipe:
    return Fetches(Samples(Work(seeds()).copy_to("cuda")))


def test_features_behind_a_copy_are_fetched_ahead_unless_that_is_refused() -> None:
    ahead = ["ItemSampler", "Work", "Pin", "CopyTo", "Samples", "Fetches"]
    assert streams(on_a_gpu()) == {"feature": ahead}
    assert streams(on_a_gpu(), overlap_feature_fetch=False) == {}
    assert streams(on_a_gpu().changed(overlap_fetch=False)) == {}
    assert streams(on_a_gpu().changed(overlap_fetch=False), overlap_feature_fetch=True) == {"feature": ahead}


def test_sampling_behind_a_copy_is_ahead_of_fetching_where_that_is_asked_for() -> None:
    sampled = ["ItemSampler", "Work", "Pin", "CopyTo", "Samples"]
    both = {"graph": sampled, "feature": [*sampled, "StreamPrefetch", "Fetches"]}
    assert streams(on_a_gpu(), overlap_graph_fetch=True) == both
    asking = Fetches(Samples(Work(seeds()).copy_to("cuda"), overlap_fetch=True))
    assert streams(asking) == both
    assert streams(asking, overlap_feature_fetch=False) == {"graph": sampled}
    assert set(streams(asking, overlap_graph_fetch=False)) == {"feature"}


def test_samplers_in_a_chain_share_a_stream() -> None:
    chain = Samples(Samples(seeds().copy_to("cuda"), overlap_fetch=True), overlap_fetch=True)
    assert streams(chain) == {"graph": ["ItemSampler", "Pin", "CopyTo", "Samples", "Samples"]}


def test_a_copy_that_is_ahead_already_has_no_stream_of_its_own() -> None:
    assert set(streams(Fetches(Work(seeds()).copy_to("cuda")), num_workers=2)) == {"feature"}
    fetched = Fetches(Work(seeds())).copy_to("cuda")
    assert set(streams(fetched, num_workers=2)) == {"copy"}


def test_on_the_cpu_nothing_is_put_on_streams() -> None:
    pipe = Fetches(Samples(Work(seeds()).copy_to("cpu")))
    for rule in (overlap_graph_fetch, overlap_feature_fetch, prefetch_on_stream, copy_on_stream, pin_before_copy):
        assert rule(pipe, LoaderOptions(2, overlap_graph_fetch=True, overlap_feature_fetch=True)) is pipe


def test_prefetching_that_is_asked_for_on_a_gpu_has_a_stream() -> None:
    pipe = Work(seeds()).copy_to("cuda").transform().prefetch(5)
    planned = make_plan(pipe, LoaderOptions()).running
    assert isinstance(planned, StreamPrefetch)
    assert (planned.stream, planned.buffer_size) == ("prefetch", 5)
    here = Work(seeds()).prefetch(5)
    assert prefetch_on_stream(here, THREADS) is here


def test_a_copy_moves_what_lies_elsewhere() -> None:
    moving = {"cpu": False, "meta": True, "cuda": True}
    assert {device: moves(seeds().copy_to(device)) for device in moving} == moving
    assert moves(seeds().copy_to("cuda").copy_to("cpu"))
    assert not moves(seeds())


def test_the_last_copy_says_where_mini_batches_are() -> None:
    assert device_of(Work(seeds().copy_to("cuda:1"))) == "cuda:1"
    assert device_of(seeds().copy_to("cuda").copy_to("cpu")) is None
    assert device_of(seeds()) is None


def test_threads_have_as_many_mini_batches_ready_as_workers_have_in_flight() -> None:
    options = LoaderOptions(2, prefetch_factor=5, timeout_seconds=3)
    for pipe in (AtHome(seeds()), AtHome(seeds()).copy_to("cpu"), AtHome(seeds()).copy_to("cuda")):
        planned = make_plan(pipe, options).running
        (thread,) = [stage for stage in gf.traverse(planned) if isinstance(stage, (StreamPrefetch, Prefetch))]
        assert (thread.buffer_size, thread.timeout_seconds) == (5, 6)
