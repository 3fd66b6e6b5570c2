"""What is expected of mini-batches, against those that there are."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, choose, distinct, measure
from graphfeed.loader.explain import estimate_all
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests import pipelines


def bytes_of(minibatch: Any) -> int:
    return sum({id(tensor): tensor.nbytes for tensor in tensors_in(minibatch)}.values())


def expected_bytes(pipe: gf.Datapipe) -> float:
    expected = estimate_all(pipe)[id(pipe)]
    assert expected is not None
    return expected.num_bytes


TEMPORAL = [build for build in pipelines.ALL if build.__name__.startswith("temporal_")]


def mean_bytes(pipe: gf.Datapipe) -> float:
    found = [bytes_of(minibatch) for minibatch in pipe][:-1]
    return sum(found) / len(found)


def test_it_is_close_where_edges_are_drawn_evenly_and_more_where_times_keep_edges_out() -> None:
    for build in pipelines.ALL:
        if build is not pipelines.joined:
            pipe = build()
            low, high = (1.0, 3.0) if build in TEMPORAL else (0.8, 1.6)
            assert low < expected_bytes(pipe) / mean_bytes(pipe) < high, build


def test_behind_a_join_and_a_function_of_the_user_s_nothing_is_known() -> None:
    joined = pipelines.joined()
    assert estimate_all(joined)[id(joined)] is None
    mine = pipelines.homogeneous().transform(lambda minibatch: minibatch).copy_to("cpu")
    assert estimate_all(mine)[id(mine)] is None
    assert expected_bytes(pipelines.homogeneous().transform().copy_to("cpu")) == expected_bytes(pipelines.homogeneous())


class MyFeature(gf.TorchBasedFeature):
    @property
    def dtype(self) -> Any:
        return None


def test_a_feature_of_unknown_dtype_is_not_guessed() -> None:
    store = gf.BasicFeatureStore({("node", None, "feat"): MyFeature(torch.ones(9, 3))})
    pipe = gf.ItemSampler(gf.ItemSet(9, names="seeds"), batch_size=3).fetch_feature(store, ["feat"])
    assert estimate_all(pipe)[id(pipe)] is None


def test_types_that_the_mini_batch_has_not_got_are_not_guessed() -> None:
    store = gf.BasicFeatureStore({("node", "user", "feat"): gf.TorchBasedFeature(torch.ones(9, 3))})
    items = gf.ItemSampler(gf.ItemSet(9, names="seeds"), batch_size=3)
    graph = gf.from_coo({"user:likes:user": torch.tensor([[0], [1]])}, {"user": 9})
    for pipe in (items.fetch_feature(store, {"user": ["feat"]}), items.sample_neighbor(graph, [1])):
        assert estimate_all(pipe)[id(pipe)] is None


def test_a_mini_batch_is_counted_tensor_by_tensor_once() -> None:
    seeds = torch.arange(5)
    assert measure(gf.MiniBatch(seeds=seeds, labels=seeds)) == BatchSizeEstimate(40, {None: 5}, 5, {None: 5})
    edges = {"a:to:b": torch.zeros(3, 2, dtype=torch.int32)}
    assert measure(gf.MiniBatch(seeds=edges)) == BatchSizeEstimate(
        24, {"a": 3, "b": 3}, 3, {"a": 3, "b": 3}, id_bytes=4
    )
    assert measure(gf.MiniBatch()) is None
    assert measure(torch.ones(3)) is None


def test_an_epoch_of_no_mini_batches_holds_nothing_known() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=4, drop_last=True)
    assert pipe.estimate_size(None) is None


def test_a_fan_out_limits_each_type_or_all_together() -> None:
    degrees: dict[str | None, float] = {"a:to:b": 6.0, "c:to:b": 2.0, "a:to:c": 1.0}
    assert choose(degrees, [4], replace_edges=False) == {"a:to:b": 3.0, "c:to:b": 1.0, "a:to:c": 1.0}
    assert choose(degrees, [4, 4, 0], replace_edges=False) == {"a:to:b": 4.0, "c:to:b": 2.0, "a:to:c": 0.0}
    assert choose(degrees, [-1], replace_edges=False) == degrees
    assert choose({None: 0.5}, [4], replace_edges=True) == {None: 4.0}
    assert choose({None: 0.0}, [4], replace_edges=True) == {None: 0.0}


def test_there_are_no_more_nodes_than_the_graph_has() -> None:
    assert distinct(0, 10, 1_000_000) == pytest.approx(10, rel=1e-4)
    assert distinct(50, 1e9, 100) == pytest.approx(100)
    assert distinct(150, 5, 100) == 150  # seeds may repeat
    assert distinct(0, 0, 0) == 0
