import pytest

import graphfeed as gf
from graphfeed.loader.explain import BYTES_NOTE, UNKNOWN_NOTE, bytes_text, describe_plan
from graphfeed.loader.plan import make_plan
from graphfeed.loader.rules import LoaderOptions
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
        "MiniBatchTransformer(transformer=test_what_is_not_known_is_said.<locals>.<lambda>)",
    ]
    assert lines[-2:] == [BYTES_NOTE, UNKNOWN_NOTE]


def test_without_a_device_there_are_no_columns_for_it() -> None:
    assert describe_plan(pipelines.homogeneous())[0].split() == ["where", "bytes", "stage"]
    assert describe_plan(pipelines.homogeneous().copy_to("cuda"))[0].split() == [
        "where",
        "device",
        "stream",
        "bytes",
        "stage",
    ]


def test_stages_show_the_device_of_what_they_give_and_whose_stream_they_use() -> None:
    rows = cells(pipelines.homogeneous().copy_to("cuda:1").transform(), num_workers=2)
    assert [[*row[:-3], row[-1]] for row in rows][:4] == [
        ["main", "cuda:1", "caller's", "MiniBatchTransformer"],
        ["main", "cuda:1", "caller's", "StreamPrefetch"],
        ["prefetch", "cuda:1", "copy", "CopyTo"],
        ["prefetch", "cpu", "Pin"],
    ]


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
