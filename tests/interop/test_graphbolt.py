"""Stages that do nothing here, graphs of stages, the decorator: what only programs of GraphBolt's use."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import fluent
from graphfeed.datapipes.sources.iterable_source import IterableSource
from graphfeed.interop.graphbolt import BuiltinDataset
from tests import on_disk, pipelines
from tests.datapipes.pipeline.test_pipeline_graph import chain, diamond
from tests.digests import assert_same, digests


def names(stages: Any) -> list[str]:
    return [type(stage).__name__ for stage in stages]


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


class Task:
    def __init__(self) -> None:
        self.waited = 0

    def wait(self) -> None:
        self.waited += 1


def test_each_is_waited_for_and_passed_on() -> None:
    tasks: list[Any] = [Task(), Task()]
    assert list(IterableSource(tasks).wait()) == tasks
    assert [task.waited for task in tasks] == [1, 1]


def test_what_cannot_be_waited_for_is_named() -> None:
    pipe: Any = IterableSource([gf.MiniBatch()])
    with pytest.raises(TypeError, match=r"a MiniBatch arrived that has no wait\(\); leave wait\(\) out"):
        list(pipe.wait())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_in_the_middle_of_a_loader_s_pipeline(num_workers: int) -> None:
    pipe = pipelines.homogeneous()
    (sampler,) = gf.find(pipe, gf.NeighborSampler)
    ahead = gf.replace(pipe, sampler, sampler.prefetch(2))
    with gf.DataLoader(ahead, num_workers=num_workers, seed=1) as loader:
        assert digests(loader) == digests(pipe.with_seed(1))
        loader.load_state_dict({"seed": 1, "epoch": 0, "index": 3})
        assert digests(loader) == digests(pipe.with_seed(1, 0, 3))
        assert "PrefetcherIterDataPipe(buffer_size=2)" in loader.explain(rewritten=False)


@pytest.mark.usefixtures("no_leaks")
def test_leaving_early_ends_the_thread() -> None:
    for _ in pipelines.homogeneous().prefetch():
        break


def make() -> gf.ItemSetDict:
    with pytest.warns(DeprecationWarning, match="ItemSetDict is deprecated; use HeteroItemSet") as seen:
        items = gf.ItemSetDict({"user": gf.ItemSet(2, names="seeds"), "item": gf.ItemSet(3, names="seeds")})
    assert seen[0].filename == __file__
    return items


def test_it_warns_and_is_a_typed_item_set() -> None:
    items = make()
    assert isinstance(items, gf.HeteroItemSet)
    assert (len(items), items.names, items.num_items) == (5, ("seeds",), 1)
    assert_same(items[torch.tensor([4, 0])], {"user": torch.tensor([0]), "item": torch.tensor([2])})
    assert repr(items).startswith("ItemSetDict(\n    itemsets={'user': ItemSet(\n")


def test_it_is_sampled_and_pickles_without_another_warning() -> None:
    items = pickle.loads(pickle.dumps(make()))
    assert_same(next(iter(gf.ItemSampler(items, batch_size=3))).seeds["item"], torch.tensor([0]))


def test_a_builtin_data_set_is_in_a_folder_of_either_name(tmp_path: Path) -> None:
    for name, folder in (("cora", "cora"), ("citeseer", "citeseer-seeds")):
        place = tmp_path / folder
        place.mkdir()
        on_disk.write(place, on_disk.untyped(place))
        dataset = BuiltinDataset(name, root=tmp_path).load()
        assert dataset.dataset_name == "small"
        assert dataset.graph is not None
        assert dataset.graph.total_num_edges == 6


def test_an_error_says_where_to_put_a_builtin_data_set(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data set 'cora' .* downloads none; .*cora-seeds/metadata\.yaml"):
        BuiltinDataset("cora", root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ogbn-seeds/metadata\.yaml"):
        BuiltinDataset("ogbn-seeds", root=tmp_path)
