import warnings
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.digests import assert_same

IDS = torch.arange(3)


def test_each_member_fills_the_field_of_its_name() -> None:
    batch = gf.minibatcher_default((IDS, IDS + 5), ("seeds", "labels"))
    assert_same(batch, gf.MiniBatch(seeds=IDS, labels=IDS + 5))
    assert_same(gf.minibatcher_default(IDS, ("seeds",)), gf.MiniBatch(seeds=IDS))


def test_members_by_type_become_dicts_by_type() -> None:
    batch = gf.minibatcher_default({"a": (IDS, IDS + 5), "b": (IDS, IDS + 6)}, ("seeds", "labels"))
    assert_same(batch.seeds, {"a": IDS, "b": IDS})
    assert_same(batch.labels, {"a": IDS + 5, "b": IDS + 6})
    assert_same(gf.minibatcher_default({"a": IDS}, ("seeds",)).seeds, {"a": IDS})


@pytest.mark.parametrize("rows", [IDS, (IDS, IDS), {"a": IDS}], ids=["one", "two", "typed"])
def test_without_names_rows_are_passed_on_with_a_warning(rows: Any) -> None:
    with pytest.warns(gf.GBWarning, match="the item set has no names"):
        assert gf.minibatcher_default(rows, None) is rows


def test_another_name_is_set_with_a_warning() -> None:
    with pytest.warns(gf.GBWarning, match="item name 'colour' is no field of MiniBatch"):
        batch = gf.minibatcher_default((IDS, IDS + 5), ("seeds", "colour"))
    assert_same(batch.colour, IDS + 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gf.GBWarning)
        gf.minibatcher_default((IDS, IDS), ("seeds", "colour"))


def test_a_time_is_a_field() -> None:
    assert_same(gf.minibatcher_default((IDS, IDS + 5), ("seeds", "timestamp")).timestamp, IDS + 5)
