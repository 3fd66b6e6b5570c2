from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.explain import BYTES_NOTE, UNKNOWN_NOTE, bytes_text, describe_plan
from graphfeed.loader.plan import make_plan
from graphfeed.loader.rules import LoaderOptions
from graphfeed.storage.graph.sampling import mapped_arrays
from graphfeed.storage.memory import mapped_file
from tests import pipelines
from tests.datapipes.pipeline.test_pipeline_graph import diamond


def cells(pipe: gf.Datapipe, num_workers: int = 0) -> list[list[str]]:
    """Return the words of each line before its stage, and the stage's name."""
    lines = describe_plan(make_plan(pipe, LoaderOptions(num_workers)).running)
    return [line.split("(")[0].split() for line in lines[1:-1]]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999.4, "999 B"),
        (999.6, "1.0 kB"),
        (9949, "9.9 kB"),
        (9951, "10 kB"),
        (3.21e6, "3.2 MB"),
        (4e15, "4000 TB"),
    ],
)
def test_sizes_have_few_digits(num_bytes: float, text: str) -> None:
    assert bytes_text(num_bytes) == text


def test_what_is_not_known_is_said() -> None:
    lines = describe_plan(pipelines.homogeneous().transform(lambda minibatch: minibatch))
    assert lines[1].split() == [
        "main",
        "?",
        "4",
        "MiniBatchTransformer(transformer=test_what_is_not_known_is_said.<locals>.<lambda>)",
    ]
    assert lines[-2:] == [BYTES_NOTE, UNKNOWN_NOTE]


def test_without_a_device_there_are_no_columns_for_it() -> None:
    assert describe_plan(pipelines.homogeneous())[0].split() == ["where", "bytes", "no.", "stage"]
    assert describe_plan(pipelines.homogeneous().copy_to("cuda"))[0].split() == [
        "where",
        "device",
        "stream",
        "bytes",
        "no.",
        "stage",
    ]


def test_stages_show_the_device_of_what_they_give_and_whose_stream_they_use() -> None:
    rows = cells(pipelines.homogeneous().copy_to("cuda:1").transform(), num_workers=2)
    assert rows[:4] == [
        ["main", "cuda:1", "caller's", "53", "kB", "5", "MiniBatchTransformer"],
        ["main", "cuda:1", "caller's", "53", "kB", "StreamPrefetch"],
        ["prefetch", "cuda:1", "copy", "53", "kB", "4", "CopyTo"],
        ["prefetch", "cpu", "53", "kB", "Pin"],
    ]


def test_stages_show_the_numbers_by_which_errors_name_them() -> None:
    def fail(_: gf.MiniBatch) -> gf.MiniBatch:
        raise ValueError("no")

    loader = gf.DataLoader(pipelines.homogeneous().transform(fail).copy_to("cpu"), num_workers=2)
    with pytest.raises(ValueError, match="no") as failure, loader:
        next(iter(loader))
    assert "in MiniBatchTransformer, stage 4, mini-batch 0" in failure.value.__notes__[0]
    (line,) = [line for line in loader.explain().splitlines() if "MiniBatchTransformer" in line]
    assert line.split()[-2] == "4"


def test_what_comes_back_from_a_device_is_on_the_cpu() -> None:
    rows = cells(pipelines.homogeneous().copy_to("cuda").copy_to("cpu"))
    assert [row[1] for row in rows[:3]] == ["cpu", "cuda", "cpu"]


@pytest.mark.gpu
def test_what_lies_on_a_gpu_is_explained_as_what_lies_on_the_cpu() -> None:
    key = ("node", None, "feat")
    plans = []
    for device in ("cpu", "cuda", "pinned"):
        pipe = pipelines.homogeneous()
        (sampler,) = gf.find(pipe, gf.NeighborSampler)
        assert isinstance(pipe, gf.FeatureFetcher)
        assert isinstance(sampler, gf.NeighborSampler)
        assert isinstance(sampler.graph, gf.FusedCSCSamplingGraph)
        feature = pipe.feature_store[key]
        assert isinstance(feature, gf.TorchBasedFeature)
        store = gf.BasicFeatureStore({key: feature.to(device)})
        there = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph.to(device), sampler.fanouts)
        plans.append(gf.DataLoader(there.fetch_feature(store, ["feat"])).explain())
    assert plans[0] == plans[1] == plans[2]


def test_graphs_in_files_say_how_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "LEAST_MAPPED", 0)
    nodes = torch.arange(1000)
    gf.from_coo((nodes.repeat(100), nodes.repeat(100)), 1000).save(tmp_path / "graph")
    pipe = gf.ItemSampler(gf.ItemSet(nodes, names="seeds"), 10)
    ahead = "of free memory: pages are asked for before they are read, in the order of the file"
    for free, how in (
        (8e6, "at most 1/4 of 8.0 MB of free memory: read as memory is"),
        (1e5, f"more than 1/4 of 100 kB {ahead}; column starts, 8.0 kB, stay in memory"),
        (5e4, f"more than 1/4 of 50 kB {ahead}"),
    ):
        monkeypatch.setattr(mapped_arrays, "available_memory", lambda free=free: free)
        graph = gf.load_graph(tmp_path / "graph")
        lines = gf.DataLoader(pipe.sample_neighbor(graph, [2]).sample_neighbor(graph, [2]), 0).explain().splitlines()
        assert lines[lines.index("graphs in mapped files, as this process reads them:") + 1] == f"  1.6 MB, {how}"
        assert mapped_arrays.DECIDED.get(graph) is None, "it is said before it is done"
    assert not any("mapped" in line for line in make_plan(pipelines.homogeneous(), LoaderOptions()).explain().split())


def test_in_one_line_stages_stand_behind_where_they_run() -> None:
    assert str(make_plan(pipelines.homogeneous(), LoaderOptions())) == (
        "main: ItemSampler -> NeighborSampler -> FeatureFetcher"
    )
    assert str(make_plan(pipelines.homogeneous().copy_to("cuda"), LoaderOptions(2, in_threads=False))) == (
        "worker: ItemSampler -> NeighborSampler | thread: FeatureFetcher | prefetch: CopyTo"
    )


def test_in_one_line_brackets_hold_the_branches_of_a_join() -> None:
    assert str(make_plan(diamond(), LoaderOptions(2))) == (
        "[worker: MySampler -> MiniBatchTransformer -> CopyTo, "
        "worker: MySampler -> MiniBatchTransformer -> MiniBatchTransformer] | prefetch: Join"
    )
