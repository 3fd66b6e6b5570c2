import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.datapipes.stages import ByMethod, make_items, seeds_in, shifted
from tests.digests import assert_same


def by_ten(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return shifted(minibatch, 10)


def nothing(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return None  # type: ignore[return-value]


class ByModule(torch.nn.Module):
    def forward(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, 10)


@pytest.mark.parametrize("function", [by_ten, ByModule(), lambda minibatch: shifted(minibatch, 10)])
def test_any_function_of_a_mini_batch_is_a_stage(function: Any) -> None:
    assert seeds_in(make_items(4).transform(function)) == [[10, 11], [12, 13]]
    assert seeds_in(gf.MiniBatchTransformer(make_items(4), function)) == [[10, 11], [12, 13]]


def test_without_a_function_it_changes_nothing() -> None:
    assert_same(list(make_items().transform()), list(make_items()))
    batch = gf.MiniBatch()
    assert gf.MiniBatchTransformer(make_items())(batch) is batch


def test_a_subclass_hands_its_method_over() -> None:
    assert seeds_in(ByMethod(make_items(4), 3)) == [[3, 4], [5, 6]]


def test_it_pickles_with_a_functions_name() -> None:
    assert seeds_in(pickle.loads(pickle.dumps(make_items(2).transform(by_ten)))) == [[10, 11]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_is_no_mini_batch_is_named(num_workers: int) -> None:
    with gf.DataLoader(make_items().transform(nothing), num_workers=num_workers) as loader:
        with pytest.raises(
            TypeError, match=r"should be an instance of MiniBatch, but is a NoneType; return the .* graphfeed.Transform"
        ) as caught:
            list(loader)
        assert "in MiniBatchTransformer, stage 2, mini-batch 0 of epoch 0" in caught.value.__notes__[0]
