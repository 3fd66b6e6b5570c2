"""`LinkNeighborLoader` and `LinkLoader`: edges as seeds, with and without negatives."""

from typing import Any

import torch

from graphfeed.pyg import LinkLoader, LinkNeighborLoader, NegativeSampling, NeighborSampler
from graphfeed.pyg.data import import_pyg
from tests.kinds.neighborhood import NUM_EDGES, around, assert_is, assert_true, heterogeneous, homogeneous, values_of

KIND, KNOWS, BACK = ("user", "likes", "item"), ("user", "knows", "user"), ("item", "liked_by", "user")


def first(data: Any, numbers: Any = (2, 2), **options: Any) -> Any:
    return next(iter(LinkNeighborLoader(data, list(numbers), **{"batch_size": 8, "seed": 0, **options})))


def joined(sources: torch.Tensor, ends: torch.Tensor) -> set[tuple[int, ...]]:
    rows = zip(sources.tolist(), ends.reshape(len(sources), -1).tolist(), strict=True)
    return {(source, end) for source, row in rows for end in row}


def pairs(data: Any) -> set[tuple[int, ...]]:
    return {tuple(pair) for pair in data.edge_index.T.tolist()}


def test_without_seeds_all_edges_are_and_ids_are_reported_in_place_of_positions() -> None:
    data = homogeneous()
    batches = list(LinkNeighborLoader(data, [1], batch_size=60, input_id=torch.arange(NUM_EDGES) * 10))
    found = torch.cat([batch.n_id[batch.edge_label_index] for batch in batches], dim=1)
    assert torch.equal(found, data.edge_index)
    assert [batch.input_id[-1].item() for batch in batches] == [590, 1190, 1790, 1990]


def test_the_nodes_are_unique_and_sorted_and_their_neighborhood_follows() -> None:
    data, index = homogeneous(), torch.tensor([[5, 9, 5], [9, 2, 2]])
    batch = first(data, [-1, -1], edge_label_index=index)
    assert_is(batch, around(data, {"": [2, 5, 9]}, 2))
    assert torch.equal(batch.n_id[batch.edge_label_index], index)
    assert batch.input_id.tolist() == [0, 1, 2]
    assert_true(data, batch)


def test_labels_and_times_come_along() -> None:
    data, labels = homogeneous(), torch.arange(NUM_EDGES)
    batch = first(data, edge_label=labels, edge_label_time=labels, time_attr="time", shuffle=True)
    assert torch.equal(batch.edge_label, batch.input_id)
    assert torch.equal(batch.edge_label_time, batch.input_id)
    later = batch.time > batch.edge_label_time[batch.batch]
    seeds = len(batch.input_id) * 2
    assert not later[seeds:].any()


def test_binary_negatives_follow_the_positives_and_weights_say_which_nodes_are_drawn() -> None:
    data, weights = homogeneous(), torch.zeros(60)
    weights[[4, 8]] = 1.0
    batch = first(data, neg_sampling=NegativeSampling("binary", 1.5, src_weight=weights, dst_weight=weights))
    assert batch.edge_label.tolist() == [1.0] * 8 + [0.0] * 12
    assert batch.edge_label.dtype == torch.float32
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :8]], data.edge_index[:, :8])
    assert set(batch.n_id[batch.edge_label_index[:, 8:]].unique().tolist()) == {4, 8}
    assert values_of(first(data, neg_sampling=("binary", 1.5))) == values_of(first(data, neg_sampling_ratio=1.5))


def test_triplets() -> None:
    for amount, disjoint in [(1, False), (3, True)]:
        data = homogeneous()
        negatives = NegativeSampling("triplet", amount, strict=True)
        batch = first(data, neg_sampling=negatives, disjoint=disjoint)
        sources, wrong = batch.n_id[batch.src_index], batch.n_id[batch.dst_neg_index]
        assert torch.equal(torch.stack([sources, batch.n_id[batch.dst_pos_index]]), data.edge_index[:, :8])
        assert batch.dst_neg_index.shape == ((8,) if amount == 1 else (8, amount))
        assert joined(sources, wrong).isdisjoint(pairs(data))
        assert "edge_label_index" not in batch
        if disjoint:
            for place in (batch.src_index, batch.dst_pos_index, *batch.dst_neg_index.reshape(8, -1).T):
                assert batch.batch[place].tolist() == list(range(8))


def test_with_types() -> None:
    data = heterogeneous()
    batch = first(data, [-1, -1], edge_label_index=KIND)
    seeds = [data[KIND].edge_index[row, :8].unique().tolist() for row in (0, 1)]
    assert_is(batch, around(data, {"user": seeds[0], "item": seeds[1]}, 2))
    batch = first(data, edge_label_index=KIND, neg_sampling="binary", disjoint=True)
    assert batch[KIND].edge_label_index.tolist() == [list(range(16))] * 2
    assert batch["user"].batch[:16].tolist() == batch["item"].batch[:16].tolist() == list(range(8)) * 2


def test_seeds_may_be_of_an_edge_type_that_the_data_do_not_have() -> None:
    for numbers in [(), (2, 2)]:
        data, kind = heterogeneous(), ("user", "buys", "item")
        index = torch.stack([torch.arange(10), torch.arange(10) + 5])
        for options in (
            {},
            {"time_attr": "time", "edge_label_time": torch.full((10,), 40)},
            {"exclude_seed_edges": True},
            {"exclude_seed_edges": ("item", "liked_by", "user")},
        ):
            batch = first(data, numbers, edge_label_index=(kind, index), neg_sampling="binary", **options)
            sources, ends = batch[kind].edge_label_index
            assert batch["user"].n_id[sources[:8]].tolist() == index[0, :8].tolist()
            assert batch["item"].n_id[ends[:8]].tolist() == index[1, :8].tolist()
            assert batch[kind].edge_label.tolist() == [1] * 8 + [0] * 8
            assert (
                sum(table.edge_index.shape[1] for table in batch.edge_stores if "edge_index" in table) > 0
                or not numbers
            )
        same = ("user", "meets", "user")
        whole = first(data, numbers, edge_label_index=(same, index))
        without = first(data, numbers, edge_label_index=(same, index), exclude_seed_edges="reverse")
        assert values_of(whole) == values_of(without)


def test_the_options_of_sampling_hold_for_links_too() -> None:
    data = homogeneous()
    again = first(data, [30], replace=True)
    assert len(set(again.e_id.tolist())) < len(again.e_id)
    assert (first(data, [-1, -1], weight_attr="weight").weight > 0).all()
    inside = first(data, [2], subgraph_type="induced")
    ends = torch.isin(data.edge_index, inside.n_id).all(dim=0)
    assert inside.e_id.sort().values.tolist() == ends.nonzero().squeeze(1).tolist()
    assert values_of(first(data, is_sorted=True, filter_per_worker=True)) == values_of(first(data))


def test_functions_of_links_are_called_before_and_after_fetching() -> None:
    def shorten(output: Any) -> Any:
        output.node = output.node[:5]
        return output

    batch = first(homogeneous(), transform_sampler_output=shorten, transform=lambda batch: (batch.x, batch.n_id))
    assert batch[0].shape == (5, 3)
    assert torch.equal(batch[0][:, 0].long(), batch[1])


class Ends:
    """Returns the endpoints of the edges without any neighbours."""

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        module = import_pyg("torch_geometric.sampler", "tests")
        assert neg_sampling is None or isinstance(neg_sampling, module.NegativeSampling)
        nodes, places = torch.unique(torch.cat([index.row, index.col]), return_inverse=True)
        output = module.SamplerOutput(nodes, nodes[:0], nodes[:0], None)
        if neg_sampling is None:
            output.metadata = (index.input_id, places.view(2, -1), index.label, index.time)
        else:
            rows, columns = places.view(2, -1)
            output.metadata = (index.input_id, rows, columns, columns.flip(0), index.time)
        return output


def test_a_sampler_of_ones_own_is_called_for_the_edges_with_negatives_as_pygs_object() -> None:
    data = homogeneous()
    batch = next(iter(LinkLoader(data, Ends(), edge_label=torch.arange(200), batch_size=5)))
    assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, :5])
    assert batch.edge_label.tolist() == list(range(5))
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert "e_id" not in batch
    assert "edge_attr" not in batch
    batch = next(iter(LinkLoader(data, Ends(), neg_sampling="triplet", batch_size=5)))
    assert torch.equal(batch.dst_neg_index, batch.dst_pos_index.flip(0))


def test_a_backward_sampler_takes_links_and_plain_negatives() -> None:
    for data, edges, negatives, count in ((homogeneous(), None, "binary", 6), (heterogeneous(), (KIND, None), None, 3)):
        sampler = NeighborSampler(data, [2], sample_direction="backward")
        batch = next(iter(LinkLoader(data, sampler, edges, neg_sampling=negatives, batch_size=3)))
        assert (batch[KIND] if edges else batch).edge_label_index.shape == (2, count)


def test_what_pygs_loaders_take_is_taken() -> None:
    theirs = import_pyg("torch_geometric.sampler", "tests").NegativeSampling("triplet", 2, dst_weight=torch.ones(3))
    found = NegativeSampling.cast(theirs)
    assert found is not None
    assert (found.mode, found.amount, found.dst_weight is not None) == ("triplet", 2, True)
    for given in ("binary", ("binary", 1), {"mode": "binary"}, NegativeSampling("binary")):
        assert NegativeSampling.cast(given) == NegativeSampling("binary", 1)
    assert NegativeSampling.cast(None) is None
    assert found.is_triplet()
    assert NegativeSampling("binary", 0.5).is_binary()


def test_with_types_and_in_time_strict_negatives_exist_and_are_no_edges() -> None:
    for mode in ["binary", "triplet"]:
        data, kind = heterogeneous(), ("user", "likes", "item")
        edges = {tuple(pair) for pair in data[kind].edge_index.T.tolist()}
        times = torch.randint(20, 50, (120,), generator=torch.Generator().manual_seed(0))
        loader = LinkNeighborLoader(
            data, [2], kind, edge_label_time=times, time_attr="time", seed=0, batch_size=40,
            neg_sampling=NegativeSampling(mode, 2, strict=True),
        )  # fmt: skip
        count = 0
        for batch in loader:
            user, item = batch["user"], batch["item"]
            if mode == "triplet":
                sources, ends = user.src_index.repeat_interleave(2), item.dst_neg_index.reshape(-1)
                limits = user.seed_time.repeat_interleave(2)
            else:
                is_negative = batch[kind].edge_label == 0
                sources, ends = batch[kind].edge_label_index[:, is_negative]
                limits = batch[kind].edge_label_time[is_negative]
                assert (user.time[sources] <= limits).all()
            assert (item.time[ends] <= limits).all()
            pairs = set(zip(user.n_id[sources].tolist(), item.n_id[ends].tolist(), strict=True))
            assert pairs.isdisjoint(edges)
            assert len(sources) == 2 * len(batch[kind].input_id)
            count += len(sources)
        assert count == 240


SEVERAL: Any = {KIND: torch.arange(30), KNOWS: torch.arange(40) + 5, BACK: torch.arange(20) * 2}
"""Seed edges by type."""


def seeded(data: Any, **options: Any) -> Any:
    """Return a loader around seeds of several edge types, with the edges as `input_id`."""
    index = {kind: data[kind].edge_index[:, ids] for kind, ids in SEVERAL.items()}
    more = {"batch_size": 16, "seed": 0, "shuffle": True, "input_id": SEVERAL, **options}
    return LinkNeighborLoader(data, [-1, -1], index, **more)


def test_seeds_of_several_edge_types_come_with_their_types() -> None:
    for mode in [None, "binary", "triplet"]:
        for disjoint in [False, True]:
            data, seen = heterogeneous(), {kind: [] for kind in SEVERAL}  # type: ignore[var-annotated]
            data[KIND].edge_label_index = torch.zeros(2, 3, dtype=torch.int64)  # of other edges, which must be removed
            negatives = NegativeSampling(mode, 2, strict=True) if mode else None
            batches = list(seeded(data, neg_sampling=negatives, disjoint=disjoint, batch_size=5))
            for batch in batches:
                trees = []
                for kind in SEVERAL:
                    store, count = batch[kind], len(batch[kind].input_id)
                    ends = [batch[kind[0]], batch[kind[2]]]
                    seen[kind] += store.input_id.tolist()
                    if mode == "triplet":
                        assert "edge_label_index" not in store
                        rows = torch.stack([store.src_index, store.dst_pos_index])
                        assert store.dst_neg_index.shape == (count, 2)
                        wrong = torch.stack([store.src_index.repeat_interleave(2), store.dst_neg_index.reshape(-1)])
                    else:
                        rows, wrong = store.edge_label_index[:, :count], store.edge_label_index[:, count:]
                        assert mode is None or store.edge_label.tolist() == [1] * count + [0] * 2 * count
                    assert wrong.shape[1] == (2 * count if mode else 0)
                    found = torch.stack([end.n_id[row] for end, row in zip(ends, rows, strict=True)])
                    assert torch.equal(found, data[kind].edge_index[:, store.input_id])
                    drawn = zip(ends[0].n_id[wrong[0]].tolist(), ends[1].n_id[wrong[1]].tolist(), strict=True)
                    assert set(drawn).isdisjoint(pairs(data[kind]))
                    if disjoint:
                        assert torch.equal(ends[0].batch[rows[0]], ends[1].batch[rows[1]])
                        trees += ends[0].batch[rows[0]].tolist()
                assert not disjoint or sorted(trees) == list(range(5))
                assert_true(data, batch)
            assert {kind: sorted(ids) for kind, ids in seen.items()} == {
                kind: ids.tolist() for kind, ids in SEVERAL.items()
            }
            assert len({sum(len(batch[kind].input_id) > 0 for kind in SEVERAL) for batch in batches}) > 1


def test_a_batch_without_seeds_has_no_rows_of_any_type() -> None:
    for mode in [None, "binary", "triplet"]:
        for kinds in ([KIND], [KIND, KNOWS]):
            index = {kind: torch.zeros(2, 3, dtype=torch.int64) for kind in kinds}
            times: Any = {kind: torch.full((3,), 20) for kind in kinds}
            for more in ({}, {"edge_label_time": times, "time_attr": "time", "exclude_seed_edges": True}):
                loader = LinkNeighborLoader(
                    heterogeneous(), [2], index, batch_sampler=[[0], []], neg_sampling=mode, **more
                )
                _, batch = loader
                assert batch.num_nodes == batch.num_edges == 0
                assert [len(batch[kind].input_id) for kind in kinds] == [0] * len(kinds)


def test_one_edge_type_in_a_dict_is_as_without_it() -> None:
    data = heterogeneous()
    for options in ({}, {"neg_sampling": "triplet", "disjoint": True}, {"exclude_seed_edges": BACK}):
        assert values_of(first(data, edge_label_index={KIND: None}, **options)) == values_of(
            first(data, edge_label_index=KIND, **options)
        )
    both = {"edge_label_index": {"user:knows:user": None}, "exclude_seed_edges": {KNOWS: "reverse"}}
    alone = {"edge_label_index": KNOWS, "exclude_seed_edges": "reverse"}
    assert values_of(first(data, **both)) == values_of(first(data, **alone))


def test_of_triplets_too_no_edge_joins_the_ends() -> None:
    for amount in [1, 2]:
        data = heterogeneous()
        options: Any = {"neg_sampling": ("triplet", amount), "exclude_seed_edges": True, "batch_size": 2}
        batches = list(seeded(data, **options))
        for batch in batches:
            for kind in SEVERAL:
                store, (source, end) = batch[kind], (batch[name].n_id for name in kind[::2])
                ends = torch.cat([store.dst_pos_index[:, None], store.dst_neg_index.view(-1, amount)], dim=1)
                found = data[kind].edge_index[:, store.e_id]
                for row, own in zip(store.src_index.tolist(), ends, strict=True):
                    assert joined(source[row].expand(len(own)), end[own]).isdisjoint(joined(*found))
        assert any(len(batch[KIND].input_id) == 0 for batch in batches)


def test_around_seeds_of_several_edge_types_all_is_sampled_but_what_is_excluded() -> None:
    data = heterogeneous()
    for batch in seeded(data, exclude_seed_edges={KIND: BACK, KNOWS: "reverse", BACK: True}):
        ends = {kind: [batch[end].n_id[row] for end, row in zip(kind[::2], batch[kind].edge_label_index, strict=True)]
                for kind in SEVERAL}  # fmt: skip
        gone: dict[Any, set[tuple[int, ...]]] = {kind: joined(*of_kind) for kind, of_kind in ends.items()}
        gone[BACK] |= {pair[::-1] for pair in gone[KIND]}
        gone[KNOWS] |= {pair[::-1] for pair in gone[KNOWS]}
        nodes: dict[str, list[torch.Tensor]] = {"user": [], "item": []}
        for kind, (sources, destinations) in ends.items():
            nodes[kind[0]].append(sources)
            nodes[kind[2]].append(destinations)
        whole = around(data, {kind: sorted(set(torch.cat(parts).tolist())) for kind, parts in nodes.items()}, 2)
        for kind, edges in whole.edges.items():
            kept = [edge for _, _, edge in edges if tuple(data[kind].edge_index[:, edge].tolist()) not in gone[kind]]
            assert batch[kind].e_id.tolist() == kept


def test_labels_and_times_of_several_edge_types_are_those_of_their_seeds() -> None:
    data = heterogeneous()
    labels = {kind: ids % 3 + (kind == KNOWS) for kind, ids in SEVERAL.items()}
    times = {kind: 20 + ids % 7 for kind, ids in SEVERAL.items()}
    loader = seeded(
        data, edge_label=labels, edge_label_time=times, time_attr="time", neg_sampling="binary",
        time_window={KIND: 9, KNOWS: 100, BACK: 5},
    )  # fmt: skip
    for batch in loader:
        for kind in SEVERAL:
            store, count = batch[kind], len(batch[kind].input_id)
            # A label of 0 means a negative, so the labels of all types are raised.
            assert torch.equal(store.edge_label[:count], store.input_id % 3 + (kind == KNOWS) + 1)
            assert torch.equal(store.edge_label_time, (20 + store.input_id % 7).repeat(2))
            trees = batch[kind[0]].batch[store.edge_label_index[0]]
            limits = dict(zip(trees.tolist(), store.edge_label_time.tolist(), strict=True))
            for node_type in ("user", "item"):
                table, seeds = batch[node_type], batch[node_type].num_sampled_nodes[0]
                for tree, time in zip(table.batch[seeds:].tolist(), table.time[seeds:].tolist(), strict=True):
                    assert time <= limits.get(tree, time)
