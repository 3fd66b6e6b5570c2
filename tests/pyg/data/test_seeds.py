"""What loaders take for seeds: nodes and edges, by ids, masks and types."""

from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import ItemsAt, LinkSeeds, NegativeSampling
from graphfeed.pyg.data.input_edges import InputEdges, read_input_edges
from graphfeed.pyg.data.input_nodes import InputNodes, read_input_nodes
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


def test_nodes_with_types() -> None:
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


def turn(minibatch: gf.MiniBatch, disjoint: bool = False, triplets: bool = False) -> Any:
    result: Any
    (result,) = LinkSeeds(gf.IterableSource([minibatch]), disjoint, triplets)
    return result


def test_nodes_are_unique_and_sorted() -> None:
    result = turn(gf.MiniBatch(seeds=torch.tensor([[5, 2], [2, 9]])))
    assert result.seeds.tolist() == [2, 5, 9]
    assert result.of_seeds is not None
    assert result.of_seeds[None]["edge_label_index"].tolist() == [[1, 0], [0, 2]]
    assert result.trees is None


def test_negatives_share_the_tree_of_their_positive() -> None:
    seeds, indexes = torch.tensor([[5, 2], [2, 9], [5, 7], [2, 8]]), torch.tensor([0, 1, 0, 1])
    minibatch = gf.MiniBatch(seeds=seeds, indexes=indexes, timestamp=torch.tensor([30, 40]))
    pairs = turn(minibatch, disjoint=True)
    assert pairs.seeds.tolist() == [5, 2, 5, 2, 2, 9, 7, 8]
    assert pairs.trees.tolist() == [0, 1, 0, 1] * 2
    assert pairs.timestamp.tolist() == [30, 40, 30, 40] * 2
    triplets = turn(minibatch, disjoint=True, triplets=True)
    assert triplets.seeds.tolist() == [5, 2, 2, 9, 7, 8]
    assert triplets.of_seeds is not None
    assert triplets.of_seeds[None]["dst_neg_index"].tolist() == [4, 5]


def test_other_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="must be edges, shape"):
        turn(gf.MiniBatch(seeds=torch.arange(3)))
    pairs = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="must be edges of one type"):
        turn(gf.MiniBatch(seeds={"a:b:c": pairs, "a:d:c": pairs}))


def test_items_are_those_at_the_positions_and_the_key_stays() -> None:
    items = gf.ItemSet((torch.arange(10, 20), torch.arange(5, 15)), names=("seeds", "labels"))
    source = gf.ItemSampler(gf.ItemSet([3, 0, 9], names="seeds"), 2)
    batches: Any = list(ItemsAt(source, items, gf.minibatcher_default))
    assert [batch.seeds.tolist() for batch in batches] == [[13, 10], [19]]
    assert [batch.labels.tolist() for batch in batches] == [[8, 5], [14]]
    assert [batch.key.index for batch in batches] == [0, 1]
