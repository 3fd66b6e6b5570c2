from typing import Any

import pytest
import torch

from graphfeed.pyg.data.input_nodes import InputNodes, read_input_nodes
from tests.pyg.neighborhood import heterogeneous, homogeneous


def test_ids_masks_and_all() -> None:
    data = homogeneous()
    for given, seeds, ids in (
        (None, list(range(60)), list(range(60))),
        (torch.tensor([9, 4]), [9, 4], [0, 1]),
        ([9, 4], [9, 4], [0, 1]),
        (data.train_mask, list(range(0, 60, 3)), list(range(0, 60, 3))),
    ):
        items: Any = read_input_nodes(data, InputNodes(given)).items
        assert [part.tolist() for part in items[:]] == [seeds, ids]


def test_with_types() -> None:
    data = heterogeneous()
    for given, seeds in (
        ("item", {"item": list(range(25))}),
        (("item", None), {"item": list(range(25))}),
        (("user", torch.tensor([3, 1])), {"user": [3, 1]}),
        (("user", torch.arange(40) == 5), {"user": [5]}),
        ({"user": [2], "item": [1, 0]}, {"user": [2], "item": [1, 0]}),
    ):
        found = read_input_nodes(data, InputNodes(given))
        assert {kind: rows[0].tolist() for kind, rows in found.items[:].items()} == seeds
        assert found.input_type == (next(iter(seeds)) if len(seeds) == 1 else None)


def test_times_are_given_or_the_nodes_own() -> None:
    data, seeds = homogeneous(), torch.tensor([9, 4])
    given: Any = read_input_nodes(data, InputNodes(seeds, torch.tensor([70, 71]))).items
    own: Any = read_input_nodes(data, InputNodes(seeds, node_times=data.time)).items
    assert given[:][2].tolist() == [70, 71]
    assert own[:][2].tolist() == data.time[seeds].tolist()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (torch.tensor([60]), "must lie in 0 .. 59, but hold 60 .. 60"),
        (torch.tensor([], dtype=torch.int64), "is empty"),
        (torch.ones(3, dtype=torch.bool), "is a mask of shape"),
        (torch.ones(3), "must be ids"),
        ("user", "but data has no types"),
    ],
)
def test_wrong_seeds_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_input_nodes(homogeneous(), InputNodes(given))


def test_wrong_types_and_lengths_are_refused() -> None:
    data = heterogeneous()
    for given, text in (
        (None, "must name a node type"),
        (torch.arange(3), "must name a node type"),
        ("shop", "'shop'"),
    ):
        with pytest.raises(ValueError, match=text):
            read_input_nodes(data, InputNodes(given))
    with pytest.raises(ValueError, match="input_time must have 40 values"):
        read_input_nodes(data, InputNodes("user", torch.arange(3)))
