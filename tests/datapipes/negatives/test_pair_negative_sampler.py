import pytest
import torch

import graphfeed as gf
from tests.pipelines import random_edges

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
