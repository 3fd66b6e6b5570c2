"""Excluding the edges of the seeds changes nothing else, compared with a slow and obvious filter."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from graphfeed.pyg import LinkLoader, LinkNeighborLoader, NeighborSampler
from graphfeed.pyg.data import import_pyg
from tests.kinds.neighborhood import assert_true, draws, heterogeneous, homogeneous, random_index, values_of
from tests.kinds.stores import in_stores, sorted_data

KIND, BACK = ("user", "likes", "item"), ("item", "liked_by", "user")


def dense(typed: bool = False) -> Any:
    """Return data with so few nodes that the edges of seeds are sampled often."""
    data = heterogeneous() if typed else homogeneous()
    for place, store in enumerate(data.edge_stores):
        store.edge_index = random_index(9, 7, store.edge_index.shape[1], 20 + place)
    return data


def rows_of(values: Any) -> list[list[int]]:
    return values.T.tolist()  # type: ignore[no-any-return]


def expected(batch: Any, data: Any, kind: Any, seeds: Any, flipped: bool) -> list[int]:
    """Return the positions of the edges of a type that are kept."""
    typed = kind is not None
    store = batch[kind] if typed else batch
    ends = [batch[kind[0]], batch[kind[2]]] if typed else [batch, batch]
    whole = data[kind] if typed else data
    kept = []
    for place, ((row, col), edge) in enumerate(zip(rows_of(store.edge_index), store.e_id.tolist(), strict=True)):
        pair = (int(ends[0].n_id[row]), int(ends[1].n_id[col]))
        tree = int(ends[0].batch[row]) if "batch" in ends[0] else None
        time = int(whole.edge_time[edge]) if "edge_time" in whole else None
        gone = False
        for source, end, own_tree, own_time in seeds:
            is_same = pair == ((end, source) if flipped else (source, end))
            in_time = time is None or own_time is None or time >= own_time
            gone = gone or (is_same and in_time and tree in (None, own_tree))
        if not gone:
            kept.append(place)
    return kept


def seeds_of(batch: Any, kind: Any) -> list[tuple[int, int, Any, Any]]:
    """Return source, destination, tree and time of each seed and negative."""
    first, second = (batch[kind[0]], batch[kind[2]]) if kind else (batch, batch)
    if "src_index" in first:
        negatives = second.dst_neg_index.reshape(len(first.src_index), -1).tolist()
        groups = zip(first.src_index.tolist(), second.dst_pos_index.tolist(), negatives, strict=True)
        pairs = [(source, end, row) for row, (source, own, wrong) in enumerate(groups) for end in (own, *wrong)]
        times = first.seed_time.tolist() if "seed_time" in first else None
    else:
        store = batch[kind] if kind else batch
        pairs = [(pair[0], pair[1], row) for row, pair in enumerate(rows_of(store.edge_label_index))]
        times = store.edge_label_time.tolist() if "edge_label_time" in store else None
    trees = first.batch.tolist() if "batch" in first else None
    return [
        (int(first.n_id[source]), int(second.n_id[end]), trees and trees[source], times and times[row])
        for source, end, row in pairs
    ]


TIMES = torch.randint(10, 50, (200,), generator=draws(8))
IN_TIME: dict[str, Any] = {"edge_label_time": TIMES[:16], "time_attr": "edge_time"}


@pytest.mark.parametrize(
    ("exclude", "options"),
    [
        pytest.param(True, {}, id="plain"),
        pytest.param("reverse", {"neg_sampling": "binary"}, id="binary"),
        pytest.param("reverse", {"disjoint": True, "neg_sampling": ("triplet", 2)}, id="trees"),
        pytest.param(True, IN_TIME, id="in time"),
        pytest.param("reverse", {**IN_TIME, "neg_sampling": ("binary", 2)}, id="in time, binary"),
        pytest.param(True, {**IN_TIME, "neg_sampling": "triplet"}, id="in time, triplet"),
        pytest.param("reverse", {**IN_TIME, "time_attr": "time"}, id="node times"),
        pytest.param("reverse", {"subgraph_type": "induced", "neg_sampling": "triplet"}, id="all edges"),
    ],
)
def test_the_edges_of_seeds_are_gone_and_the_rest_stays(exclude: Any, options: dict[str, Any]) -> None:
    data, removed = dense(), 0
    if options.get("time_attr") != "edge_time":
        del data.edge_time
    else:
        data.edge_time[::3] = TIMES[::3]  # as if edges to predict were edges of the graph
    given: dict[str, Any] = {"batch_size": 8, "seed": 0, "edge_label_index": data.edge_index[:, :16], **options}
    plain, without = (
        LinkNeighborLoader(data, [12, 2], **given),
        LinkNeighborLoader(data, [12, 2], exclude_seed_edges=exclude, **given),
    )
    for before, after in zip(plain, without, strict=True):
        seeds = seeds_of(before, None)
        kept = set(expected(before, data, None, seeds, False))
        if exclude == "reverse":
            kept &= set(expected(before, data, None, seeds, True))
        places = sorted(kept)
        removed += len(before.e_id) - len(places)
        assert torch.equal(after.edge_index, before.edge_index[:, places])
        assert torch.equal(after.e_id, before.e_id[places])
        assert torch.equal(after.n_id, before.n_id)
        if "num_sampled_edges" in before:
            bounds = torch.tensor([0, *before.num_sampled_edges]).cumsum(0).tolist()
            counts = [sum(low <= place < high for place in places) for low, high in pairwise(bounds)]
            assert after.num_sampled_edges == counts
        assert_true(data, after)
    assert removed > 3


def test_in_a_bidirectional_subgraph_the_reverse_of_a_removed_edge_is_gone_too() -> None:
    for options, exclude in [
        ({}, "reverse"),
        ({"disjoint": True, "neg_sampling": "binary"}, "reverse"),
        (IN_TIME, True),
        (IN_TIME, "reverse"),
    ]:
        data, removed = dense(), 0
        data.edge_time[::3] = TIMES[::3]
        given = {"batch_size": 8, "seed": 0, "edge_label_index": data.edge_index[:, :16], **options}
        loaders = [
            LinkNeighborLoader(data, [12, 2], subgraph_type=kind, exclude_seed_edges=exclude, **given)
            for kind in ("directional", "bidirectional")
        ]
        whole = LinkNeighborLoader(data, [12, 2], subgraph_type="bidirectional", **given)
        for one_way, both, before in zip(*loaders, whole, strict=True):
            assert torch.equal(both.n_id, one_way.n_id)
            assert "num_sampled_edges" not in both
            edges = {tuple(pair) for pair in rows_of(one_way.edge_index)}
            edges |= {pair[::-1] for pair in edges}
            assert set(both.e_id.tolist()) <= set(one_way.e_id.tolist())
            assert {tuple(pair) for pair in rows_of(both.edge_index)} <= edges
            if exclude == "reverse":
                assert len(both.e_id) == len(edges)
            assert expected(both, data, None, seeds_of(both, None), False) == list(range(len(both.e_id)))
            removed += len(before.e_id) - len(both.e_id)
        assert removed > 3


def test_with_types_the_reverse_type_does_not_tell_of_a_removed_edge() -> None:
    module = import_pyg("torch_geometric.data", "tests")
    data, kind, back = module.HeteroData(), ("user", "likes", "item"), ("item", "rev_likes", "user")
    data["user"].x, data["item"].x = torch.eye(3), torch.eye(3)
    data[kind].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    data[back].edge_index = data[kind].edge_index.flip(0)
    options: dict[str, Any] = {"subgraph_type": "bidirectional", "edge_label_index": (kind, torch.tensor([[0], [0]]))}
    for given, is_left in ((False, True), (True, False), (back, False)):
        # The other type has only edges that reverse the sampled ones.
        (batch,) = LinkNeighborLoader(data, {kind: [-1], back: [0]}, exclude_seed_edges=given, **options)
        assert batch["user"].n_id.tolist() == [0, 1]
        left = [[0, 0]] * is_left + [[1, 0]]
        assert rows_of(batch[kind].edge_index) == left
        assert rows_of(batch[back].edge_index.flip(0)) == left


def test_with_types_those_of_the_seeds_type_and_of_its_reverse_are_gone() -> None:
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"neg_sampling": "binary"}, True),
        ({"disjoint": True, "neg_sampling": ("triplet", 2)}, BACK),
    ]
    for options, exclude in cases:
        data, removed = dense(typed=True), {KIND: 0, BACK: 0}
        given: dict[str, Any] = {
            "batch_size": 8,
            "seed": 0,
            "edge_label_index": (KIND, data[KIND].edge_index[:, :16]),
            **options,
        }
        plain, without = (
            LinkNeighborLoader(data, [12, 2], **given),
            LinkNeighborLoader(data, [12, 2], exclude_seed_edges=exclude, **given),
        )
        for before, after in zip(plain, without, strict=True):
            for kind in data.edge_types:
                places = list(range(len(before[kind].e_id)))
                if kind in (KIND, exclude):
                    places = expected(before, data, kind, seeds_of(before, KIND), kind == BACK)
                    removed[kind] += len(before[kind].e_id) - len(places)
                assert torch.equal(after[kind].edge_index, before[kind].edge_index[:, places])
                assert torch.equal(after[kind].e_id, before[kind].e_id[places])
                assert sum(after[kind].num_sampled_edges) == len(places)
        assert removed[KIND] > 3
        assert (removed[BACK] > 3) == (exclude == BACK)


def test_stores_and_other_samplers_make_no_difference() -> None:
    data = sorted_data(False, "coo")
    data.edge_index = dense().edge_index
    options: dict[str, Any] = {"batch_size": 50, "seed": 0, "exclude_seed_edges": "reverse"}
    whole, stored = (LinkNeighborLoader(given, [4, 3], **options) for given in (data, in_stores(data, "coo")))
    assert [values_of(batch) for batch in whole] == [values_of(batch) for batch in stored]
    own = LinkLoader(data, NeighborSampler(data, [-1]), **options)
    called = LinkLoader(data, HidesStages(NeighborSampler(data, [-1])), **options)
    for batch, other in zip(own, called, strict=True):
        assert torch.equal(batch.edge_index, other.edge_index)
        assert batch.edge_index.shape[1] > 0


class HidesStages:
    """A sampler whose stages a loader can't see."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def sample_from_edges(self, *args: Any, **kwargs: Any) -> Any:
        return self._sampler.sample_from_edges(*args, **kwargs)
