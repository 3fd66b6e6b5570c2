"""Mini-batches as JSON and tensors: what comes back is equal in every field, and what can't be sent is named."""

import json
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.wire.value_codec import pack_value, unpack_value
from tests import pipelines
from tests.digests import assert_same

DEEP: Any = 1
for _ in range(900):
    DEEP = ["list", DEEP]


def there_and_back(value: Any) -> Any:
    tree, tensors = pack_value(value)
    return unpack_value(json.loads(json.dumps(tree)), tensors)


@pytest.mark.parametrize("build", pipelines.ALL)
def test_every_kind_of_mini_batch_comes_back_equal(build: Any) -> None:
    minibatch = next(iter(build()))
    assert_same(there_and_back(minibatch), minibatch)


def test_attributes_and_values_of_users_come_back() -> None:
    minibatch = gf.MiniBatch(key=gf.Key(1, 2, 3))
    minibatch.extra = {1: torch.arange(2), "1": torch.arange(3), ("a", None): (True, 1.5, "x", [float("inf")])}  # type: ignore[attr-defined]
    assert_same(there_and_back(minibatch), minibatch)


def test_a_tensor_that_occurs_twice_is_sent_once() -> None:
    ids = torch.arange(3)
    tree, tensors = pack_value(gf.MiniBatch(seeds=ids, input_nodes=ids))
    assert list(tensors) == ["0"]
    assert unpack_value(tree, tensors).input_nodes is ids


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, torch.eye(2).to_sparse(), torch.float32, b"bytes", torch.ones(2, requires_grad=True)]
)
def test_what_cannot_be_sent_is_named_by_its_place(value: Any) -> None:
    minibatch = gf.MiniBatch(node_features={"feat": value})
    with pytest.raises(TypeError, match=r"^minibatch\.node_features\.feat is a .* run behind the cut"):
        pack_value(minibatch)


@pytest.mark.parametrize(
    "tree",
    [
        ["nothing"],
        [],
        ["tensor"],
        ["tensor", "missing"],
        ["Key", 1],
        ["Key", float("inf"), 0, 0],
        ["dict", [1]],
        ["MiniBatch", 3],
        [["list"]],
        DEEP,
    ],
)
def test_what_is_no_mini_batch_is_refused(tree: Any) -> None:
    with pytest.raises(ValueError, match="what came is no mini-batch"):
        unpack_value(tree, {})
