from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.pyg import NegativeSampling
from graphfeed.pyg.data.input_edges import InputEdges, read_input_edges
from tests.pyg.neighborhood import heterogeneous, homogeneous

KIND = ("user", "likes", "item")


def test_given_edges_and_all_of_a_type() -> None:
    data = heterogeneous()
    some = torch.tensor([[1, 2], [3, 4]])
    for given, pairs in (
        (KIND, data[KIND].edge_index.T.tolist()),
        ((KIND, None), data[KIND].edge_index.T.tolist()),
        ((KIND, some), [[1, 3], [2, 4]]),
        (("user", "item"), data[KIND].edge_index.T.tolist()),
    ):
        found = read_input_edges(data, InputEdges(given), None)
        assert found.edge_type == KIND
        assert found.items[:]["user:likes:item"][0].tolist() == pairs


def test_without_types_the_type_may_be_none() -> None:
    data = homogeneous()
    some = torch.tensor([[1, 2], [3, 4]])
    for given, pairs in (((None, some), [[1, 3], [2, 4]]), ((None, None), data.edge_index.T.tolist())):
        items: Any = read_input_edges(data, InputEdges(given), None).items
        assert items[:][0].tolist() == pairs


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (InputEdges(torch.zeros(3, 2, dtype=torch.int64)), "must have shape"),
        (InputEdges(torch.zeros(2, 0, dtype=torch.int64)), "is empty"),
        (InputEdges(labels=torch.ones(3)), "edge_label must have 200 values"),
        (InputEdges(times=torch.ones(3)), "edge_label_time must have 200 values"),
        (InputEdges(torch.tensor([[0, 60], [1, 2]])), "the sources of .* must lie in 0 .. 59, but hold 0 .. 60"),
        (InputEdges(torch.tensor([[0, 1], [-1, 2]])), "the destinations of .* must lie in 0 .. 59, but hold -1 .. 2"),
        (InputEdges(torch.ones(2, 3)), "edge_label_index must be ids, but is torch.float32"),
    ],
)
def test_wrong_edges_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_input_edges(homogeneous(), given, None)


def test_a_type_is_needed_where_there_are_types() -> None:
    with pytest.raises(ValueError, match="must name an edge type"):
        read_input_edges(heterogeneous(), InputEdges(), None)
    with pytest.raises(ValueError, match="has the edge type"):
        read_input_edges(heterogeneous(), InputEdges(("a", "b", "c")), None)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (torch.linspace(0.25, 0.75, 200), torch.linspace(0.25, 0.75, 200)),
        (torch.linspace(-0.5, 1, 200), torch.linspace(-0.5, 1, 200)),
        (torch.linspace(0, 0.75, 200), torch.linspace(0, 0.75, 200) + 1),
        (torch.full((200,), float("nan")), torch.full((200,), float("nan"))),
        ([0, 1] * 100, torch.tensor([1, 2] * 100)),
        (np.array([0, 1] * 100), torch.tensor([1, 2] * 100)),
    ],
)
def test_labels_are_raised_only_if_the_least_is_exactly_0(labels: Any, expected: torch.Tensor) -> None:
    found: Any = read_input_edges(homogeneous(), InputEdges(labels=labels), NegativeSampling("binary")).items
    assert torch.allclose(found[:][2], expected, equal_nan=True)


def test_each_end_is_of_its_type() -> None:
    data = heterogeneous()
    read_input_edges(data, InputEdges((KIND, torch.tensor([[39], [24]]))), None)
    with pytest.raises(ValueError, match=r"the destinations of edge_label_index must lie in 0 .. 24, but hold 39"):
        read_input_edges(data, InputEdges((KIND, torch.tensor([[24], [39]]))), None)
