"""Names for GraphBolt's programs: stages, graphs of stages, names of items, data sets, aligned files."""

import copy
import io
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import IterableSource
from graphfeed.storage import DiskBasedFeature
from graphfeed.testing import registered
from tests.kinds import on_disk, pipelines
from tests.kinds.digests import assert_same, digests
from tests.kinds.refusals import Refusal, check_refused
from tests.unit.datapipes.test_pipeline_graph import chain, diamond


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
    with pytest.raises(ValueError, match="MySampler is not a stage of this pipeline"):
        gf.replace_dp(graph, old, new)


def test_names_of_graphbolt_2_1_say_those_of_today() -> None:
    minibatch: Any = gf.MiniBatch(seeds=torch.arange(2))
    feature: Any = gf.TorchBasedFeature(torch.eye(3))
    cached: Any = gf
    loader: Any = gf.DataLoader
    pipe = gf.ItemSampler(gf.ItemSet(6, names="seeds"), batch_size=2)
    now = {
        "seed_nodes": "seeds now", "node_pairs": r"seeds, shape \(N, 2\) now", "negative_srcs": r"seeds\[labels == 0\]",
        "compacted_node_pairs": "compacted_seeds", "positive_node_pairs": r"compacted_seeds\[labels == 1\]\.T now",
        "negative_node_pairs": r"compacted_seeds\[labels == 0\]\.T now",
        "node_pairs_with_labels": r"compacted_seeds\.T and labels now",
    }  # fmt: skip
    refusals: list[Refusal] = [
        (partial(getattr, minibatch, name), AttributeError, f"no attribute '{name}'; it is {text}")
        for name, text in now.items()
    ]
    check_refused([
        *refusals,
        (lambda: minibatch.seed, AttributeError, "'MiniBatch' object has no attribute 'seed'$"),
        (lambda: cached.GPUCachedFeature(feature, 1000), TypeError, r"is 1000; gpu_cached_feature\(feature, max_cache"),
        (lambda: cached.CPUCachedFeature(feature, 1000), TypeError, r"is 1000; cpu_cached_feature\(feature, max_cache"),
        (lambda: cached.from_fused_csc, AttributeError, "it is fused_csc_sampling_graph now"),
        (lambda: loader(pipe, num_gpu_cached_edges=9), TypeError, "'num_gpu_cached_edges'; leave it out: a cache"),
        (lambda: loader(pipe, gpu_cache_threshold=9), TypeError, "'gpu_cache_threshold'; leave it out: a cache"),
    ])  # fmt: skip


def test_a_mini_batch_without_an_attribute_copies_and_pickles() -> None:
    minibatch = gf.MiniBatch(seeds=torch.arange(2))
    for other in (copy.copy(minibatch), copy.deepcopy(minibatch), pickle.loads(pickle.dumps(minibatch))):
        assert_same(other, minibatch)
        assert not hasattr(other, "node_pairs")


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


@registered()
def test_a_decorator_registers_too() -> None:
    @gf.functional_datapipe("tripled")
    class Tripled(gf.MiniBatchTransformer):
        def __init__(self, datapipe: gf.Datapipe) -> None:
            super().__init__(datapipe, self.work)

        def work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
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
    with pytest.raises(TypeError, match=r"wait\(\) got a MiniBatch without a wait method; leave wait\(\) out"):
        list(pipe.wait())


def test_in_the_middle_of_a_loader_s_pipeline() -> None:
    for num_workers in [0, 2]:
        pipe = pipelines.homogeneous()
        (sampler,) = gf.find(pipe, gf.NeighborSampler)
        ahead = gf.replace(pipe, sampler, sampler.prefetch(2))
        with gf.DataLoader(ahead, num_workers=num_workers, seed=1) as loader:
            assert digests(loader) == digests(pipe.with_seed(1))
            loader.load_state_dict({"seed": 1, "epoch": 0, "index": 3})
            assert digests(loader) == digests(pipe.with_seed(1, 0, 3))
            assert "PrefetcherIterDataPipe(buffer_size=2)" in loader.explain(rewritten=False)


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
        dataset = gf.BuiltinDataset(name, root=tmp_path).load()
        assert dataset.dataset_name == "small"
        assert dataset.graph is not None
        assert dataset.graph.total_num_edges == 6


def test_an_error_says_where_to_put_a_builtin_data_set(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data set 'cora' .* doesn't download it; .*cora-seeds/metadata\.y"):
        gf.BuiltinDataset("cora", root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ogbn-seeds/metadata\.yaml"):
        gf.BuiltinDataset("ogbn-seeds", root=tmp_path)


PAIRS = torch.tensor([[0, 10], [1, 11]])
SOURCES = torch.tensor([[2, 3], [4, 5]])
DESTINATIONS = torch.tensor([[12, 13], [14, 15]])


def first(items: gf.ItemSet | gf.HeteroItemSet) -> Any:
    return next(iter(gf.ItemSampler(items, batch_size=10)))


def test_seed_nodes_are_seeds() -> None:
    batch = first(gf.ItemSet((torch.arange(3), torch.arange(3) + 5), names=("seed_nodes", "labels")))
    assert_same([batch.seeds, batch.labels], [torch.arange(3), torch.arange(3) + 5])
    assert not hasattr(batch, "seed_nodes")


def test_pairs_alone_are_seeds() -> None:
    batch = first(gf.ItemSet((PAIRS, torch.tensor([1.0, 0.0])), names=("node_pairs", "labels")))
    assert_same([batch.seeds, batch.labels, batch.indexes], [PAIRS, torch.tensor([1.0, 0.0]), None])


NEGATIVES: list[tuple[dict[str, torch.Tensor], list[list[int]]]] = [
    ({"negative_dsts": DESTINATIONS}, [[0, 12], [0, 13], [1, 14], [1, 15]]),
    ({"negative_srcs": SOURCES}, [[2, 10], [3, 10], [4, 11], [5, 11]]),
    ({"negative_srcs": SOURCES, "negative_dsts": DESTINATIONS}, [[2, 12], [3, 13], [4, 14], [5, 15]]),
]


def test_negatives_follow_the_pairs() -> None:
    for members, negatives in NEGATIVES:
        batch = first(gf.ItemSet((PAIRS, *members.values()), names=("node_pairs", *members)))
        assert_same(batch.seeds, torch.cat([PAIRS, torch.tensor(negatives)]))
        assert_same(batch.labels, torch.tensor([1.0, 1, 0, 0, 0, 0]))
        assert_same(batch.indexes, torch.tensor([0, 1, 0, 0, 1, 1]))


def test_each_type_on_its_own() -> None:
    names = ("node_pairs", "negative_dsts")
    items = gf.HeteroItemSet(
        {
            "a:r:b": gf.ItemSet((PAIRS, DESTINATIONS), names=names),
            "b:s:a": gf.ItemSet((PAIRS[:1], DESTINATIONS[:1, :1]), names=names),
        }
    )
    batch = first(items)
    assert_same(batch.seeds["b:s:a"], torch.tensor([[0, 10], [0, 12]]))
    assert_same(batch.indexes, {"a:r:b": torch.tensor([0, 1, 0, 0, 1, 1]), "b:s:a": torch.tensor([0, 0])})
    assert_same(batch.labels["b:s:a"], torch.tensor([1.0, 0.0]))


def test_negatives_take_the_dtype_of_the_pairs_and_overwrite_labels() -> None:
    members = (torch.zeros(2), PAIRS.int(), DESTINATIONS)
    batch = first(gf.ItemSet(members, names=("labels", "node_pairs", "negative_dsts")))
    assert (batch.seeds.dtype, len(batch.labels)) == (torch.int32, 6)


def test_names_that_do_not_go_together_are_refused() -> None:
    def read(**members: Any) -> Any:
        return first(gf.ItemSet(tuple(members.values()), names=tuple(members)))

    pipe: Any = {"node_pairs": PAIRS}
    check_refused([
        (lambda: read(seeds=PAIRS, node_pairs=PAIRS), ValueError,
         r"one of seeds, seed_nodes and node_pairs, but have \['seeds', 'node_pairs'\]"),
        (lambda: gf.traverse_dps(pipe), TypeError, "datapipe must be a pipeline of stages, but is a dict"),
        (lambda: read(negative_srcs=SOURCES), ValueError, r"have \[\]; negative_srcs and negative_dsts need"),
        (lambda: read(seed_nodes=PAIRS[:, 0], negative_srcs=SOURCES), ValueError,
         "need node_pairs, but the items have seed_nodes"),
        (lambda: read(node_pairs=PAIRS, negative_srcs=SOURCES[:, 0]), ValueError,
         r"negative_srcs must have shape \(2, k\), one row per pair, but has \(2,\)"),
        (lambda: read(node_pairs=PAIRS, negative_srcs=SOURCES, negative_dsts=DESTINATIONS[:, :1]), ValueError,
         r"must have one shape, but have \[1, 2\] columns"),
    ])  # fmt: skip


def test_a_header_of_any_length_is_padded() -> None:
    kinds: list[Any] = [np.uint8, ">i4", np.dtype([(f"column_{number}", np.int32) for number in range(300)])]
    for kind, pages in zip(kinds, (1, 1, 2), strict=True):
        file, array = io.BytesIO(), np.zeros((2, 3), kind)
        gf.numpy_save_aligned(file, array)
        assert file.tell() - array.nbytes == pages * 4096, kind
        file.seek(0)
        assert np.array_equal(np.load(file), array)


def test_a_path_gets_its_ending(tmp_path: Path) -> None:
    gf.numpy_save_aligned(str(tmp_path / "rows.v1"), torch.arange(6.0).reshape(3, 2))
    assert_same(DiskBasedFeature(tmp_path / "rows.v1.npy").read(), torch.arange(6.0).reshape(3, 2))


def test_objects_are_not_saved(tmp_path: Path) -> None:
    for pickled in (False, True):
        with pytest.raises(ValueError, match=r"arr contains objects \(object\), which would have to be pickled; save "):
            gf.numpy_save_aligned(tmp_path / "x.npy", np.array([{}]), pickled)
    assert list(tmp_path.iterdir()) == []
