from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.cooperative import cooperate

GRAPH = gf.from_coo(([0, 1, 2], [1, 2, 0]), num_nodes=3)
STORE = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.zeros(3, 1))})
PLACE: dict[str, Any] = {"rank": 1, "world_size": 2}


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperate, "find_rank", lambda: (1, 2))


def seeds(count: int = 8, **options: Any) -> gf.Datapipe:
    return gf.DistributedItemSampler(gf.ItemSet(count, names="seeds"), 2, **PLACE, **options)


def joint(pipe: gf.Datapipe, **options: Any) -> gf.Datapipe:
    sampled = pipe.sample_neighbor(GRAPH, [2], cooperative=True)
    return sampled.fetch_feature(STORE, ["x"], cooperative=True, **options)


def test_a_single_rank_works_as_without_it() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 2)
    loader = gf.DataLoader(joint(pipe), 0, seed=0)
    assert "joint" not in loader.explain()
    plain = gf.DataLoader(pipe.sample_neighbor(GRAPH, [2]), 0, seed=0)
    assert [batch.input_nodes.tolist() for batch in loader] == [batch.input_nodes.tolist() for batch in plain]


@pytest.mark.usefixtures("two_ranks")
def test_the_plan_shows_what_ranks_do_together() -> None:
    text = gf.DataLoader(joint(seeds()), 2, seed=0).explain()
    assert "JointSampler" in text
    assert "JointFetcher" in text
    assert "Ranks make joint mini-batches: each samples and fetches the nodes that it owns, once for all ranks" in text


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize(
    ("pipe", "options", "message"),
    [
        (lambda: joint(gf.ItemSampler(gf.ItemSet(8, names="seeds"), 2)), {}, "begin with a DistributedItemSampler"),
        (lambda: joint(seeds(6)), {}, "3 are shared by 2; give the DistributedItemSampler drop_uneven_inputs=True"),
        (lambda: joint(seeds(6, pad_uneven_inputs=True)), {}, "drop_uneven_inputs=True"),
        (lambda: joint(seeds()), {"worker": "process"}, "worker processes are no ranks; use worker='thread'"),
        (lambda: joint(seeds()), {"servers": ["127.0.0.1:1"], "num_workers": None}, "sampling servers are no ranks"),
        (
            lambda: seeds().sample_neighbor(GRAPH, [2]).fetch_feature(STORE, ["x"], cooperative=True),
            {},
            "FeatureFetcher has cooperative=True, but no sampler before it has",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(pipe: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gf.DataLoader(pipe(), **{"num_workers": 1, **options}, seed=0)


def test_ranks_of_another_group_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperate, "find_rank", lambda: (0, 3))
    with pytest.raises(ValueError, match="needs the process group's ranks, but rank and world_size are 1 and 2"):
        gf.DataLoader(joint(seeds()), 1, seed=0)
