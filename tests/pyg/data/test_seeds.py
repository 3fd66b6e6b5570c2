"""What loaders take for seeds: nodes and edges, by ids, masks and types."""

from typing import Any

import numpy as np
import torch

import graphfeed as gf
from graphfeed.pyg import ItemsAt, LinkSeeds, NegativeSampling
from graphfeed.pyg.data.inputs import InputEdges, InputNodes, read_input_edges, read_input_nodes
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


def test_labels_are_raised_only_if_the_least_is_exactly_0() -> None:
    nan = torch.full((200,), float("nan"))
    cases: list[tuple[Any, torch.Tensor]] = [
        (torch.linspace(0.25, 0.75, 200), torch.linspace(0.25, 0.75, 200)),
        (torch.linspace(-0.5, 1, 200), torch.linspace(-0.5, 1, 200)),
        (torch.linspace(0, 0.75, 200), torch.linspace(0, 0.75, 200) + 1),
        (nan, nan),
        ([0, 1] * 100, torch.tensor([1, 2] * 100)),
        (np.array([0, 1] * 100), torch.tensor([1, 2] * 100)),
    ]
    for labels, expected in cases:
        found: Any = read_input_edges(homogeneous(), InputEdges(labels=labels), NegativeSampling("binary")).items
        assert torch.allclose(found[:][2], expected, equal_nan=True), labels


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


def test_items_are_those_at_the_positions_and_the_key_stays() -> None:
    items = gf.ItemSet((torch.arange(10, 20), torch.arange(5, 15)), names=("seeds", "labels"))
    source = gf.ItemSampler(gf.ItemSet([3, 0, 9], names="seeds"), 2)
    batches: Any = list(ItemsAt(source, items, gf.minibatcher_default))
    assert [batch.seeds.tolist() for batch in batches] == [[13, 10], [19]]
    assert [batch.labels.tolist() for batch in batches] == [[8, 5], [14]]
    assert [batch.key.index for batch in batches] == [0, 1]
