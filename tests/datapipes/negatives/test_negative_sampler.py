import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests.digests import assert_same, digest

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
