import inspect
from typing import Any

import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import describe_stage
from graphfeed.loader import RULES, LoaderOptions, Prefetch, StreamPrefetch, make_plan
from tests.kinds import pipelines
from tests.kinds.pipelines import seeds

THREADS = LoaderOptions(num_workers=2)
PROCESSES = LoaderOptions(num_workers=2, in_threads=False)


def names(pipe: gf.Datapipe) -> list[str]:
    return [type(stage).__name__ for stage in gf.traverse(pipe)]


class Work(gf.Transform):
    pass


class AtHome(gf.Transform, runs_in=gf.Placement.MAIN):
    pass


class ReadsAnywhere(gf.Transform):
    answer: bool

    def may_run_in_threads(self) -> bool:
        return self.answer

    def may_run_in_processes(self) -> bool:
        return False


class ReadsShared(ReadsAnywhere):
    def may_run_in_processes(self) -> bool:
        return self.answer


def test_a_rule_says_what_it_does_in_one_line_and_leaves_the_user_s_pipeline_as_it_was() -> None:
    pipe = pipelines.heterogeneous()
    before = [(id(stage), describe_stage(stage), stage.traits) for stage in gf.traverse(pipe)]
    for rule in RULES:
        documentation = inspect.getdoc(rule)
        assert documentation is not None
        assert "\n" not in documentation
        assert rule(pipe, LoaderOptions(num_workers=0, window=0)) is pipe, "inline nothing changes"
        for options in (THREADS, PROCESSES):
            rule(pipe, options)
            assert [(id(stage), describe_stage(stage), stage.traits) for stage in gf.traverse(pipe)] == before, rule
    plans = [make_plan(pipe, PROCESSES) for _ in range(2)]
    assert plans[0].explain() == plans[1].explain()
    assert plans[0].written is pipe


class MySampler(gf.ItemSampler):
    pass


class Join(gf.Datapipe):
    left: gf.Datapipe
    right: gf.Datapipe


def fetched(pipe: Any, *, anywhere: bool = True) -> gf.Datapipe:
    return ReadsAnywhere(pipe, answer=anywhere)


MINE: Any = MySampler(gf.ItemSet(4, names="seeds"), batch_size=2)
GIVEN: Any = [gf.MiniBatch()]
PLANS: list[tuple[gf.Datapipe, str, str]] = [
    # Any source by index is sharded, and an iterable is not.
    (Work(MINE), "MySampler ByIndex Work InWorkers", ""),
    (Work(GIVEN), "IterableSource Work InWorkers", ""),
    # The cut is before the first stage of the main process, or after all stages, in each branch of a join.
    (
        AtHome(Work(AtHome(Work(Work(seeds()))))),
        "ItemSampler ByIndex Work Work InWorkers AtHome Work AtHome Prefetch",
        "",
    ),
    (
        Join(Work(seeds()), AtHome(Work(seeds()))),
        "ItemSampler ByIndex Work InWorkers ItemSampler ByIndex Work InWorkers AtHome Join Prefetch",
        "",
    ),
    # Stages of the main process are prefetched: before a copy that moves data, and together with an idle copy.
    (AtHome(seeds()), "ItemSampler ByIndex AtHome Prefetch", ""),
    (AtHome(seeds()).copy_to("meta"), "ItemSampler ByIndex AtHome Prefetch CopyTo", ""),
    (AtHome(seeds()).copy_to("cpu"), "ItemSampler ByIndex AtHome CopyTo Prefetch", ""),
    # Workers before a copy run ahead by themselves.
    (Work(seeds()).copy_to("meta"), "ItemSampler ByIndex Work InWorkers CopyTo", ""),
    # Mini-batches that are copied to a GPU are pinned, and run ahead on a stream, without another thread.
    (AtHome(seeds()).copy_to("cuda"), "ItemSampler ByIndex AtHome Pin CopyTo StreamPrefetch", ""),
    (
        AtHome(seeds()).copy_to("cuda").transform(),
        "ItemSampler ByIndex AtHome Pin CopyTo StreamPrefetch MiniBatchTransformer",
        "",
    ),
    (
        AtHome(seeds()).copy_to("cuda").copy_to("cuda:1"),
        "ItemSampler ByIndex AtHome Pin CopyTo CopyTo StreamPrefetch",
        "",
    ),
    # An explicit prefetch has a stream only on a GPU.
    (
        Work(seeds()).copy_to("cuda").prefetch(5),
        "ItemSampler ByIndex Work InWorkers Pin CopyTo StreamPrefetch",
        "",
    ),
    (Work(seeds()).prefetch(5), "ItemSampler ByIndex Work InWorkers PrefetcherIterDataPipe Prefetch", ""),
    # Features are fetched by worker threads, or by threads next to worker processes, together with an idle copy.
    (
        fetched(Work(seeds())),
        "ItemSampler ByIndex Work ReadsAnywhere InWorkers",
        "ItemSampler ByIndex Work InWorkers ReadsAnywhere InThreads",
    ),
    (
        fetched(fetched(Work(seeds()))),
        "ItemSampler ByIndex Work ReadsAnywhere ReadsAnywhere InWorkers",
        "ItemSampler ByIndex Work InWorkers ReadsAnywhere ReadsAnywhere InThreads",
    ),
    (
        fetched(Work(seeds())).copy_to("cpu"),
        "ItemSampler ByIndex Work ReadsAnywhere CopyTo InWorkers",
        "ItemSampler ByIndex Work InWorkers ReadsAnywhere CopyTo InThreads",
    ),
    (
        fetched(Work(seeds())).copy_to("meta"),
        "ItemSampler ByIndex Work ReadsAnywhere InWorkers CopyTo",
        "ItemSampler ByIndex Work InWorkers ReadsAnywhere InThreads CopyTo",
    ),
    # Not features that threads can't read, or that are fetched after other main-process stages or a copy to a GPU.
    (fetched(Work(seeds()), anywhere=False), "ItemSampler ByIndex Work InWorkers ReadsAnywhere Prefetch", ""),
    (fetched(AtHome(Work(seeds()))), "ItemSampler ByIndex Work InWorkers AtHome ReadsAnywhere Prefetch", ""),
    (fetched(seeds().copy_to("cuda")), "ItemSampler ByIndex Pin CopyTo ReadsAnywhere StreamPrefetch", ""),
]
"""A pipeline, the stages of its plan with worker threads, and those with processes if they differ."""


def test_plans_have_these_stages() -> None:
    for pipe, with_threads, with_processes in PLANS:
        for options, expected in ((THREADS, with_threads), (PROCESSES, with_processes or with_threads)):
            assert names(make_plan(pipe, options).running) == expected.split(), options


def test_what_leads_to_a_copy_to_a_gpu_is_copied_without_waiting_on_a_stream_of_its_device() -> None:
    for device in ("cuda", "cuda:1", torch.device("cuda")):
        planned: Any = make_plan(AtHome(seeds()).copy_to(device), THREADS).running
        assert (planned.stream, planned.device, planned.buffer_size) == ("copy", device, 2)
        assert planned.datapipe.non_blocking
    asked: Any = make_plan(Work(seeds()).copy_to("cuda").prefetch(5), LoaderOptions()).running
    assert (asked.stream, asked.buffer_size) == ("prefetch", 5)


class Samples(gf.Transform, reads_graph=True):
    overlap_fetch: bool = False


class Fetches(gf.Transform, runs_in=gf.Placement.MAIN):
    overlap_fetch: bool = True

    def may_run_in_threads(self) -> bool:
        return False

    may_run_in_processes = may_run_in_threads


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


def test_threads_have_as_many_mini_batches_ready_as_workers_have_in_flight() -> None:
    options = LoaderOptions(2, prefetch_factor=5, timeout_seconds=3)
    for pipe in (AtHome(seeds()), AtHome(seeds()).copy_to("cpu"), AtHome(seeds()).copy_to("cuda")):
        planned = make_plan(pipe, options).running
        (thread,) = [stage for stage in gf.traverse(planned) if isinstance(stage, (StreamPrefetch, Prefetch))]
        assert (thread.buffer_size, thread.timeout_seconds) == (5, 6)
