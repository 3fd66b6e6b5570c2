import warnings
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.digests import assert_same

IDS, LABELS = torch.arange(3), torch.ones(3)


def test_members_become_the_fields_of_their_names() -> None:
    assert_same(gf.minibatcher_default(IDS, ("seeds",)), gf.MiniBatch(seeds=IDS))
    assert_same(gf.minibatcher_default((LABELS, IDS), ("labels", "seeds")), gf.MiniBatch(seeds=IDS, labels=LABELS))


def test_typed_rows_become_a_dict_a_field() -> None:
    rows = {"user": (IDS, LABELS), "item": (IDS + 1, LABELS + 1)}
    expected = gf.MiniBatch(seeds={"user": IDS, "item": IDS + 1}, labels={"user": LABELS, "item": LABELS + 1})
    assert_same(gf.minibatcher_default(rows, ("seeds", "labels")), expected)
    one = {"user": IDS, "item": IDS}
    assert_same(gf.minibatcher_default(one, ("seeds",)), gf.MiniBatch(seeds=one))


@pytest.mark.parametrize("name", ["labels", "indexes", "compacted_seeds", "timestamp"])
def test_every_field_has_a_name(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = gf.minibatcher_default((IDS, LABELS), ("seeds", name))
    assert_same(getattr(batch, name), LABELS)


def test_another_name_is_set_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="item name 'weather' is no field of MiniBatch; it is set as an attribute"):
        batch = gf.minibatcher_default((IDS, LABELS), ("seeds", "weather"))
    assert_same(batch.weather, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.GBWarning)  # as GraphBolt's programs do
        gf.minibatcher_default((IDS, IDS), ("seeds", "weather"))


@pytest.mark.parametrize("rows", [IDS, (IDS, IDS), {"a": IDS}], ids=["one", "two", "typed"])
def test_rows_without_names_are_passed_on_with_a_warning(rows: Any) -> None:
    with pytest.warns(UserWarning, match="the item set has no names, so its rows are passed on as they are; name them"):
        assert gf.minibatcher_default(rows, None) is rows
