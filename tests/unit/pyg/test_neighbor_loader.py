"""`NeighborLoader`: with full fan-outs equal to the slow version, otherwise a part of it."""

import pickle
from itertools import product
from typing import Any

import torch

from graphfeed.pyg import GraphSAINTNodeSampler, LinkNeighborLoader, NeighborLoader, NumNeighbors
from tests.kinds.neighborhood import (
    KINDS,
    NUM_EDGES,
    NUM_NODES,
    SIZES,
    around,
    assert_is,
    assert_true,
    heterogeneous,
    homogeneous,
    values_of,
)

SEEDS = torch.tensor([7, 3, 50, 7, 9, 31])


def first(data: Any, numbers: Any, **options: Any) -> Any:
    return next(iter(NeighborLoader(data, numbers, **{"input_nodes": SEEDS, "batch_size": 4, "seed": 0, **options})))


def test_full_neighborhoods_equal_the_slow_version() -> None:
    for kind in ["", "user"]:
        data, nodes = heterogeneous() if kind else homogeneous(), SEEDS % 40
        given = (kind, nodes) if kind else nodes
        for hops, disjoint in product((1, 2, 3), (False, True)):
            loader: Any = NeighborLoader(data, [-1] * hops, given, batch_size=4, disjoint=disjoint)
            for batch, seeds in zip(loader, nodes.split(4), strict=True):  # type: ignore[no-untyped-call]
                assert_is(batch, around(data, {kind: seeds.tolist()}, hops, disjoint=disjoint), disjoint=disjoint)
                assert_true(data, batch)
                assert (batch[kind] if kind else batch).batch_size == len(seeds)


def test_fan_outs_bound_the_in_edges_of_each_node() -> None:
    data = homogeneous()
    batch = first(data, [3, 2], input_nodes=SEEDS[:3])
    inner, outer = batch.num_sampled_edges
    degrees = torch.bincount(data.edge_index[1], minlength=NUM_NODES)[batch.n_id]
    found = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    seeds, new = batch.num_sampled_nodes[:2]
    assert torch.equal(found[:seeds], degrees[:seeds].clamp(max=3))
    assert torch.equal(found[seeds : seeds + new], degrees[seeds : seeds + new].clamp(max=2))
    assert (inner, outer) == (int(found[:seeds].sum()), int(found[seeds:].sum()))
    assert len(set(batch.e_id.tolist())) == len(batch.e_id)
    assert_true(data, batch)


def test_edges_may_be_changed_while_nodes_await_a_backward_pass() -> None:
    batch, table = first(homogeneous(), [3, 2]), torch.ones(NUM_NODES, 2, requires_grad=True)
    loss = table[batch.n_id].sum()
    batch.edge_index += 1
    loss.backward()  # type: ignore[no-untyped-call]
    assert table.grad is not None
    assert torch.equal(table.grad[:, 0], torch.bincount(batch.n_id, minlength=NUM_NODES).float())


def test_without_a_hop_the_seeds_are_alone() -> None:
    several: list[dict[str, Any]] = [
        {}, {"disjoint": True}, {"time_attr": "time"}, {"subgraph_type": "bidirectional"},
    ]  # fmt: skip
    for options in several:
        for data, numbers, seeds, kind in (
            (homogeneous(), [], torch.tensor([4, 9]), None),
            (heterogeneous(), [], ("user", torch.tensor([4, 9])), "user"),
            (heterogeneous(), {edge_type: [] for edge_type in KINDS}, ("user", torch.tensor([4, 9])), "user"),
        ):
            if kind is None or "subgraph_type" not in options:
                batch = next(iter(NeighborLoader(data, numbers, seeds, batch_size=2, **options)))
                own = batch if kind is None else batch[kind]
                assert own.n_id.tolist() == [4, 9]
                assert [table.edge_index.shape for table in batch.edge_stores] == [(2, 0)] * len(batch.edge_stores)
                if "subgraph_type" not in options:
                    assert own.num_sampled_nodes == [2]
                    assert [table.num_sampled_edges for table in batch.edge_stores] == [[]] * len(batch.edge_stores)


def test_without_a_hop_induced_has_the_edges_between_seeds() -> None:
    data = homogeneous()
    (batch,) = NeighborLoader(data, [], torch.arange(60), batch_size=60, subgraph_type="induced")
    assert sorted(batch.e_id.tolist()) == list(range(NUM_EDGES))


def test_with_replacement_edges_come_up_again() -> None:
    batch = first(homogeneous(), [30], replace=True)
    assert torch.bincount(batch.edge_index[1], minlength=4)[:4].tolist() == [30] * 4
    assert len(set(batch.e_id.tolist())) < len(batch.e_id)
    assert_true(homogeneous(), batch)


def test_bidirectional_adds_the_reverse_of_each_edge() -> None:
    data = homogeneous()
    plain, both = first(data, [3, 2]), first(data, [3, 2], subgraph_type="bidirectional")
    assert torch.equal(plain.n_id, both.n_id)
    pairs = {tuple(pair) for pair in plain.edge_index.T.tolist()}
    assert [tuple(pair) for pair in both.edge_index.T.tolist()] == sorted(
        pairs | {pair[::-1] for pair in pairs}, key=lambda pair: pair[::-1]
    )
    assert "num_sampled_edges" not in both
    for (row, col), edge in zip(both.edge_index.T.tolist(), both.e_id.tolist(), strict=True):
        ends = data.edge_index[:, edge].tolist()
        own = both.n_id[[row, col]].tolist()
        assert own == ends if (row, col) in pairs else own == ends[::-1]


def test_transforms_are_called_before_and_after_fetching() -> None:
    def shorten(output: Any) -> Any:
        output.node, output.num_sampled_nodes = output.node[:4], None
        output.row = output.col = output.edge = output.row[:0]
        return output

    batch = first(
        homogeneous(), [2], transform_sampler_output=shorten, transform=lambda data: (data.x.shape[0], data.e_id)
    )
    assert batch[0] == 4
    assert batch[1].tolist() == []


def test_it_shows_its_pipeline_and_its_plan() -> None:
    loader = NeighborLoader(homogeneous(), [3, 2], num_workers=2)
    assert "only_new=True" in str(loader.pipeline)
    assert "FeatureFetcher" in loader.explain()
    assert len(pickle.dumps(loader.pipeline)) < 1 << 16


def test_a_sampler_serves_several_loaders() -> None:
    data = homogeneous()
    one = NeighborLoader(data, [3, 2], SEEDS, batch_size=3, seed=1)
    other = NeighborLoader(data, None, SEEDS, batch_size=3, seed=1, neighbor_sampler=one.node_sampler)
    assert [values_of(batch) for batch in one] == [values_of(batch) for batch in other]
    assert one.node_sampler is other.node_sampler


def test_a_number_holds_for_each_edge_type() -> None:
    data = heterogeneous()
    batch = next(iter(NeighborLoader(data, [2, 0], "user", batch_size=40)))
    for kind in KINDS:
        degrees = torch.bincount(data[kind].edge_index[1], minlength=SIZES[kind[2]])
        own = torch.bincount(batch[kind].edge_index[1], minlength=SIZES[kind[2]])
        if kind[2] == "user":
            assert torch.equal(own, degrees.clamp(max=2)[batch["user"].n_id])


def test_a_pickled_mini_batch_is_as_large_as_its_tensors() -> None:
    batch = first(heterogeneous(), [-1, -1, -1], input_nodes=("user", SEEDS % 40), batch_size=6)
    tensors = [value for store in batch.stores for value in store.values() if isinstance(value, torch.Tensor)]
    assert len(pickle.dumps(batch)) < sum(own.nbytes for own in tensors) + 1000 * (len(tensors) + 5)


def test_numbers_by_edge_type() -> None:
    data = heterogeneous()
    numbers = {kind: [0] if kind[1] == "knows" else [-1] for kind in KINDS}
    for given in (numbers, NumNeighbors({("user", "knows", "user"): [0]}, default=[-1])):
        batch = next(iter(NeighborLoader(data, given, "user", batch_size=40)))
        assert batch["user", "knows", "user"].edge_index.shape == (2, 0)
        assert batch["item", "liked_by", "user"].edge_index.shape == (2, 120)


def test_seeds_of_several_types_share_a_mini_batch() -> None:
    data = heterogeneous()
    loader = NeighborLoader(data, [-1], {"user": torch.arange(4), "item": None}, batch_size=29)
    (batch,) = loader
    assert (batch["user"].batch_size, batch["item"].batch_size) == (4, 25)
    assert_is(batch, around(data, {"user": list(range(4)), "item": list(range(25))}, 1))
    assert batch["item"].input_id.tolist() == list(range(25))


def test_bidirectional_joins_an_edge_type_and_its_reverse() -> None:
    data = heterogeneous()
    for edge_type in list(data.edge_types):
        del data[edge_type].edge_attr
    data["item", "rev_likes", "user"].edge_index = data["item", "liked_by", "user"].edge_index
    del data["item", "liked_by", "user"]
    batch = next(iter(NeighborLoader(data, [2, 2], "user", batch_size=5, subgraph_type="bidirectional")))
    forth, back = batch["user", "likes", "item"].edge_index, batch["item", "rev_likes", "user"].edge_index
    assert torch.equal(forth, back.flip(0))
    assert forth.shape[1] > 0


def test_with_types_induced_has_all_edges_between_the_nodes() -> None:
    data = heterogeneous()
    batch = next(iter(NeighborLoader(data, [2, 2], "user", batch_size=5, seed=0, subgraph_type="induced")))
    for kind in KINDS:
        ends = [torch.isin(row, batch[own].n_id) for row, own in zip(data[kind].edge_index, kind[::2], strict=True)]
        assert sorted(batch[kind].e_id.tolist()) == torch.stack(ends).all(0).nonzero().squeeze(1).tolist()
    assert_true(data, batch)
    (other, *_) = NeighborLoader(data, [2, 2], "user", batch_size=5, seed=0, directed=False)
    assert values_of(other) == values_of(batch)


def weighted(typed: bool) -> Any:
    """Return data in which two of three edges have weight 0."""
    data = heterogeneous() if typed else homogeneous()
    for store in data.edge_stores:
        store.weight = (torch.arange(store.edge_index.shape[1]) % 3 == 0).float()
    return data


def test_no_loader_draws_an_edge_that_weighs_nothing() -> None:
    for typed in [False, True]:
        data = weighted(typed)
        kind = ("user", "knows", "user") if typed else None
        ends = data[kind].edge_index if typed else data.edge_index
        every: list[dict[str, Any]] = [{}, {"disjoint": True}, {"time_attr": "time"}]
        cases = [*product(every, ([-1, -1], [50, 2])), ({"replace": True}, [30, 2])]
        for options, numbers in cases:
            given: dict[str, Any] = {"weight_attr": "weight", "batch_size": 20, "seed": 0, **options}
            times = torch.full((ends.shape[1],), 40) if "time_attr" in options else None
            count = 0
            loaders: list[Any] = [
                NeighborLoader(data, numbers, "user" if typed else None, **given),
                LinkNeighborLoader(data, numbers, kind, edge_label_time=times, **given),
            ]
            for batch in (batch for loader in loaders for batch in loader):
                for store in batch.edge_stores:
                    assert (store.weight > 0).all(), options
                    count += len(store.weight)
            assert count > 50


def test_the_order_of_edges_and_of_their_times_does_not_matter() -> None:
    for strategy, order in [("uniform", 0), ("last", 1), ("last", -1), ("last", 0)]:
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


def test_copies_of_a_seed_are_drawn_by_themselves_in_trees_and_alike_without() -> None:
    data = homogeneous()
    busiest = int(torch.bincount(data.edge_index[1]).argmax())
    for options in ({"disjoint": True}, {"time_attr": "time", "input_time": torch.full((30,), 50)}, {}):
        loader: Any = NeighborLoader(data, [2, 2], torch.full((30,), busiest), batch_size=30, seed=1, **options)
        (batch,) = loader
        columns = batch.edge_index[1]
        samples = {tuple(batch.e_id[columns == copy].tolist()) for copy in range(30)}
        assert len(samples) > 5 if options else len(samples) == 1


def test_a_loader_is_printed_with_its_seeds_and_options() -> None:
    data = homogeneous()
    loader = NeighborLoader(data, [3, 2], input_nodes=torch.arange(5), batch_size=2, num_workers=2)
    assert repr(loader) == "NeighborLoader(5 seeds, num_neighbors=[3, 2], batch_size=2, num_workers=2)"
    assert repr(NeighborLoader(data, [1], batch_sampler=[[0]])).endswith("seeds, num_neighbors=[1], num_workers=0)")
    assert repr(GraphSAINTNodeSampler(data, 2, 4)) == "GraphSAINTNodeSampler(4 items, batch_size=1, num_workers=0)"
