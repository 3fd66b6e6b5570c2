import pickle

import pytest
import torch

import graphfeed as gf
from tests.digests import assert_same


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
