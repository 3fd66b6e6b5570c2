"""`NeighborLoader` on data with types."""

import pytest
import torch

from graphfeed.pyg import NeighborLoader, NumNeighbors
from tests.pyg.neighborhood import KINDS, SIZES, around, assert_is, assert_true, heterogeneous


def test_a_number_holds_for_each_edge_type() -> None:
    data = heterogeneous()
    batch = next(iter(NeighborLoader(data, [2, 0], "user", batch_size=40)))
    for kind in KINDS:
        degrees = torch.bincount(data[kind].edge_index[1], minlength=SIZES[kind[2]])
        own = torch.bincount(batch[kind].edge_index[1], minlength=SIZES[kind[2]])
        if kind[2] == "user":
            assert torch.equal(own, degrees.clamp(max=2)[batch["user"].n_id])


def test_numbers_by_edge_type() -> None:
    data = heterogeneous()
    numbers = {kind: [0] if kind[1] == "knows" else [-1] for kind in KINDS}
    for given in (numbers, NumNeighbors({("user", "knows", "user"): [0]}, default=[-1])):
        batch = next(iter(NeighborLoader(data, given, "user", batch_size=40)))
        assert batch["user", "knows", "user"].edge_index.shape == (2, 0)
        assert batch["item", "liked_by", "user"].edge_index.shape == (2, 120)
    with pytest.raises(ValueError, match="Missing number"):
        NeighborLoader(data, {("user", "knows", "user"): [0]}, "user")
    with pytest.raises(ValueError, match="Not all edge types"):
        NeighborLoader(data, NumNeighbors({("a", "b", "c"): [0]}, default=[1]), "user")
    with pytest.raises(ValueError, match="Number of hops must be the same"):
        NeighborLoader(data, {kind: [1] * (1 + place) for place, kind in enumerate(KINDS)}, "user")


def test_seeds_of_several_types_share_a_mini_batch() -> None:
    data = heterogeneous()
    loader = NeighborLoader(data, [-1], {"user": torch.arange(4), "item": None}, batch_size=29)
    (batch,) = loader
    assert (batch["user"].batch_size, batch["item"].batch_size) == (4, 25)
    assert_is(batch, around(data, {"user": list(range(4)), "item": list(range(25))}, 1))
    assert batch["item"].input_id.tolist() == list(range(25))


def test_bidirectional_joins_an_edge_type_and_its_reverse() -> None:
    data = heterogeneous()
    for edge_type in list(data.edge_types):
        del data[edge_type].edge_attr
    data["item", "rev_likes", "user"].edge_index = data["item", "liked_by", "user"].edge_index
    del data["item", "liked_by", "user"]
    batch = next(iter(NeighborLoader(data, [2, 2], "user", batch_size=5, subgraph_type="bidirectional")))
    forth, back = batch["user", "likes", "item"].edge_index, batch["item", "rev_likes", "user"].edge_index
    assert torch.equal(forth, back.flip(0))
    assert forth.shape[1] > 0


def test_induced_has_all_edges_between_the_nodes() -> None:
    data = heterogeneous()
    batch = next(iter(NeighborLoader(data, [2, 2], "user", batch_size=5, subgraph_type="induced")))
    for kind in KINDS:
        ends = [torch.isin(row, batch[own].n_id) for row, own in zip(data[kind].edge_index, kind[::2], strict=True)]
        assert sorted(batch[kind].e_id.tolist()) == torch.stack(ends).all(0).nonzero().squeeze(1).tolist()
    assert_true(data, batch)
