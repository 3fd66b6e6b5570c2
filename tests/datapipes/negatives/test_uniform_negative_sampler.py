import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests import pipelines
from tests.digests import assert_same, digest
from tests.ops.chance import check_counts, check_unrelated

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
