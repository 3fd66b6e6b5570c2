"""`NeighborLoader` in time: nothing that is later than a seed is sampled for it."""

from typing import Any

import pytest
import torch

from graphfeed.pyg import NeighborLoader, NeighborSampler
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import around, assert_is, assert_true, heterogeneous, homogeneous

SEEDS = torch.tensor([7, 3, 50, 12])
TIMES = torch.tensor([30, 25, 49, 10])


def test_times_of_nodes_bound_what_is_sampled() -> None:
    data = homogeneous()
    node_times = data.time.tolist()
    batch = next(iter(NeighborLoader(data, [-1, -1], SEEDS, batch_size=4, time_attr="time")))
    limits = data.time[SEEDS].tolist()
    found = around(
        data, {"": SEEDS.tolist()}, 2, disjoint=True,
        allowed=lambda kind, edge, source, tree: node_times[source] <= limits[tree],
        order=lambda edge, source: node_times[source],
    )  # fmt: skip
    assert_is(batch, found, disjoint=True)
    assert "seed_time" not in batch


def test_times_of_edges_bound_what_is_sampled() -> None:
    data = homogeneous()
    batch = next(iter(NeighborLoader(data, [-1, -1], SEEDS, TIMES, batch_size=4, time_attr="edge_time")))
    assert batch.seed_time.tolist() == TIMES.tolist()
    found = around(
        data, {"": SEEDS.tolist()}, 2, disjoint=True,
        allowed=lambda kind, edge, source, tree: int(data.edge_time[edge]) <= int(TIMES[tree]),
        order=lambda edge, source: int(data.edge_time[edge]),
    )  # fmt: skip
    assert_is(batch, found, disjoint=True)
    assert_true(data, batch)


def test_the_time_of_the_seed_itself_counts() -> None:
    data = homogeneous()
    data.time = torch.full((len(data.time),), 5)
    batch = next(iter(NeighborLoader(data, [-1], SEEDS, batch_size=4, time_attr="time")))
    assert len(batch.e_id) == int(torch.isin(data.edge_index[1], SEEDS).sum())
    earlier = torch.full((4,), 4)
    batch = next(iter(NeighborLoader(data, [-1], SEEDS, earlier, batch_size=4, time_attr="time")))
    assert len(batch.e_id) == 0


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_no_neighbor_is_later_than_its_seed(strategy: str) -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [3, 3], SEEDS, TIMES, batch_size=4, time_attr="time", temporal_strategy=strategy)
    for _ in range(10):
        batch = next(iter(loader))
        sampled = slice(batch.batch_size, None)
        assert (batch.time[sampled] <= TIMES[batch.batch[sampled]]).all()


def test_times_that_are_not_whole_are_refused() -> None:
    data = homogeneous()
    with pytest.raises(TypeError, match=r"input_time must be torch.int64, but is torch.float32"):
        NeighborLoader(data, [2], SEEDS, TIMES.float(), time_attr="time")
    data.time = data.time.float()
    with pytest.raises(TypeError, match=r"time_attr 'time' must be torch.int64, but is torch.float32"):
        NeighborLoader(data, [2], SEEDS, TIMES, time_attr="time")


def test_with_types_those_without_times_are_always_there() -> None:
    data = heterogeneous()
    del data["item"].time
    loader = NeighborLoader(
        data, [-1, -1], ("user", torch.arange(6)), torch.full((6,), 20), time_attr="time", batch_size=6
    )
    batch = next(iter(loader))
    known = data["user"].time.tolist()
    found = around(
        data, {"user": list(range(6))}, 2, disjoint=True,
        allowed=lambda kind, edge, source, tree: kind[0] == "item" or known[source] <= 20,
    )  # fmt: skip
    for kind in ("user", "item"):
        own = zip(batch[kind].batch.tolist(), batch[kind].n_id.tolist(), strict=True)
        assert sorted(own) == sorted(zip(found.trees[kind], found.nodes[kind], strict=True))
    assert batch["user"].seed_time.tolist() == [20] * 6


def test_seeds_of_a_type_without_times_need_some() -> None:
    data = heterogeneous()
    del data["item"].time
    text = "input_nodes of 'item' have no 'time' of their own; give input_time"
    for seeds in ("item", {"user": None, "item": None}):
        with pytest.raises(ValueError, match=text):
            NeighborLoader(data, [-1], seeds, time_attr="time")
    given = import_pyg("torch_geometric.sampler", "tests").NodeSamplerInput(None, torch.arange(3), None, "item")
    sampler = NeighborSampler(data, [-1], time_attr="time")
    with pytest.raises(ValueError, match="the seeds have no 'time' of their own; give time"):
        sampler.sample_from_nodes(given)
    batch = next(iter(NeighborLoader(data, [-1], "item", torch.full((25,), 99), time_attr="time", batch_size=25)))
    assert batch["user", "likes", "item"].e_id.sort().values.tolist() == list(range(120))


def test_where_edges_have_times_seeds_need_some() -> None:
    for data, seeds in ((homogeneous(), None), (heterogeneous(), "user")):
        if seeds:
            data["user", "knows", "user"].edge_time = torch.arange(90)
        with pytest.raises(ValueError, match="have no 'edge_time' of their own; give input_time"):
            NeighborLoader(data, [-1], seeds, time_attr="edge_time")


def test_times_may_be_given_for_some_types() -> None:
    data = heterogeneous()
    del data["item"].time
    times: Any = {"item": torch.tensor([7, 8])}
    (batch,) = NeighborLoader(data, [0], {"user": None, "item": [3, 4]}, times, time_attr="time", batch_size=42)
    assert batch["item"].seed_time.tolist() == [7, 8]
    assert torch.equal(batch["user"].seed_time, data["user"].time)
