"""Samplers of the nodes that walks visit most, and of those with the highest PageRank."""

from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops.sampling import MASS
from graphfeed.storage.graph import WalkRequest, ends_of, first_ids, to_coo, to_type_dict
from tests.kinds import golden_pipelines
from tests.kinds.digests import digests
from tests.kinds.refusals import check_refused

LIKES, LIKED = "user:likes:item", "item:liked_by:user"
KEY = gf.Key(4, 5, 6)


def pipelines(graph: gf.SamplingGraph, typed: gf.SamplingGraph) -> dict[str, gf.Datapipe]:
    nodes, users = golden_pipelines.nodes(), gf.HeteroItemSet({"user": gf.ItemSet(200, names="seeds")})
    return {
        "visits": nodes.sample_by_visits(graph, [3, 5], walks=9, probs_name="weight"),
        "visits by type": gf.ItemSampler(users, 64).sample_by_visits(
            typed, [2, 4], walks=7, length=2, etypes=[LIKED, LIKES]
        ),
        "PageRank": nodes.sample_by_ppr(graph, 8, bound=1e-3),
        "PageRank by type": gf.ItemSampler(users, 64).sample_by_ppr(typed, 4, bound=1e-3, per_type=True),
    }


def test_mini_batches_are_the_same_for_any_workers_and_in_a_file(tmp_path: Path) -> None:
    graphs = golden_pipelines.untyped(), golden_pipelines.typed()
    for number, graph in enumerate(graphs):
        graph.save(tmp_path / str(number))
    mapped = [gf.load_graph(tmp_path / str(number)) for number in range(2)]
    for name, pipe in pipelines(*graphs).items():
        wanted = digests(pipe.with_seed(3))
        for own, workers in ((pipe, 2), (pipelines(*mapped)[name], 0)):
            with gf.DataLoader(own, num_workers=workers, seed=3) as loader:
                assert digests(loader) == wanted, name


@pytest.mark.slow
def test_mini_batches_are_the_same_in_two_processes() -> None:
    for name, pipe in pipelines(golden_pipelines.untyped(), golden_pipelines.typed()).items():
        with gf.DataLoader(pipe, num_workers=2, worker="process", seed=3) as loader:
            assert digests(loader) == digests(pipe.with_seed(3)), name


def edges_of(hop: gf.SampledSubgraph) -> list[list[tuple[int, float]]]:
    """Return the sources and weights of each column of a hop without types."""
    sources = hop.original_row_node_ids[hop.sampled_csc.indices]
    pairs = list(zip(sources.tolist(), hop.edge_weights.tolist(), strict=True))
    starts = hop.sampled_csc.indptr.tolist()
    return [pairs[low:high] for low, high in pairwise(starts)]


def test_each_hop_has_the_most_visited_nodes_and_their_numbers() -> None:
    graph, seeds = golden_pipelines.untyped(), torch.arange(0, 300, 7)
    pipe = gf.IterableSource([gf.MiniBatch(seeds=seeds, key=KEY)]).sample_by_visits(graph, [3, 5], walks=20, length=3)
    sampled, nodes = next(iter(pipe)), seeds
    for number, fanout in enumerate((5, 3)):
        hop = sampled.sampled_subgraphs[1 - number]
        assert torch.equal(hop.original_column_node_ids, nodes)
        request = WalkRequest(3, 20, stop=[0, 0.5, 0.5])
        walks = graph.sample_walks(nodes, request, key=sampled.key.at(pipe.number, number)).nodes[:, 1:]
        for visits, edges in zip(walks.reshape(len(nodes), -1).tolist(), edges_of(hop), strict=True):
            counts = Counter(node for node in visits if node >= 0)
            assert edges == sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:fanout]
        nodes = hop.original_row_node_ids
    assert torch.equal(sampled.input_nodes, nodes)


def test_traversals_of_a_metapath_count_at_their_ends() -> None:
    typed, seeds = golden_pipelines.typed(), {"user": torch.arange(30)}
    source = gf.IterableSource([gf.MiniBatch(seeds=seeds, key=KEY)])
    pipe = source.sample_by_visits(typed, [4], walks=10, length=2, etypes=[LIKED, LIKES])
    batch: Any = next(iter(pipe))
    (hop,) = batch.sampled_subgraphs
    assert list(batch.input_nodes) == ["user", "item"]
    assert len(batch.input_nodes["item"]) == 0
    request = WalkRequest(4, 10, stop=[0, 0, 0.5, 0], etypes=[LIKED, LIKES])
    walks = typed.sample_walks(seeds, request, key=batch.key.at(pipe.number, 0)).nodes[:, 2::2].reshape(30, -1)
    counts = Counter(walks[3][walks[3] >= 0].tolist())
    csc, weights = (own["user:visited:user"] for own in (hop.sampled_csc, hop.edge_weights))
    own = slice(*csc.indptr[3:5].tolist())
    found = batch.input_nodes["user"][csc.indices[own]].tolist()
    assert found == sorted(counts, key=lambda node: (-counts[node], node))[:4]
    assert weights[own].tolist() == [counts[node] for node in found]


def test_the_edges_have_the_scores_of_the_graph() -> None:
    graph = golden_pipelines.untyped()
    pipe = golden_pipelines.nodes().sample_by_ppr(graph, 6, alpha=0.3, bound=1e-3)
    batch: Any = next(iter(pipe))
    (hop,) = batch.sampled_subgraphs
    ranked: Any = graph.page_rank(batch.seeds, 6, 0.3, 1e-3)
    assert torch.equal(hop.original_row_node_ids[hop.sampled_csc.indices], ranked.nodes)
    assert torch.equal(hop.edge_weights, (ranked.values.double() / MASS).float())
    # Excluded edges lose their weights; and all edges among the nodes may replace them.
    pairs = torch.stack([ranked.nodes[:1], batch.seeds[:1]], dim=1)
    assert torch.equal(hop.exclude_edges(pairs).edge_weights, hop.edge_weights[1:])
    induced = next(iter(pipe.induce_subgraph(graph))).sampled_subgraphs[0]
    assert torch.equal(induced.original_row_node_ids, hop.original_row_node_ids)


@pytest.mark.parametrize("per_type", [False, True])
def test_mass_goes_along_the_edges_of_all_types(per_type: bool) -> None:
    typed = golden_pipelines.typed()
    firsts, sizes = first_ids(typed.num_nodes), to_type_dict(typed.num_nodes)
    ends = {name: (own.sources, own.destinations) for name, own in to_coo(typed).items()}
    parts = [
        torch.stack([pair[0] + firsts[ends_of(name)[0]], pair[1] + firsts[ends_of(name)[1]]])
        for name, pair in ends.items()
    ]
    whole = gf.from_coo(torch.cat(parts, 1), sum(sizes.values()))
    seeds = {"item": torch.tensor([5, 2]), "user": torch.tensor([7])}
    pipe = gf.IterableSource([gf.MiniBatch(seeds=seeds)]).sample_by_ppr(typed, 9, bound=1e-4, per_type=per_type)
    batch: Any = next(iter(pipe))
    (hop,) = batch.sampled_subgraphs
    assert set(hop.sampled_csc) == {f"{one}:ppr:{other}" for one in sizes for other in seeds}
    for name, own in seeds.items():
        for column, node in enumerate(own.tolist()):
            ranked: Any = whole.page_rank(torch.tensor([node + firsts[name]]), sum(sizes.values()))
            pairs = list(zip(ranked.nodes.tolist(), (ranked.values.double() / MASS).float().tolist(), strict=True))
            pairs = pairs if per_type else pairs[:9]
            for kind, size in sizes.items():
                csc, weights = (part[f"{kind}:ppr:{name}"] for part in (hop.sampled_csc, hop.edge_weights))
                low, high = csc.indptr[column : column + 2].tolist()
                nodes = (batch.input_nodes[kind][csc.indices[low:high]] + firsts[kind]).tolist()
                wanted = [pair for pair in pairs if firsts[kind] <= pair[0] < firsts[kind] + size]
                assert list(zip(nodes, weights[low:high].tolist(), strict=True)) == wanted[: 9 if per_type else None]
    induced: Any = next(iter(pipe.induce_subgraph(typed))).sampled_subgraphs[0]
    assert induced.original_row_node_ids.keys() == hop.original_row_node_ids.keys()


@pytest.mark.parametrize("by_hop", [False, True])
def test_pygs_data_have_the_weights_of_the_edges(by_hop: bool) -> None:
    pytest.importorskip("torch_geometric")
    batch: Any = next(iter(golden_pipelines.nodes().sample_by_ppr(golden_pipelines.untyped(), 6, bound=1e-3)))
    (hop,), data = batch.sampled_subgraphs, batch.to_pyg_data(by_hop)
    known = {(source, column): weight for column, edges in enumerate(edges_of(hop)) for source, weight in edges}
    sources, columns = data.n_id[data.edge_index[0]].tolist(), data.edge_index[1].tolist()
    assert [known[pair] for pair in zip(sources, columns, strict=True)] == data.edge_weight.tolist()
    assert len(known) == len(sources)


def test_what_is_wrong_is_named() -> None:
    source, plain, typed = gf.IterableSource([]), golden_pipelines.untyped(), golden_pipelines.typed()
    visit, rank = partial(source.sample_by_visits, plain), partial(source.sample_by_ppr, plain)
    check_refused([
        (lambda: visit([]), ValueError, r"fanouts must hold one number per hop, as in \[10, 10\]"),
        (lambda: visit([0]), ValueError, "fanouts must be 1 or more, but is 0"),
        (lambda: visit([2], length=0), ValueError, "length must be 1 or more, but is 0"),
        (lambda: visit([2], stop=2.0), ValueError, r"stop must be in 0 \.\. 1"),
        (lambda: source.sample_by_visits(typed, [2]), ValueError, "give etypes"),
        (lambda: source.sample_by_visits(typed, [2], length=1, etypes=[LIKES]), ValueError, "must lead back"),
        (lambda: rank(0), ValueError, "top must be 1 or more, but is 0"),
        (lambda: rank(5, alpha=0.0), ValueError, r"alpha must be in 0.001 \.\. 1, but is 0\.0"),
        (lambda: rank(5, bound=2.0), ValueError, "bound must be above 0 and at most 1, but is 2.0"),
        (lambda: typed.page_rank(torch.arange(2), 5), TypeError, "seeds must be a dict by node type"),
        (lambda: typed.page_rank({"users": torch.arange(2)}, 5), KeyError, "did you mean 'user'"),
        (lambda: plain.page_rank(torch.tensor([9999]), 5), ValueError, r"seeds must be in 0 \.\. 1999"),
    ])  # fmt: skip


def test_page_rank_ends_with_the_smallest_bound() -> None:
    ring = gf.from_coo((torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])), 3)
    ranked: Any = ring.page_rank(torch.tensor([0]), 3, 0.15, 1e-9)
    assert ranked.nodes.tolist() == [0, 2, 1]
    assert MASS - 10_000 < int(ranked.values.sum()) <= MASS


def test_a_mini_batch_without_seeds_of_the_metapath_has_an_empty_hop() -> None:
    ends = torch.tensor([0, 1])
    graph = gf.from_coo({"a:r:b": (ends, ends), "b:s:a": (ends, ends.flip(0))}, {"a": 2, "b": 2})
    seeds = gf.HeteroItemSet({kind: gf.ItemSet(2, names="seeds") for kind in "ba"})
    pipe = gf.ItemSampler(seeds, 2).sample_by_visits(graph, [2], etypes=["a:r:b", "b:s:a"])
    edges = [sum(csc.indices.numel() for csc in batch.sampled_subgraphs[0].sampled_csc.values()) for batch in pipe]
    assert edges[0] > 0
    assert edges[1:] == [0]
