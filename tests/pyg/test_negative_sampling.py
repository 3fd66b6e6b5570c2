from typing import Any

import pytest
import torch

from graphfeed.pyg import NegativeSampling
from graphfeed.pyg.to_sampler_output import import_pyg


def test_what_pygs_loaders_take_is_taken() -> None:
    theirs = import_pyg("torch_geometric.sampler", "tests").NegativeSampling("triplet", 2, dst_weight=torch.ones(3))
    found = NegativeSampling.cast(theirs)
    assert found is not None
    assert (found.mode, found.amount, found.dst_weight is not None) == ("triplet", 2, True)
    for given in ("binary", ("binary", 1), {"mode": "binary"}, NegativeSampling("binary")):
        assert NegativeSampling.cast(given) == NegativeSampling("binary", 1)
    assert NegativeSampling.cast(None) is None
    with pytest.raises(TypeError, match="neg_sampling must be"):
        NegativeSampling.cast(3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("some", 1), "mode must be"),
        (("binary", 0), "amount must be more than 0"),
        (("triplet", 1.5), "whole number"),
    ],
)
def test_wrong_values_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        NegativeSampling(*given)


def test_it_tells_its_mode() -> None:
    assert NegativeSampling("binary", 0.5).is_binary()
    assert NegativeSampling("triplet", 2.0).is_triplet()
