import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same

BUILDS = [pipelines.homogeneous, pipelines.heterogeneous, pipelines.link_prediction]


def test_fields_come_in_the_order_that_users_know() -> None:
    values: Any = "abcdefgh"
    batch: Any = gf.MiniBatch(*values)
    assert (batch.labels, batch.seeds, batch.indexes, batch.sampled_subgraphs) == tuple("abcd")
    assert (batch.input_nodes, batch.node_features, batch.edge_features, batch.compacted_seeds) == tuple("efgh")
    assert vars(gf.MiniBatch()) == dict.fromkeys(vars(batch))


def test_before_sampling_there_are_no_layers() -> None:
    batch = gf.MiniBatch(seeds=torch.arange(2))
    assert (batch.num_layers(), batch.node_ids(), batch.blocks) == (0, None, None)


def test_what_the_layers_hold() -> None:
    batch = next(iter(pipelines.homogeneous()))
    assert batch.num_layers() == 2
    assert batch.node_ids() is batch.input_nodes
    assert batch.edge_ids(1) is batch.sampled_subgraphs[1].original_edge_ids
    features = {"a": torch.ones(1)}
    batch.set_node_features(features)
    batch.set_edge_features([features])
    assert (batch.node_features, batch.edge_features) == (features, [features])


def test_what_the_layers_hold_by_type() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    assert batch.num_layers() == 2
    assert batch.node_ids() is batch.input_nodes
    for layer in range(2):
        ids = batch.edge_ids(layer)
        assert ids is batch.sampled_subgraphs[layer].original_edge_ids
        assert {kind: len(own) for kind, own in ids.items()} == {
            kind: len(csc.indices) for kind, csc in batch.sampled_subgraphs[layer].sampled_csc.items()
        }


def test_details_are_its_attributes_from_the_last_letter_to_the_first() -> None:
    csc = gf.CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))
    batch = gf.MiniBatch(
        seeds={"a": torch.tensor([3])},
        labels=torch.tensor([1.0]),
        sampled_subgraphs=[gf.SampledSubgraph(csc), gf.SampledSubgraph(csc)],
        edge_features=[{"x": torch.tensor([1])}, {}],
    )
    batch._private = batch.extra = torch.tensor([2])  # type: ignore[attr-defined]
    assert batch.details() == (
        "MiniBatch(seeds={'a': tensor([3])},\n"
        "          sampled_subgraphs=[SampledSubgraph(sampled_csc=CSCFormatBase(indptr=tensor([0, 1]),\n"
        "                                                                       indices=tensor([0]),\n"
        "                                                         ),\n"
        "                                             original_row_node_ids=None,\n"
        "                                             original_edge_ids=None,\n"
        "                                             original_column_node_ids=None,\n"
        "                             ),\n"
        "                             SampledSubgraph(sampled_csc=CSCFormatBase(indptr=tensor([0, 1]),\n"
        "                                                                       indices=tensor([0]),\n"
        "                                                         ),\n"
        "                                             original_row_node_ids=None,\n"
        "                                             original_edge_ids=None,\n"
        "                                             original_column_node_ids=None,\n"
        "                             )],\n"
        "          node_features=None,\n"
        "          labels=tensor([1.]),\n"
        "          input_nodes=None,\n"
        "          indexes=None,\n"
        "          extra=tensor([2]),\n"
        "          edge_features=[{'x': tensor([1])},\n"
        "                         {}],\n"
        "          compacted_seeds=None,\n"
        ")"
    )


@pytest.mark.parametrize("build", BUILDS)
def test_printing_pickling_and_moving_change_nothing(build: Callable[[], gf.Datapipe]) -> None:
    batch = next(iter(build()))
    before = copy.deepcopy(batch)
    assert "key=Key(seed=0, epoch=0, index=0)" in repr(batch)
    assert_same(batch, before)
    assert_same(pickle.loads(pickle.dumps(batch)), before)
    assert batch.to("cpu") is batch
    assert_same(batch, before)


def test_moving_takes_all_attributes() -> None:
    batch: Any = next(iter(pipelines.heterogeneous()))
    batch.extra = {"a": [torch.ones(1)]}
    batch.to("meta")
    assert batch.input_nodes["user"].device.type == batch.extra["a"][0].device.type == "meta"
    assert batch.sampled_subgraphs[0].original_edge_ids["user:likes:item"].device.type == "meta"


def test_memory_that_is_not_pinned() -> None:
    assert not gf.MiniBatch().is_pinned()
    assert not next(iter(pipelines.heterogeneous())).is_pinned()


@pytest.mark.gpu
def test_pinning_takes_all_tensors() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    before = copy.deepcopy(batch)
    assert batch.pin_memory() is batch
    assert batch.is_pinned()
    assert_same(batch, before)
