"""Plans as text; the files in plans/ hold what a user sees."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.loader.plan import RULES, make_plan
from graphfeed.loader.rules import LoaderOptions
from tests import pipelines

PLANS = Path(__file__).parent / "plans"
Build = Callable[[], gf.Datapipe]

OPTIONS = {
    "inline": LoaderOptions(num_workers=0),
    "threads": LoaderOptions(num_workers=2),
    "processes": LoaderOptions(num_workers=2, in_threads=False),
}


def cuda() -> gf.Datapipe:
    return pipelines.homogeneous().copy_to("cuda")


def sampled_on_cuda() -> gf.Datapipe:
    pipe = pipelines.homogeneous()
    (sampler,) = gf.find(pipe, gf.NeighborSampler)
    assert isinstance(pipe, gf.FeatureFetcher)
    assert isinstance(sampler, gf.NeighborSampler)
    there = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph, sampler.fanouts)
    return there.fetch_feature(pipe.feature_store, ["feat"]).transform()


def from_a_list() -> gf.Datapipe:
    (sampler,) = gf.find(pipelines.homogeneous(), gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    return gf.NeighborSampler([gf.MiniBatch()], sampler.graph, [2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build", [pipelines.homogeneous, pipelines.heterogeneous, pipelines.weighted, cuda, from_a_list]
)
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_plan_reads_as_the_file_says(build: Build, kind: str) -> None:
    text = make_plan(build(), OPTIONS[kind]).explain() + "\n"
    path = PLANS / f"{build.__name__}_{kind}.txt"
    if os.environ.get("GRAPHFEED_WRITE_PLANS"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ahead", LoaderOptions()),
        ("both", LoaderOptions(overlap_graph_fetch=True)),
        ("inline", LoaderOptions(overlap_feature_fetch=False)),
    ],
)
def test_a_plan_for_a_gpu_needs_none(kind: str, options: LoaderOptions) -> None:
    text = make_plan(sampled_on_cuda(), options).explain() + "\n"
    path = PLANS / f"sampled_on_cuda_{kind}.txt"
    if os.environ.get("GRAPHFEED_WRITE_PLANS"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_plan_as_written_shows_no_inserted_stage() -> None:
    text = make_plan(pipelines.homogeneous(), OPTIONS["threads"]).explain(rewritten=False)
    assert [line.split("(")[0].split()[-1] for line in text.splitlines()] == [
        "FeatureFetcher",
        "NeighborSampler",
        "ItemSampler",
    ]


def test_a_pipeline_can_be_planned_twice() -> None:
    pipe = pipelines.heterogeneous()
    first, second = (make_plan(pipe, OPTIONS["processes"]).explain() for _ in range(2))
    assert first == second


def test_inline_the_plan_runs_the_pipeline_itself() -> None:
    pipe = pipelines.heterogeneous()
    plan = make_plan(pipe, OPTIONS["inline"])
    assert plan.running is plan.written is pipe
    assert plan.applied == ()


def test_applied_rules_are_those_that_changed_something() -> None:
    plan = make_plan(pipelines.homogeneous(), OPTIONS["threads"])
    assert [rule.__name__ for rule in plan.applied] == ["shard_items", "fetch_in_threads", "cut_at_main_stages"]
    assert [rule for rule in RULES if rule in plan.applied] == list(plan.applied)
