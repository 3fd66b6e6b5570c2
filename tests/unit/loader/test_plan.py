"""Printed plans: the files in plans/ contain the output for users; explain() adds lines about caches and graphs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import LoaderOptions, find_caches, make_plan
from graphfeed.loader.explain import BYTES_NOTE, UNKNOWN_NOTE, describe_plan
from graphfeed.storage.graph.sampling import graph_files
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.graph_kinds import OneHop

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
    pipe: Any = pipelines.homogeneous()
    sampler = pipelines.sampler_of(pipe)
    there: gf.Datapipe = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph, sampler.fanouts)
    return there.fetch_feature(pipe.feature_store, ["feat"]).transform()


def from_a_list() -> gf.Datapipe:
    graph = pipelines.sampler_of(pipelines.homogeneous()).graph
    return gf.NeighborSampler([gf.MiniBatch()], graph, [2])  # type: ignore[arg-type]


ON_A_GPU = {
    "ahead": LoaderOptions(),
    "both": LoaderOptions(overlap_graph_fetch=True),
    "inline": LoaderOptions(overlap_feature_fetch=False),
}


@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        *((build, OPTIONS) for build in (pipelines.homogeneous, pipelines.heterogeneous, cuda, from_a_list)),
        (sampled_on_cuda, ON_A_GPU),
    ],
)
def test_a_plan_reads_as_the_file_says(build: Build, kinds: dict[str, LoaderOptions]) -> None:
    for kind, options in kinds.items():
        text = make_plan(build(), options).explain() + "\n"
        path = PLANS / f"{build.__name__}_{kind}.txt"
        if os.environ.get("GRAPHFEED_WRITE_PLANS"):
            path.write_text(text)
        assert text == path.read_text(), path.name


def test_the_plan_as_written_shows_no_inserted_stage() -> None:
    text = make_plan(pipelines.homogeneous(), OPTIONS["threads"]).explain(rewritten=False)
    assert [line.split("(")[0].split()[-1] for line in text.splitlines()] == [
        "FeatureFetcher",
        "NeighborSampler",
        "ItemSampler",
    ]


def cells(pipe: gf.Datapipe, num_workers: int = 0) -> list[list[str]]:
    """Return the words of each line before its stage, and the stage's name."""
    lines = describe_plan(make_plan(pipe, LoaderOptions(num_workers)).running)
    return [line.split("(")[0].split() for line in lines[1:-1]]


def test_what_is_not_known_is_said() -> None:
    lines = describe_plan(pipelines.homogeneous().transform(lambda minibatch: minibatch))
    assert lines[1].split() == [
        "main",
        "?",
        "4",
        "MiniBatchTransformer(transformer=test_what_is_not_known_is_said.<locals>.<lambda>)",
    ]
    assert lines[-2:] == [BYTES_NOTE, UNKNOWN_NOTE]


def test_stages_show_the_device_of_what_they_give_and_whose_stream_they_use() -> None:
    rows = cells(pipelines.homogeneous().copy_to("cuda:1").transform(), num_workers=2)
    assert rows[:4] == [
        ["main", "cuda:1", "caller's", "53", "kB", "5", "MiniBatchTransformer"],
        ["main", "cuda:1", "caller's", "53", "kB", "StreamPrefetch"],
        ["prefetch", "cuda:1", "copy", "53", "kB", "4", "CopyTo"],
        ["prefetch", "cpu", "53", "kB", "Pin"],
    ]
    back = cells(pipelines.homogeneous().copy_to("cuda").copy_to("cpu"))
    assert [row[1] for row in back[:3]] == ["cpu", "cuda", "cpu"]


def test_stages_show_the_numbers_by_which_errors_name_them() -> None:
    def fail(_: gf.MiniBatch) -> gf.MiniBatch:
        raise ValueError("no")

    loader = gf.DataLoader(pipelines.homogeneous().transform(fail).copy_to("cpu"), num_workers=2)
    with pytest.raises(ValueError, match="no") as failure, loader:
        next(iter(loader))
    assert "in MiniBatchTransformer, stage 4, mini-batch 0" in failure.value.__notes__[0]
    (line,) = [line for line in loader.explain().splitlines() if "MiniBatchTransformer" in line]
    assert line.split()[-2] == "4"


@pytest.mark.gpu
def test_what_lies_on_a_gpu_is_explained_as_what_lies_on_the_cpu() -> None:
    key = ("node", None, "feat")
    plans = []
    for device in ("cpu", "cuda", "pinned"):
        pipe: Any = pipelines.homogeneous()
        sampler = pipelines.sampler_of(pipe)
        store = gf.BasicFeatureStore({key: pipe.feature_store[key].to(device)})
        there = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph.to(device), sampler.fanouts)
        plans.append(gf.DataLoader(there.fetch_feature(store, ["feat"])).explain())
    assert plans[0] == plans[1] == plans[2]


def test_graphs_in_files_say_how_they_are_read(tmp_path: Path) -> None:
    nodes = torch.arange(1000)
    gf.from_coo((nodes.repeat(100), nodes.repeat(100)), 1000).save(tmp_path / "graph")
    pipe = gf.ItemSampler(gf.ItemSet(nodes, names="seeds"), 10)
    ahead = "of free memory: pages are prefetched in the order of the file"
    for free, how in (
        (8e6, "at most 1/4 of 8.0 MB of free memory: read like memory"),
        (1e5, f"more than 1/4 of 100 kB {ahead}; indptr, 8.0 kB, stays in memory"),
        (5e4, f"more than 1/4 of 50 kB {ahead}"),
    ):
        graph = gf.load_graph(tmp_path / "graph")
        loader = gf.DataLoader(pipe.sample_neighbor(graph, [2]).sample_neighbor(graph, [2]), 0)
        with limits(memory_bytes=free):
            lines = loader.explain().splitlines()
        assert lines[lines.index("graphs in mapped files, as this process reads them:") + 1] == f"  1.6 MB, {how}"
        assert graph_files.DECIDED.get(graph) is None, "it is said before it is done"
    assert not any("mapped" in line for line in make_plan(pipelines.homogeneous(), LoaderOptions()).explain().split())


ROWS = torch.arange(40.0).reshape(20, 2)


def make_pipe() -> gf.Datapipe:
    """Return a pipeline with features that share a cache, have two caches, or have none."""
    plain = gf.TorchBasedFeature(ROWS)
    shared = gf.cpu_cached_feature({"x": plain, "y": gf.TorchBasedFeature(-ROWS)}, 500)
    both = gf.gpu_cached_feature(gf.cpu_cached_feature(plain, 1000), 100, device="cpu")
    features = {("node", None, "x"): shared["x"], ("node", None, "y"): shared["y"], ("node", None, "plain"): plain}
    store = gf.BasicFeatureStore({**features, ("node", None, "both"): both})
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(20, names="seeds"), batch_size=10)
    return pipe.fetch_feature(store, ["x", "y", "both"])


def test_a_plan_shows_how_caches_were_used() -> None:
    pipe = make_pipe()
    with gf.DataLoader(pipe, num_workers=0, seed=0) as loader:
        size = find_caches(pipe)[0][1].max_size_in_bytes
        assert f"  rows in memory, sieve: {size} B, 0 hits, 0 misses; node x, node y" in loader.explain().splitlines()
        for _ in range(2):
            list(loader)
        hits, misses = find_caches(pipe)[0][1].hits, find_caches(pipe)[0][1].misses
        assert (hits + misses, misses >= 40) == (80, True)
        assert f"memory, sieve: {size} B, {hits} hits, {misses} misses; node x" in loader.explain()
        assert "caches" not in gf.DataLoader(pipe.inputs[0]).explain()


def test_samplers_are_named_whose_graph_has_no_program_for_all_hops() -> None:
    graph = gf.from_coo(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    seeds = gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=1)
    for own, lines in ((graph, []), (OneHop(graph), ["  NeighborSampler: OneHop samples one hop at a time"])):
        ways: list[dict[str, Any]] = [{}, {"disjoint": True}, {"deduplicate": False}]
        for options in ways:
            text = gf.DataLoader(seeds.sample_neighbor(own, [1], **options)).explain().splitlines()
            assert [line for line in text if line.startswith("  NeighborSampler")] == lines
