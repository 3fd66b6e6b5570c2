"""Negative samplers: the base class for users, pairs, and uniform destinations."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest
from tests.kinds.pipelines import random_edges

PAIRS = torch.tensor([[5, 6], [7, 8]])


class Shifted(gf.NegativeSampler):
    """Negatives that are known in advance: destinations one higher."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        shift = torch.tensor([0, 1 if etype is None else 10])
        negatives = (seeds + shift).repeat_interleave(self.negative_ratio, dim=0)
        return gf.with_negatives(torch.cat([seeds, negatives]), len(seeds))


class Drawn(gf.NegativeSampler):
    """Negatives drawn with a key from `draw_key`."""

    def _sample_with_etype(self, seeds: torch.Tensor, etype: str | None = None) -> Any:
        generator = torch.Generator().manual_seed(gf.draw_key())
        drawn = torch.randint(1000, seeds.shape, generator=generator)
        return gf.with_negatives(torch.cat([seeds, drawn]), len(seeds))


def run(stage: type[Any], ratio: int, seeds: Any, key: Key | None = None, **fields: Any) -> gf.MiniBatch:
    result = stage(gf.IterableSource([]), ratio)(gf.MiniBatch(seeds=seeds, key=key, **fields))
    assert isinstance(result, gf.MiniBatch)
    return result


def test_what_the_hook_returns_becomes_seeds_labels_and_indexes() -> None:
    batch = run(Shifted, 2, PAIRS, labels=torch.ones(2), indexes=torch.ones(2))
    assert_same(batch.seeds, torch.tensor([[5, 6], [7, 8], [5, 7], [5, 7], [7, 9], [7, 9]]))
    assert_same(batch.labels, torch.tensor([1.0, 1, 0, 0, 0, 0]))
    assert_same(batch.indexes, torch.tensor([0, 1, 0, 0, 1, 1]))


def test_types_are_gone_through_apart() -> None:
    batch = run(Shifted, 1, {"a:r:b": PAIRS, "a:s:b": PAIRS[:1]})
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
    seeds = {"a:r:b": PAIRS.repeat(9, 1), "a:s:b": PAIRS.repeat(9, 1)}
    first = run(Drawn, 1, seeds, Key(0, 0, 1))
    assert_same(run(Drawn, 1, seeds, Key(0, 0, 1)).seeds, first.seeds)
    assert digest(run(Drawn, 1, seeds, Key(0, 0, 2)).seeds) != digest(first.seeds)
    assert first.seeds["a:r:b"].tolist() != first.seeds["a:s:b"].tolist()


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
                    ValueError, match=r"is already sampled, .* lack the negatives; put \w+ before the sampler"
                ),
            ):
                list(loader)


LINKS = random_edges(50, 50, 200, 4)


def pipe(mode: str, amount: float = 1, **options: object) -> gf.Datapipe:
    graph = gf.from_coo(LINKS, 50, node_attributes={"time": torch.arange(50)})
    items = gf.ItemSet((LINKS.T, torch.arange(200) % 50), names=("seeds", "timestamp"))
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
    assert {tuple(pair) for pair in batch.seeds[40:].tolist()}.isdisjoint({tuple(pair) for pair in LINKS.T.tolist()})


def test_each_type_has_draws_of_its_own() -> None:
    kinds = ("a:r:b", "a:s:b")
    graph = gf.from_coo(dict.fromkeys(kinds, LINKS), {"a": 50, "b": 50})
    items = gf.HeteroItemSet({kind: gf.ItemSet(LINKS.T, names="seeds") for kind in kinds})
    batch = next(iter(gf.ItemSampler(items, 400).sample_negative_pairs(graph, "triplet")))
    first, second = (batch.seeds[kind][200:] for kind in kinds)
    assert torch.equal(first[:, 0], second[:, 0])
    assert not torch.equal(first[:, 1], second[:, 1])


LIKES, KNOWS = "user:likes:item", "user:knows:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 10, 100, 1), KNOWS: pipelines.random_edges(20, 20, 100, 2)},
    {"user": 20, "item": 10},
)
EDGES = torch.tensor([[4, 9], [9, 1], [3, 3]])
SEVERAL = {LIKES: EDGES, KNOWS: EDGES[:2]}


def draw(graph: gf.SamplingGraph, seeds: Any, ratio: int = 2, key: Key | None = None) -> Any:
    stage: Any = gf.IterableSource([]).sample_uniform_negative(graph, ratio)
    return stage(gf.MiniBatch(seeds=seeds, key=key or Key(0, 0, 0)))


def test_negatives_follow_their_positives_and_draws_follow_the_type() -> None:
    graph = gf.from_coo(LINKS, 50)
    for ratio in (1, 3):
        batch = draw(graph, EDGES, ratio)
        rows = torch.cat([torch.arange(3), torch.arange(3).repeat_interleave(ratio)])
        assert_same(batch.seeds[:3], EDGES)
        assert_same([batch.seeds[:, 0], batch.indexes], [EDGES[rows, 0], rows])
        assert_same(batch.labels, (torch.arange(len(rows)) < 3).float())
        assert ((batch.seeds >= 0) & (batch.seeds < 50)).all()
    first: Any = draw(TYPED, SEVERAL, 9).seeds
    turned: Any = draw(TYPED, dict(reversed(SEVERAL.items())), 9).seeds
    assert_same(turned[LIKES], first[LIKES])
    assert_same(turned[KNOWS], first[KNOWS])
    alike = draw(TYPED, {KNOWS: EDGES, "user:likes:user": EDGES}, 9).seeds
    assert alike[KNOWS].tolist() != alike["user:likes:user"].tolist()
