import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests import pipelines
from tests.digests import assert_same, digest
from tests.ops.chance import check_counts, check_unrelated
from tests.pipelines import random_edges

EDGES = torch.tensor([[5, 6], [7, 8]])


class Shifted(gf.NegativeSampler):
    """Negatives that are known beforehand: destinations one higher."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        shift = torch.tensor([0, 1 if etype is None else 10])
        negatives = (seeds + shift).repeat_interleave(self.negative_ratio, dim=0)
        return gf.with_negatives(torch.cat([seeds, negatives]), len(seeds))


class Drawn(gf.NegativeSampler):
    """Negatives from a key, as `draw_key` gives it."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        generator = torch.Generator().manual_seed(gf.draw_key())
        drawn = torch.randint(1000, seeds.shape, generator=generator)
        return gf.with_negatives(torch.cat([seeds, drawn]), len(seeds))


def run(stage: type[Any], ratio: int, seeds: Any, key: Key | None = None, **fields: Any) -> gf.MiniBatch:
    result = stage(gf.IterableSource([]), ratio)(gf.MiniBatch(seeds=seeds, key=key, **fields))
    assert isinstance(result, gf.MiniBatch)
    return result


def test_what_the_hook_returns_becomes_seeds_labels_and_indexes() -> None:
    batch = run(Shifted, 2, EDGES, labels=torch.ones(2), indexes=torch.ones(2))
    assert_same(batch.seeds, torch.tensor([[5, 6], [7, 8], [5, 7], [5, 7], [7, 9], [7, 9]]))
    assert_same(batch.labels, torch.tensor([1.0, 1, 0, 0, 0, 0]))
    assert_same(batch.indexes, torch.tensor([0, 1, 0, 0, 1, 1]))


def test_types_are_gone_through_apart() -> None:
    batch = run(Shifted, 1, {"a:r:b": EDGES, "a:s:b": EDGES[:1]})
    assert_same(
        batch.seeds,
        {
            "a:r:b": torch.tensor([[5, 6], [7, 8], [5, 16], [7, 18]]),
            "a:s:b": torch.tensor([[5, 6], [5, 16]]),
        },
    )
    assert_same(batch.labels, {"a:r:b": torch.tensor([1.0, 1, 0, 0]), "a:s:b": torch.tensor([1.0, 0])})
    assert_same(batch.indexes, {"a:r:b": torch.tensor([0, 1, 0, 1]), "a:s:b": torch.tensor([0, 0])})


def test_a_hook_draws_by_the_mini_batch_and_apart_for_each_type() -> None:
    seeds = {"a:r:b": EDGES.repeat(9, 1), "a:s:b": EDGES.repeat(9, 1)}
    first = run(Drawn, 1, seeds, Key(0, 0, 1))
    assert_same(run(Drawn, 1, seeds, Key(0, 0, 1)).seeds, first.seeds)
    assert digest(run(Drawn, 1, seeds, Key(0, 0, 2)).seeds) != digest(first.seeds)
    assert isinstance(first.seeds, dict)
    assert first.seeds["a:r:b"].tolist() != first.seeds["a:s:b"].tolist()


def test_there_may_be_no_positives() -> None:
    none = torch.empty(0, 2, dtype=torch.int64)
    seeds, labels, indexes = gf.with_negatives(none, 0)
    assert_same((seeds, labels, indexes), (none, torch.empty(0), torch.empty(0, dtype=torch.int64)))
    assert_same(run(Shifted, 3, {}).seeds, {})


@pytest.mark.parametrize("ratio", [0, -1, 1.5, True, "2"])
def test_a_ratio_that_is_none_is_named(ratio: Any) -> None:
    message = f"Negative_ratio should be positive Integer: negative_ratio is {ratio!r}; give how many negatives"
    with pytest.raises(ValueError, match=re.escape(message)):
        Shifted(gf.IterableSource([]), ratio)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="the mini-batch has no seeds; name them in the item set"):
        run(Shifted, 1, None)
    with pytest.raises(NotImplementedError, match="NegativeSampler must write _sample_with_etype"):
        next(iter(gf.IterableSource([gf.MiniBatch(seeds=EDGES)]).sample_negative(1)))


def test_negatives_behind_the_sampler_are_refused_where_they_would_have_no_nodes() -> None:
    graph = gf.from_coo(torch.tensor([[1, 2, 3], [0, 0, 1]]), 4)
    pipe = gf.ItemSampler(gf.ItemSet(torch.tensor([[1, 0], [3, 1]]), names="seeds"), batch_size=2)
    right = pipe.sample_uniform_negative(graph, 1).sample_neighbor(graph, fanouts=[2])
    (batch,) = right
    assert len(batch.labels) == len(batch.compacted_seeds) == 4
    for wrong in (
        pipe.sample_neighbor(graph, fanouts=[2]).sample_uniform_negative(graph, 1),
        pipe.sample_in_subgraph(graph).sample_uniform_negative(graph, 1),
        Shifted(pipe.sample_per_layer(graph.sample_neighbors, 2), 1),
    ):
        for num_workers in (0, 2):
            with (
                gf.DataLoader(wrong, num_workers=num_workers) as loader,
                pytest.raises(
                    ValueError, match=r"is sampled already, .* lack the negatives; put \w+ before the sampler"
                ),
            ):
                list(loader)


EDGES = random_edges(50, 50, 200, 4)


def pipe(mode: str, amount: float = 1, **options: object) -> gf.Datapipe:
    graph = gf.from_coo(EDGES, 50, node_attributes={"time": torch.arange(50)})
    items = gf.ItemSet((EDGES.T, torch.arange(200) % 50), names=("seeds", "timestamp"))
    query = gf.NegativeQuery(**options)  # type: ignore[arg-type]
    return gf.ItemSampler(items, 40, shuffle=True).sample_negative_pairs(graph, mode, amount, query)  # type: ignore[arg-type]


def test_binary_negatives_have_random_ends() -> None:
    batch = next(iter(pipe("binary", 0.3)))
    assert len(batch.seeds) == len(batch.labels) == 52
    assert batch.labels.tolist() == [1.0] * 40 + [0.0] * 12
    assert batch.indexes.tolist() == [*range(40), *range(12)]


def test_triplets_keep_their_source() -> None:
    batch = next(iter(pipe("triplet", 3, strict=True)))
    assert torch.equal(batch.seeds[40:, 0], batch.seeds[:40, 0].repeat(3))
    assert {tuple(pair) for pair in batch.seeds[40:].tolist()}.isdisjoint({tuple(pair) for pair in EDGES.T.tolist()})


def test_times_are_those_of_the_positives() -> None:
    for mode in ("binary", "triplet"):
        for batch in pipe(mode, 2, time_name="time"):
            own = batch.seeds[40:] if mode == "binary" else batch.seeds[40:, 1:]
            assert (own <= batch.timestamp.repeat(2)[:, None]).all()


def test_each_type_has_draws_of_its_own() -> None:
    kinds = ("a:r:b", "a:s:b")
    graph = gf.from_coo(dict.fromkeys(kinds, EDGES), {"a": 50, "b": 50})
    items = gf.HeteroItemSet({kind: gf.ItemSet(EDGES.T, names="seeds") for kind in kinds})
    batch = next(iter(gf.ItemSampler(items, 400).sample_negative_pairs(graph, "triplet")))
    first, second = (batch.seeds[kind][200:] for kind in kinds)
    assert torch.equal(first[:, 0], second[:, 0])
    assert not torch.equal(first[:, 1], second[:, 1])


def test_wrong_arguments_are_refused() -> None:
    for mode, amount, text in (("some", 1, "mode must be"), ("binary", 0, "amount must"), ("triplet", 0.5, "whole")):
        with pytest.raises(ValueError, match=text):
            pipe(mode, amount)
    graph = gf.from_coo(EDGES, 50)
    nodes = gf.ItemSampler(gf.ItemSet(5, names="seeds"), 5).sample_negative_pairs(graph, "binary")
    with pytest.raises(ValueError, match="must be edges, shape"):
        next(iter(nodes))


GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50)
LIKES, KNOWS = "user:likes:item", "user:knows:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 10, 100, 1), KNOWS: pipelines.random_edges(20, 20, 100, 2)},
    {"user": 20, "item": 10},
)
EDGES = torch.tensor([[4, 9], [9, 1], [3, 3]])
SEVERAL = {LIKES: EDGES, KNOWS: EDGES[:2]}


def run(graph: gf.SamplingGraph, seeds: Any, ratio: int = 2, key: Key | None = None) -> Any:
    stage: Any = gf.IterableSource([]).sample_uniform_negative(graph, ratio)
    return stage(gf.MiniBatch(seeds=seeds, key=key or Key(0, 0, 0)))


def check_layout(positives: torch.Tensor, ratio: int, seeds: Any, labels: Any, indexes: Any, size: int) -> None:
    """Positives, then for each its negatives, with its source and any destination of the graph."""
    count = len(positives)
    assert_same(seeds[:count], positives)
    assert_same(seeds[count:, 0], positives[:, 0].repeat_interleave(ratio))
    assert len(seeds) == count * (1 + ratio)
    assert ((seeds[:, 1] >= 0) & (seeds[:, 1] < size)).all()
    assert_same(labels, torch.cat([torch.ones(count), torch.zeros(count * ratio)]))
    assert_same(indexes, torch.cat([torch.arange(count), torch.arange(count).repeat_interleave(ratio)]))


@pytest.mark.parametrize("ratio", [1, 3])
def test_negatives_follow_the_positives(ratio: int) -> None:
    batch = run(GRAPH, EDGES, ratio)
    check_layout(EDGES, ratio, batch.seeds, batch.labels, batch.indexes, 50)


def test_each_type_is_drawn_from_its_own_destinations() -> None:
    batch: Any = run(TYPED, SEVERAL, 40)
    for kind, size in ((LIKES, 10), (KNOWS, 20)):
        check_layout(SEVERAL[kind], 40, batch.seeds[kind], batch.labels[kind], batch.indexes[kind], size)
        assert len(batch.seeds[kind][:, 1].unique()) == size


def test_draws_follow_the_key_and_the_type_but_no_order_of_types() -> None:
    first: Any = run(TYPED, SEVERAL, 9).seeds
    turned: Any = run(TYPED, dict(reversed(SEVERAL.items())), 9).seeds
    assert_same(turned[LIKES], first[LIKES])
    assert_same(turned[KNOWS], first[KNOWS])
    keys = [Key(0, 0, 0), Key(1, 0, 0), Key(0, 1, 0), Key(0, 0, 1)]
    assert len({digest(run(GRAPH, EDGES, 9, key).seeds) for key in keys}) == 4


def test_two_samplers_in_a_chain_draw_apart() -> None:
    source = gf.IterableSource([gf.MiniBatch(seeds=EDGES.repeat(50, 1), key=Key(0, 0, 0))])
    once = source.sample_uniform_negative(GRAPH, 1)
    (first,), (second,) = list(once), list(once.sample_uniform_negative(GRAPH, 1))
    assert first.seeds[150:].tolist() != second.seeds[300:450].tolist()


def test_destinations_are_uniform_and_unrelated() -> None:
    graph = gf.from_coo(torch.tensor([[0], [1]]), num_nodes=12)
    batch: Any = run(graph, torch.zeros(15_000, 2, dtype=torch.int64), 2)
    drawn = batch.seeds[15_000:, 1]
    check_counts(torch.bincount(drawn, minlength=12), torch.ones(12))
    check_unrelated(drawn[::2], drawn[1::2], 12)


def test_the_dtype_is_that_of_the_seeds() -> None:
    batch: Any = run(GRAPH, EDGES.int())
    assert batch.seeds.dtype == torch.int32
    assert_same(batch.seeds.long(), run(GRAPH, EDGES).seeds)


def test_negatives_reach_the_layers() -> None:
    items = gf.ItemSampler(gf.ItemSet(EDGES, names="seeds"), batch_size=3)
    (batch,) = items.sample_uniform_negative(GRAPH, 2).sample_neighbor(GRAPH, [2])
    columns = batch.sampled_subgraphs[0].original_column_node_ids
    assert_same(columns[batch.compacted_seeds], batch.seeds)


def test_a_relation_that_is_not_sampled_has_negatives_by_its_node_types() -> None:
    batch: Any = run(TYPED, {"user:buys:item": EDGES})
    seeds, labels, indexes = (part["user:buys:item"] for part in (batch.seeds, batch.labels, batch.indexes))
    check_layout(EDGES, 2, seeds, labels, indexes, 10)


def test_a_graph_gives_them_without_a_pipeline() -> None:
    """As in GraphBolt: no type, or the empty one, takes the ids of all nodes together."""
    for kind in (None, ""):
        drawn = TYPED.sample_negative_edges_uniform(kind, EDGES.repeat(40, 1), 2)
        assert drawn[120:, 1].max() >= 20
    fixed = [GRAPH.sample_negative_edges_uniform(None, EDGES, 5, key=key) for key in (1, 1, 2)]
    assert_same(fixed[0], fixed[1])
    assert fixed[0].tolist() != fixed[2].tolist()


@pytest.mark.parametrize(
    ("error", "graph", "seeds", "message"),
    [
        (ValueError, GRAPH, torch.arange(4), "Only tensor with shape N*2 is supported for negative sampling, but got"),
        (ValueError, GRAPH, torch.tensor([[0, 50]]), "destinations of node_pairs must lie in 0 .. 49, but holds 50"),
        (ValueError, TYPED, {LIKES: torch.tensor([[20, 0]])}, "sources of node_pairs must lie in 0 .. 19, but holds"),
        (KeyError, TYPED, {"user:has:shop": EDGES}, "edge_type is 'user:has:shop', but the graph has the node types ["),
        (KeyError, GRAPH, {"user:has:item": EDGES}, "edge_type is 'user:has:item', but the graph has no types"),
    ],
)
def test_seeds_that_do_not_fit_are_named(
    error: type[Exception], graph: gf.SamplingGraph, seeds: Any, message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        run(graph, seeds)


def test_the_ratio_is_checked_when_the_pipeline_is_written() -> None:
    with pytest.raises(ValueError, match="Negative_ratio should be positive Integer: negative_ratio is 0"):
        gf.IterableSource([]).sample_uniform_negative(GRAPH, 0)
