from typing import Any

import pytest
import torch

from graphfeed.pyg import HGTLoader
from tests.pyg.neighborhood import KINDS, assert_true, heterogeneous, homogeneous

NUMBERS = {"user": [3, 4], "item": [2, 5]}


def test_a_batch_has_so_many_nodes_of_each_type_and_all_edges_among_them() -> None:
    data = heterogeneous()
    loader = HGTLoader(data, NUMBERS, ("user", torch.arange(0, 40, 3)), batch_size=4, seed=1)
    for batch in loader:
        assert_true(data, batch)
        size = batch["user"].batch_size
        assert batch["user"].n_id[:size].tolist() == (3 * batch["user"].input_id).tolist()
        assert batch["user"].y.tolist() == batch["user"].n_id.tolist()
        assert (batch["user"].num_nodes, batch["item"].num_nodes) == (size + 7, 7)
        for edge_type in KINDS:
            ends = zip(data[edge_type].edge_index, edge_type[::2], strict=True)
            inside = torch.stack([torch.isin(ids, batch[kind].n_id) for ids, kind in ends]).all(dim=0)
            assert batch[edge_type].e_id.sort().values.tolist() == inside.nonzero().squeeze(1).tolist()


def test_with_room_for_all_it_is_all_that_is_around_the_seeds() -> None:
    data = heterogeneous()
    (batch,) = HGTLoader(data, [1000], ("user", torch.tensor([7])))
    leading = [data[kind].edge_index[0][data[kind].edge_index[1] == 7] for kind in KINDS if kind[2] == "user"]
    assert sorted(batch["item"].n_id.tolist()) == leading[0].unique().tolist()
    assert sorted(batch["user"].n_id.tolist()) == sorted({7, *leading[1].tolist()})


def make(num_workers: int = 0, **options: Any) -> HGTLoader:
    options = {"batch_size": 9, "shuffle": True, "seed": 1, "num_workers": num_workers, **options}
    return HGTLoader(heterogeneous(), NUMBERS, "user", **options)


def test_a_function_sees_the_samplers_output_before_features_are_fetched() -> None:
    def drop_items(output: Any) -> Any:
        output.node["item"] = output.node["item"][:0]
        return output

    batch = next(iter(make(transform_sampler_output=drop_items)))
    assert len(batch["item"].x) == 0
    assert len(batch["user"].x) == 9 + 7


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="graph has no types"):
        HGTLoader(homogeneous(), [2], None)
    with pytest.raises(ValueError, match=r"num_samples must have the node types \['user', 'item'\]"):
        HGTLoader(heterogeneous(), {"user": [2]}, "user")
    with pytest.raises(ValueError, match="input_nodes must name a node type"):
        HGTLoader(heterogeneous(), [2], None)
