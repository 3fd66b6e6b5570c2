from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, NumNeighbors
from graphfeed.pyg.samplers.neighborhoods import Neighborhoods
from tests.pyg.neighborhood import heterogeneous, homogeneous


def graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(([1, 2], [0, 0]), 3)


def test_numbers_are_turned_around() -> None:
    assert Neighborhoods(graph(), [3, 2, -1]).fanouts == [-1, 2, 3]
    assert Neighborhoods(graph(), NumNeighbors([3, 2])).fanouts == [2, 3]
    typed = gf.from_coo({"a:r:b": ([0], [0]), "b:s:a": ([0], [0])}, {"a": 1, "b": 1})
    assert Neighborhoods(typed, [3, 2]).fanouts == {"a:r:b": [2, 3], "b:s:a": [2, 3]}
    with pytest.raises(ValueError, match="num_neighbors is a dict by edge type, but data has no types"):
        _ = Neighborhoods(graph(), {("a", "r", "b"): [3]}).fanouts


def test_any_graph_of_this_package_may_be_sampled() -> None:
    pipe = gf.ItemSampler(gf.ItemSet((torch.tensor([0]),) * 2, names=("seeds", "input_id")), 1)
    output = next(iter(Neighborhoods(graph(), [-1]).append_to(pipe))).output
    assert output.node.tolist() == [0, 1, 2]
    assert output.num_sampled_nodes == [1, 2]


def weighted(typed: bool) -> Any:
    """Return data in which two of three edges weigh nothing."""
    data = heterogeneous() if typed else homogeneous()
    for store in data.edge_stores:
        store.weight = (torch.arange(store.edge_index.shape[1]) % 3 == 0).float()
    return data


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"time_attr": "time"}], ids=str)
def test_no_loader_draws_an_edge_that_weighs_nothing(typed: bool, options: dict[str, Any]) -> None:
    data = weighted(typed)
    given: dict[str, Any] = {"weight_attr": "weight", "batch_size": 20, "seed": 0, **options}
    kind = ("user", "knows", "user") if typed else None
    ends = data[kind].edge_index if typed else data.edge_index
    times = torch.full((ends.shape[1],), 40) if "time_attr" in options else None
    count = 0
    for numbers in ([-1, -1], [50, 2]):
        loaders: list[Any] = [
            NeighborLoader(data, numbers, "user" if typed else None, **given),
            LinkNeighborLoader(data, numbers, kind, edge_label_time=times, **given),
        ]
        for batch in (batch for loader in loaders for batch in loader):
            for store in batch.edge_stores:
                assert (store.weight > 0).all()
                count += len(store.weight)
    assert count > 100


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("order", [1, -1, 0], ids=["rising", "falling", "mixed"])
def test_the_order_of_edges_and_of_their_times_does_not_matter(strategy: str, order: int) -> None:
    data = homogeneous()
    places = data.edge_time.argsort(descending=order < 0) if order else torch.arange(len(data.edge_time))
    for name in ("edge_attr", "weight", "edge_time"):
        data[name] = data[name][places]
    data.edge_index = data.edge_index[:, places]
    times, found = torch.arange(60) % 50, 0
    loader = NeighborLoader(
        data, [3, 2], None, times, batch_size=20, time_attr="edge_time", temporal_strategy=strategy, seed=0
    )
    for batch in loader:
        limits = batch.seed_time[batch.batch[batch.edge_index[0]]]
        assert (batch.edge_time <= limits).all()
        found += len(batch.edge_time)
        if strategy == "last":
            for row in range(batch.batch_size):
                there = data.edge_time[
                    (data.edge_index[1] == batch.n_id[row]) & (data.edge_time <= batch.seed_time[row])
                ]
                own = batch.edge_time[batch.edge_index[1] == row]
                assert sorted(own.tolist()) == sorted(there.tolist())[-3:]
    assert found > 50
