from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same
from tests.refusals import Refusal, check_refused
from tests.tensors import layers_of

EDGES = pipelines.random_edges(20, 20, 150, 0)
GRAPH = gf.from_coo(EDGES, 20)
LIKES, LIKED = "user:likes:item", "item:liked_by:user"
TYPED_EDGES = {LIKES: pipelines.random_edges(9, 7, 60, 1), LIKED: pipelines.random_edges(7, 9, 60, 2)}
TYPED = gf.from_coo(TYPED_EDGES, {"user": 9, "item": 7})
BACK = {LIKES: LIKED}


def parts(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"_:_:_": value}


def rows_of(ids: Any, kind: str) -> torch.Tensor:
    result = ids[kind] if isinstance(ids, dict) else ids
    assert isinstance(result, torch.Tensor)
    return result


def edges_of(layer: gf.SampledSubgraph) -> dict[str, list[tuple[int, int, int]]]:
    """Return source, destination and id of each edge, by edge type."""
    found = {}
    for edge_type, csc in parts(layer.sampled_csc).items():
        source, _, end = edge_type.split(":")
        rows, columns = rows_of(layer.original_row_node_ids, source), rows_of(layer.original_column_node_ids, end)
        ends = torch.repeat_interleave(columns, csc.indptr.diff())
        ids = parts(layer.original_edge_ids)[edge_type]
        found[edge_type] = list(zip(rows[csc.indices].tolist(), ends.tolist(), ids.tolist(), strict=True))
    return found


def without(edges: dict[str, Any], gone: dict[str, list[tuple[int, int]]]) -> dict[str, Any]:
    """Take edges out, one after the other."""
    return {kind: [edge for edge in own if edge[:2] not in gone.get(kind, [])] for kind, own in edges.items()}


def pairs_of(seeds: Any, *, swapped: bool = False) -> list[tuple[int, int]]:
    return [(pair[1], pair[0]) if swapped else (pair[0], pair[1]) for pair in seeds.tolist()]


def sample(graph: gf.SamplingGraph, seeds: Any, **fields: Any) -> gf.MiniBatch:
    given_batch = gf.MiniBatch(seeds=seeds, key=gf.Key(0, 0, 0), **fields)
    return gf.NeighborSampler(gf.IterableSource([]), graph, [-1, 3])(given_batch)


def draw_pairs(data: st.DataObject, edges: torch.Tensor, sizes: tuple[int, int]) -> torch.Tensor:
    """Return some edges of the graph, and some pairs that may be none."""
    places = data.draw(st.lists(st.integers(0, edges.shape[1] - 1), min_size=1, max_size=8))
    others = data.draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=4))
    return torch.cat([edges.T[places], torch.tensor(others, dtype=torch.int64).reshape(-1, 2)])


@given(data=st.data(), both=st.booleans())
def test_it_equals_a_slow_exclusion(data: st.DataObject, both: bool) -> None:
    seeds = draw_pairs(data, EDGES, (20, 20))
    batch = sample(GRAPH, seeds)
    result = gf.exclude_seed_edges(batch, include_reverse_edges=both)
    gone = {"_:_:_": pairs_of(seeds) + (pairs_of(seeds, swapped=True) if both else [])}
    for before, after in zip(layers_of(batch), layers_of(result), strict=True):
        assert edges_of(after) == without(edges_of(before), gone)
        assert_same(after.original_row_node_ids, before.original_row_node_ids)
        assert_same(after.original_column_node_ids, before.original_column_node_ids)
    assert result.input_nodes is batch.input_nodes
    assert result.compacted_seeds is batch.compacted_seeds


@given(data=st.data(), both=st.booleans())
def test_with_types_it_equals_a_slow_exclusion(data: st.DataObject, both: bool) -> None:
    seeds = {LIKES: draw_pairs(data, TYPED_EDGES[LIKES], (9, 7))}
    batch = sample(TYPED, seeds)
    result = gf.exclude_seed_edges(batch, both, BACK)
    gone = {LIKES: pairs_of(seeds[LIKES]), LIKED: pairs_of(seeds[LIKES], swapped=True) if both else []}
    for before, after in zip(layers_of(batch), layers_of(result), strict=True):
        assert edges_of(after) == without(edges_of(before), gone)


def test_negatives_that_are_edges_go_too() -> None:
    """Else an edge between its ends would give a negative away."""
    batch = sample(GRAPH, EDGES.T[:5], labels=torch.tensor([1.0, 1, 1, 0, 0]))
    for layer in layers_of(gf.exclude_seed_edges(batch)):
        assert not {edge[:2] for edge in edges_of(layer)["_:_:_"]} & set(pairs_of(EDGES.T[:5]))


def test_the_stage_does_what_the_function_does() -> None:
    items = gf.ItemSampler(gf.ItemSet(EDGES.T, names="seeds"), batch_size=40)
    sampled = items.sample_neighbor(GRAPH, [3, 3])
    for both in (False, True):
        stage = sampled.exclude_seed_edges(include_reverse_edges=both, asynchronous=both)
        for before, after in zip(sampled, stage, strict=True):
            assert_same(after, gf.exclude_seed_edges(before, include_reverse_edges=both))
    assert sampled.exclude_seed_edges().number == 1


def test_no_later_layer_and_no_draw_moves() -> None:
    """What comes after draws as if nothing had been excluded."""
    items = gf.ItemSampler(gf.ItemSet(EDGES.T, names="seeds"), batch_size=150)
    sampled = items.sample_neighbor(GRAPH, [3])
    (plain,), (after,) = sampled.sample_neighbor(GRAPH, [2]), sampled.exclude_seed_edges().sample_neighbor(GRAPH, [2])
    assert_same(after.sampled_subgraphs, plain.sampled_subgraphs)


def test_it_can_be_waited_for() -> None:
    batch = sample(GRAPH, EDGES.T[:5])
    pending: Any = gf.exclude_seed_edges(batch, async_op=True).sampled_subgraphs
    assert_same([layer.wait() for layer in pending], gf.exclude_seed_edges(batch).sampled_subgraphs)


def test_what_does_not_fit_is_refused() -> None:
    def exclude(change: dict[str, Any], **options: Any) -> Any:
        batch = sample(GRAPH, EDGES.T[:5])
        for name, value in change.items():
            setattr(batch, name, value)
        return gf.SeedEdgesExcluder(gf.IterableSource([]), **options)(batch)

    three: Any = {LIKES: torch.zeros(2, 3)}
    rows: list[Refusal] = [
        (lambda: exclude({"sampled_subgraphs": None}), ValueError, "no sampled_subgraphs yet; put a sampler before"),
        (lambda: exclude({"edge_features": []}), ValueError, "has edge_features already, a row an edge; put fetch"),
        (lambda: exclude({"seeds": None}), ValueError, "the mini-batch has no seeds"),
        (
            lambda: exclude({"seeds": torch.arange(3)}),
            ValueError,
            r"seeds must be edges, shape \(N, 2\), .* have \[3\]",
        ),
        (lambda: exclude({"seeds": three}), ValueError, f"seeds of type '{LIKES}' must be edges, shape"),
        (
            lambda: exclude({"seeds": {LIKES: EDGES.T}}, include_reverse_edges=True),
            ValueError,
            rf"include_reverse_edges needs reverse_etypes_mapping, as the seeds have types \['{LIKES}'\]; give the",
        ),
        (lambda: exclude({"seeds": {LIKES: EDGES.T}}), TypeError, r"edges must be a tensor of .*, but is a dict"),
    ]
    check_refused(rows)
