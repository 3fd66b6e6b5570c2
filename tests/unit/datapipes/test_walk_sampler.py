"""The stage that walks: shapes, seeds of all kinds, and what it refuses."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import WalkRequest, to_coo
from tests.kinds import golden_pipelines
from tests.kinds.digests import assert_same, digests
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda, device_of

LIKES, LIKED = "user:likes:item", "item:liked_by:user"
OPTIONS: dict[str, dict[str, Any]] = {
    "uniform": {"per_seed": 3, "edge_ids": True},
    "weighted, stopping": {"probs_name": "weight", "stop": 0.2},
    "node2vec": {"p": 0.25, "q": 4.0},
    "node2vec by weight": {"p": 4.0, "q": 0.5, "probs_name": "weight", "per_seed": 2},
}


def walking(graph: gf.SamplingGraph, **options: Any) -> gf.Datapipe:
    return golden_pipelines.nodes().sample_walks(graph, 6, **options)


def ends_by_id(graph: gf.FusedCSCSamplingGraph) -> dict[Any, torch.Tensor]:
    """Return the source and destination of each edge, by type."""
    return {kind: torch.stack([own.sources, own.destinations]) for kind, own in to_coo(graph).items()}


def of(minibatches: Any) -> list[Any]:
    return [[batch.seeds, batch.walks, batch.walk_edge_ids] for batch in minibatches]


def test_walks_are_the_same_for_any_workers_and_in_a_file(tmp_path: Path) -> None:
    graph = golden_pipelines.untyped()
    graph.save(tmp_path / "graph")
    for options in OPTIONS.values():
        wanted = of(walking(graph, **options).with_seed(3))
        for source, workers in ((graph, 2), (gf.load_graph(tmp_path / "graph"), 0)):
            with gf.DataLoader(walking(source, **options), num_workers=workers, seed=3) as loader:
                assert_same(of(loader), wanted)


@pytest.mark.slow
def test_walks_are_the_same_in_two_processes() -> None:
    graph = golden_pipelines.untyped()
    for options in (OPTIONS["uniform"], OPTIONS["node2vec by weight"]):
        pipe = walking(graph, **options)
        with gf.DataLoader(pipe, num_workers=2, worker="process", seed=3) as loader:
            assert_same(of(loader), of(pipe.with_seed(3)))


def test_given_numbers_of_walks_are_checked_and_remain_unknown_ids() -> None:
    graph, seeds, request = golden_pipelines.untyped(), torch.tensor([0]), WalkRequest(2)
    for wrong in (-1, 1 << 23):
        with pytest.raises(ValueError, match=rf"numbers must be in 0 \.\. 8388607, but holds {wrong}"):
            graph.sample_walks(seeds, request, key=1, numbers=torch.tensor([wrong]))
    numbers = torch.tensor([graph.num_nodes])
    graph.sample_walks(seeds, request, key=1, numbers=numbers)
    # Ids that are taken for checked ones would be read out of bounds.
    with pytest.raises(ValueError, match=r"seeds must be in 0 \.\. "):
        graph.sample_walks(numbers, request, key=1)


def test_walks_of_a_mini_batch_are_those_of_its_parts() -> None:
    graph, key, seeds = golden_pipelines.untyped(), gf.Key(1, 2, 3), torch.arange(0, 600, 3)
    for options in OPTIONS.values():
        whole, *parts = (
            next(iter(gf.IterableSource([gf.MiniBatch(seeds=own, key=key)]).sample_walks(graph, 6, **options))).walks
            for own in (seeds, seeds[:70], seeds[70:])
        )
        assert torch.equal(whole, torch.cat(parts))
    more = gf.IterableSource([gf.MiniBatch(seeds=seeds, key=key)]).sample_walks(graph, 6, per_seed=5)
    assert torch.equal(next(iter(more)).walks[:, :3], next(iter(more.changed(per_seed=3))).walks)


def test_each_step_is_the_edge_with_its_id() -> None:
    graph = golden_pipelines.untyped()
    ends = ends_by_id(graph)[None]
    for options in OPTIONS.values():
        for batch in walking(graph, **{**options, "edge_ids": True}):
            assert batch.walks.shape[1:] == (options.get("per_seed", 1), 7)
            assert torch.equal(batch.walks[:, 0, 0], batch.seeds)
            went = batch.walk_edge_ids >= 0
            steps = torch.stack([batch.walks[..., 1:][went], batch.walks[..., :-1][went]])
            assert torch.equal(steps, ends[:, batch.walk_edge_ids[went]])
            assert torch.equal(went, batch.walks[..., 1:] >= 0)


def test_walks_along_the_edges_are_those_of_the_reversed_graph() -> None:
    graph = golden_pipelines.untyped()
    ends = ends_by_id(graph)[None]
    batch = next(iter(walking(graph.reversed(), edge_ids=True)))
    went = batch.walk_edge_ids >= 0
    assert torch.equal(
        torch.stack([batch.walks[..., :-1][went], batch.walks[..., 1:][went]]), ends[:, batch.walk_edge_ids[went]]
    )
    typed = golden_pipelines.typed()
    back = typed.reversed().reversed()
    assert back.edge_types == typed.edge_types
    assert_same(ends_by_id(back), ends_by_id(typed))
    assert_same(ends_by_id(typed.reversed())["item:likes:user"], ends_by_id(typed)[LIKES].flip(0))


def test_a_metapath_goes_back_and_forth_from_one_type() -> None:
    typed, ends = golden_pipelines.typed(), ends_by_id(golden_pipelines.typed())
    items = gf.HeteroItemSet({"item": gf.ItemSet(torch.arange(300), names="seeds")})
    pipe = gf.ItemSampler(items, 64).sample_walks(typed, 3, etypes=[LIKES, ("item", "liked_by", "user")], edge_ids=True)
    for batch in pipe:
        for step, kind in enumerate((LIKES, LIKED, LIKES)):
            walks, edges = batch.walks[:, 0], batch.walk_edge_ids[:, 0, step]
            went = edges >= 0
            steps = torch.stack([walks[went, step + 1], walks[went, step]])
            assert torch.equal(steps, ends[kind][:, edges[went]])


def test_edges_as_seeds_start_a_walk_from_each_endpoint() -> None:
    pairs = gf.MiniBatch(seeds=torch.tensor([[4, 9], [9, 1]]), key=gf.Key(0, 0, 0))
    nodes = gf.MiniBatch(seeds=torch.tensor([4, 9, 1]), key=gf.Key(0, 0, 0))
    found = [next(iter(gf.IterableSource([own]).sample_walks(golden_pipelines.untyped(), 4))) for own in (pairs, nodes)]
    assert_same(found[0].walks, found[1].walks)
    assert_same(found[0].compacted_seeds, torch.tensor([[0, 1], [1, 2]]))


def test_what_runs_on_the_cpu_only_is_refused_on_a_gpu(cuda: Cuda) -> None:
    with cuda.running():
        graph, seeds = golden_pipelines.untyped().to(device_of(cuda)), torch.arange(3).to(device_of(cuda))
        check_refused([
            (lambda: graph.sample_walks(seeds, WalkRequest(2, p=2), key=1), ValueError, "with p and q run on the CPU"),
            (lambda: graph.page_rank(seeds, 2), ValueError, "run on the CPU, but .*put copy_to after the stage"),
            (lambda: graph.page_rank(torch.arange(3), 2), ValueError, "put copy_to after the stage"),
        ])  # fmt: skip


def test_walks_and_visits_on_a_gpu_are_those_on_the_cpu(cuda: Cuda) -> None:
    users = gf.HeteroItemSet({"user": gf.ItemSet(200, names="seeds")})

    def pipes(plain: gf.SamplingGraph, typed: gf.SamplingGraph, device: Any) -> dict[str, gf.Datapipe]:
        nodes, by_type = golden_pipelines.nodes().copy_to(device), gf.ItemSampler(users, 64).copy_to(device)
        return {
            "uniform": nodes.sample_walks(plain, 6, per_seed=3, edge_ids=True),
            "weighted, stopping": nodes.sample_walks(plain, 6, probs_name="weight", stop=0.2),
            "by type": by_type.sample_walks(typed, 4, etypes=[LIKED, LIKES], edge_ids=True),
            "visits": nodes.sample_by_visits(plain, [3, 4], walks=9, probs_name="weight"),
            "visits by type": by_type.sample_by_visits(typed, [4], walks=7, length=2, etypes=[LIKED, LIKES]),
        }

    graphs = golden_pipelines.untyped(), golden_pipelines.typed()
    wanted = {name: digests(pipe.with_seed(3)) for name, pipe in pipes(*graphs, "cpu").items()}
    with cuda.running():
        plain, typed = (graph.to(device_of(cuda)) for graph in graphs)
        for name, pipe in pipes(plain, typed, device_of(cuda)).items():
            assert digests(batch.to("cpu") for batch in pipe.with_seed(3)) == wanted[name], name


@pytest.mark.parametrize("window", [1, 2, 9])
def test_pairs_are_near_on_a_walk(window: int) -> None:
    pipe = walking(golden_pipelines.untyped(), per_seed=2, stop=0.2)
    for walked, paired in zip(pipe.with_seed(1), pipe.skip_gram(window).with_seed(1), strict=True):
        wanted = [
            (walk[one], walk[other])
            for walk in walked.walks.flatten(0, 1).tolist()
            for one in range(7)
            for other in range(7)
            if 1 <= abs(one - other) <= window and walk[one] >= 0 and walk[other] >= 0
        ]
        assert sorted(map(tuple, paired.seeds.tolist())) == sorted(wanted)
        assert paired.labels is None
    batch = next(iter(pipe.skip_gram(window).sample_uniform_negative(golden_pipelines.untyped(), 2)))
    assert len(batch.seeds) == 3 * int(batch.labels.sum())


def test_what_is_wrong_is_named() -> None:
    source, plain, typed = gf.IterableSource([]), golden_pipelines.untyped(), golden_pipelines.typed()
    walk, by_type = partial(source.sample_walks, plain, 3), partial(source.sample_walks, typed, 3)
    seeds = gf.IterableSource([gf.MiniBatch(seeds={"user": torch.tensor([0])})])
    check_refused([
        (lambda: source.sample_walks(plain, -1), ValueError, "length must be 0 or more, but is -1"),
        (lambda: walk(per_seed=0), ValueError, "per_seed must be 1 or more, but is 0"),
        (lambda: walk(p=0), ValueError, "p must be above 0, but is 0"),
        (lambda: walk(stop=1.5), ValueError, r"stop must be in 0 \.\. 1, but is 1\.5"),
        (lambda: walk(stop=[0.5]), ValueError, "stop must be a number, or 3: one per step, but has 1"),
        (lambda: walk(probs_name="x"), KeyError, "Edge attribute x does not exist"),
        (lambda: walk(etypes=[LIKES]), ValueError, "has no types; leave them out|etypes have 'user:likes:item' after"),
        (lambda: by_type(), ValueError, "on a graph with types need the edge type of each step; give etypes"),
        (lambda: by_type(etypes=[LIKES]), ValueError, "'user' is not 'item'"),
        (lambda: by_type(etypes=["user:like:item", LIKED]), KeyError, "did you mean 'user:likes:item'"),
        (lambda: walk().skip_gram(0), ValueError, "window must be 1 or more, but is 0"),
        (lambda: list(seeds.skip_gram(1)), ValueError, "has no walks yet; put sample_walks before"),
        (lambda: list(seeds.sample_walks(typed, 0, etypes=[LIKED]).skip_gram(1)), ValueError, "graph without types"),
        (lambda: list(seeds.sample_walks(typed, 1, etypes=[LIKES])), ValueError, "etypes begin at 'item'"),
    ])  # fmt: skip


def test_seeds_that_are_no_integers_are_refused() -> None:
    graph = gf.from_coo((torch.tensor([0, 0, 1]), torch.tensor([1, 2, 0])), 3)
    for seeds in (torch.tensor([True, False]), torch.tensor([0.9])):
        with pytest.raises(TypeError, match="seeds must"):
            graph.sample_walks(seeds, WalkRequest(1))
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 2).sample_walks(graph, length=0, edge_ids=True)
    assert [minibatch.walk_edge_ids.shape for minibatch in pipe] == [(2, 1, 0), (1, 1, 0)]
