"""Stages that do nothing here, graphs of stages, the decorator: what only programs of GraphBolt's use."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.datapipe import length
from graphfeed.datapipes.pipeline import fluent
from tests import pipelines
from tests.datapipes.pipeline.test_pipeline_graph import chain, diamond
from tests.digests import digests


def names(stages: Any) -> list[str]:
    return [type(stage).__name__ for stage in stages]


@pytest.mark.parametrize("mark", ["mark_end", "mark_feature_fetcher_start"])
@pytest.mark.parametrize("build", [pipelines.homogeneous, pipelines.heterogeneous])
def test_a_marker_changes_nothing(build: Callable[[], gf.Datapipe], mark: str) -> None:
    pipe = build()
    marked = getattr(pipe, mark)()
    assert type(marked) is {"mark_end": gf.EndMarker, "mark_feature_fetcher_start": gf.FeatureFetcherStartMarker}[mark]
    assert len(marked) == length(pipe)
    assert digests(marked) == digests(pipe)
    with gf.DataLoader(marked, num_workers=2, seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))


def test_stages_pickle_and_run_in_worker_processes() -> None:
    marked = pipelines.homogeneous().mark_feature_fetcher_start().mark_end()
    assert digests(pickle.loads(pickle.dumps(marked))) == digests(marked)
    with gf.DataLoader(marked, num_workers=1, worker="process", seed=0) as loader:
        assert digests(loader) == digests(marked.with_seed(0))


def test_the_graph_nests_stages_by_id() -> None:
    pipe: Any = chain()
    graph = gf.traverse_dps(pipe)
    assert graph == {id(pipe): (pipe, {id(pipe.datapipe): (pipe.datapipe, {})})}


def test_stages_are_found_by_class_with_its_subclasses_each_once() -> None:
    graph = gf.traverse_dps(diamond())
    assert names(gf.find_dps(graph, gf.ItemSampler)) == ["MySampler"]
    assert names(gf.find_dps(graph, gf.Transform)) == ["MiniBatchTransformer", "CopyTo", "MiniBatchTransformer"]
    assert gf.find_dps(graph, gf.NeighborSampler) == []


def test_replacing_gives_another_graph_and_leaves_the_pipeline() -> None:
    pipe = diamond()
    (old,) = gf.find(pipe, gf.ItemSampler)
    new = gf.ItemSampler(gf.ItemSet(6, names="seeds"), batch_size=2)
    graph = gf.replace_dp(gf.traverse_dps(pipe), old, new)
    ((last, _),) = graph.values()
    assert gf.find_dps(graph, gf.ItemSampler) == [new]
    assert len(list(last)) == 3
    assert gf.find(pipe, gf.ItemSampler) == [old]
    with pytest.raises(ValueError, match="MySampler is no stage of this pipeline"):
        gf.replace_dp(graph, old, new)


def test_neighbours_are_listed_once_a_stage() -> None:
    pipe = diamond()
    table = gf.datapipe_graph_to_adjlist(gf.traverse_dps(pipe))
    assert names(stage for stage, _ in table.values()) == [
        "Join",
        "MiniBatchTransformer",
        "CopyTo",
        "MiniBatchTransformer",
        "MySampler",
    ]
    assert all(sources == [id(source) for source in stage.inputs] for stage, sources in table.values())
    assert table[id(pipe)] == (pipe, [id(pipe.left), id(pipe.right)])


def test_a_decorator_registers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluent, "FLUENT", dict(fluent.FLUENT))

    @gf.functional_datapipe("tripled")
    class Tripled(gf.MiniBatchTransformer):
        def __init__(self, datapipe: gf.Datapipe) -> None:
            super().__init__(datapipe, self.work)

        def work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
            assert isinstance(minibatch.seeds, torch.Tensor)
            return gf.MiniBatch(seeds=minibatch.seeds * 3)

    pipe: Any = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
    assert isinstance(pipe.tripled(), Tripled)
    assert [batch.seeds.tolist() for batch in pipe.tripled()] == [[0, 3], [6, 9]]
    with pytest.raises(ValueError, match=r"'copy_to' of .* is taken by"):
        gf.functional_datapipe("copy_to")(Tripled)
