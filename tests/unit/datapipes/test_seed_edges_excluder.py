"""Edges that are to be predicted are excluded from the subgraphs sampled around them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.tensors import layers_of

ENDS = pipelines.random_edges(20, 20, 150, 0)
RANDOM = gf.from_coo(ENDS, 20)
FORTH, BACKWARDS = "user:likes:item", "item:liked_by:user"
TYPED_EDGES = {FORTH: pipelines.random_edges(9, 7, 60, 1), BACKWARDS: pipelines.random_edges(7, 9, 60, 2)}
BOTH_WAYS = gf.from_coo(TYPED_EDGES, {"user": 9, "item": 7})
BACK = {FORTH: BACKWARDS}


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
    """Remove edges one after the other."""
    return {kind: [edge for edge in own if edge[:2] not in gone.get(kind, [])] for kind, own in edges.items()}


def pairs_of(seeds: Any, *, swapped: bool = False) -> list[tuple[int, int]]:
    return [(pair[1], pair[0]) if swapped else (pair[0], pair[1]) for pair in seeds.tolist()]


def sample(graph: gf.SamplingGraph, seeds: Any, **fields: Any) -> gf.MiniBatch:
    given_batch = gf.MiniBatch(seeds=seeds, key=gf.Key(0, 0, 0), **fields)
    return gf.NeighborSampler(gf.IterableSource([]), graph, [-1, 3])(given_batch)


def draw_pairs(data: st.DataObject, edges: torch.Tensor, sizes: tuple[int, int]) -> torch.Tensor:
    """Return some edges of the graph, and some pairs that may not be edges."""
    places = data.draw(st.lists(st.integers(0, edges.shape[1] - 1), min_size=1, max_size=8))
    others = data.draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in sizes)), max_size=4))
    return torch.cat([edges.T[places], torch.tensor(others, dtype=torch.int64).reshape(-1, 2)])


@given(data=st.data(), both=st.booleans(), typed=st.booleans())
def test_it_equals_a_slow_exclusion(data: st.DataObject, both: bool, typed: bool) -> None:
    """Also of negatives that are edges, which would be revealed by an edge between their endpoints."""
    pairs = draw_pairs(data, TYPED_EDGES[FORTH], (9, 7)) if typed else draw_pairs(data, ENDS, (20, 20))
    labels = torch.arange(len(pairs)) % 2
    batch = sample(BOTH_WAYS, {FORTH: pairs}, labels={FORTH: labels}) if typed else sample(RANDOM, pairs, labels=labels)
    result = gf.exclude_seed_edges(batch, both, BACK if both and typed else None)
    swapped = pairs_of(pairs, swapped=True) if both else []
    gone = {FORTH: pairs_of(pairs), BACKWARDS: swapped} if typed else {"_:_:_": pairs_of(pairs) + swapped}
    for before, after in zip(layers_of(batch), layers_of(result), strict=True):
        assert edges_of(after) == without(edges_of(before), gone)
        assert_same(after.original_row_node_ids, before.original_row_node_ids)
        assert_same(after.original_column_node_ids, before.original_column_node_ids)
    assert result.input_nodes is batch.input_nodes
    assert result.compacted_seeds is batch.compacted_seeds


def test_the_stage_does_what_the_function_does_which_can_be_waited_for() -> None:
    items = gf.ItemSampler(gf.ItemSet(ENDS.T, names="seeds"), batch_size=40)
    sampled = items.sample_neighbor(RANDOM, [3, 3])
    for both in (False, True):
        stage = sampled.exclude_seed_edges(include_reverse_edges=both)
        for before, after in zip(sampled, stage, strict=True):
            assert_same(after, gf.exclude_seed_edges(before, include_reverse_edges=both))
            pending: Any = gf.exclude_seed_edges(before, both, async_op=True).sampled_subgraphs
            assert_same([layer.wait() for layer in pending], after.sampled_subgraphs)
    assert sampled.exclude_seed_edges().number == 1


def test_no_later_layer_and_no_draw_moves() -> None:
    """Later stages draw as if nothing had been excluded."""
    items = gf.ItemSampler(gf.ItemSet(ENDS.T, names="seeds"), batch_size=150)
    sampled = items.sample_neighbor(RANDOM, [3])
    (plain,), (after,) = sampled.sample_neighbor(RANDOM, [2]), sampled.exclude_seed_edges().sample_neighbor(RANDOM, [2])
    assert_same(after.sampled_subgraphs, plain.sampled_subgraphs)


def test_what_does_not_fit_is_refused() -> None:
    def exclude(change: dict[str, Any], **options: Any) -> Any:
        batch = sample(RANDOM, ENDS.T[:5])
        for name, value in change.items():
            setattr(batch, name, value)
        return gf.SeedEdgesExcluder(gf.IterableSource([]), **options)(batch)

    three: Any = {FORTH: torch.zeros(2, 3)}
    check_refused([
        (lambda: exclude({"sampled_subgraphs": None}), ValueError, "no sampled_subgraphs yet; put a sampler before"),
        (lambda: exclude({"edge_features": []}), ValueError, "already has edge_features, a row per edge; put fetch"),
        (lambda: exclude({"seeds": None}), ValueError, "the mini-batch has no seeds"),
        (lambda: exclude({"seeds": torch.arange(3)}), ValueError, r"must be edges, shape \(N, 2\), .* have \[3\]"),
        (lambda: exclude({"seeds": three}), ValueError, f"seeds of type '{FORTH}' must be edges, shape"),
        (lambda: exclude({"seeds": {FORTH: ENDS.T}}, include_reverse_edges=True), ValueError,
         rf"include_reverse_edges needs reverse_etypes_mapping, as the seeds have types \['{FORTH}'\]; give the"),
        (lambda: exclude({"seeds": {FORTH: ENDS.T}}), TypeError, r"edges must be a tensor of .*, but is a dict"),
    ])  # fmt: skip


TO_PREDICT = "user:buys:item"
PAIRS = {FORTH: TYPED_EDGES[FORTH].T, BACKWARDS: TYPED_EDGES[BACKWARDS].T}


def typed_links(*kinds: str) -> gf.Datapipe:
    """Return a pipeline of edges of some types, sampled in a graph with both directions."""
    items = {kind: gf.ItemSet(PAIRS.get(kind, PAIRS[FORTH])[:20].contiguous(), names="seeds") for kind in kinds}
    return gf.ItemSampler(gf.HeteroItemSet(items), 12).sample_neighbor(BOTH_WAYS, [-1])


@pytest.mark.parametrize(
    ("kinds", "mapping"),
    [
        ((FORTH,), {FORTH: BACKWARDS}),
        ((FORTH,), {BACKWARDS: FORTH}),
        ((FORTH,), {tuple(BACKWARDS.split(":")): tuple(FORTH.split(":"))}),
        ((FORTH, BACKWARDS), {FORTH: BACKWARDS}),
        ((FORTH, BACKWARDS), {FORTH: BACKWARDS, BACKWARDS: FORTH}),
        ((TO_PREDICT,), {TO_PREDICT: BACKWARDS}),
        ((TO_PREDICT, FORTH), {FORTH: BACKWARDS, BACKWARDS: TO_PREDICT}),
        ((FORTH,), {FORTH: None}),
        ((FORTH, TO_PREDICT), {FORTH: None, TO_PREDICT: BACKWARDS}),
    ],
)
def test_a_mapping_counts_in_both_directions(kinds: tuple[str, ...], mapping: dict[Any, Any]) -> None:
    names = [tuple(":".join(kind) if isinstance(kind, tuple) else kind for kind in pair) for pair in mapping.items()]
    for before, after in zip(typed_links(*kinds), typed_links(*kinds).exclude_seed_edges(True, mapping), strict=True):
        gone: dict[str, list[tuple[int, int]]] = {}
        for kind, seeds in before.seeds.items():
            gone.setdefault(kind, []).extend(pairs_of(seeds))
            for reverse in [other for pair in (*names, *(own[::-1] for own in names)) if pair[0] == kind
                            for other in pair[1:] if other is not None]:  # fmt: skip
                gone.setdefault(reverse, []).extend(pairs_of(seeds, swapped=True))
        (layer,), (found,) = layers_of(before), layers_of(after)
        assert edges_of(found) == without(edges_of(layer), gone)


def test_a_wrong_mapping_is_refused_when_the_stage_is_made() -> None:
    several: Any = gf.IterableSource([gf.MiniBatch(seeds=PAIRS)]).sample_neighbor(BOTH_WAYS, [-1])
    plain: Any = gf.ItemSampler(gf.ItemSet(ENDS.T, names="seeds"), 4).sample_neighbor(RANDOM, [-1])
    both = typed_links(FORTH, TO_PREDICT)

    def stage(pipe: Any, *given: Any) -> Any:
        return lambda: pipe.exclude_seed_edges(*given)

    rows: list[Refusal] = [
        (stage(both, True, {FORTH: "item:likd_by:user"}), KeyError,
         "^reverse_etypes_mapping has 'item:likd_by:user', but the edge types are .*; did you mean 'item:liked_by"),
        (stage(both, True, {FORTH: BACKWARDS, TO_PREDICT: BACKWARDS, "a:b:c": "c:b:a"}), KeyError, "has 'a:b:c', but"),
        (stage(several, True, {FORTH: "item:likd_by:user"}), KeyError, "did you mean 'item:liked_by:user'"),
        (stage(plain, True, {FORTH: BACKWARDS}), KeyError, "has 'user:likes:item', but there are no edge types"),
        (stage(both, False, {FORTH: BACKWARDS}), ValueError, "but include_reverse_edges is False, so no reverse edge"),
        (stage(both, True, {FORTH: BACKWARDS}), ValueError,
         "has no reverse of the edge type 'user:buys:item' of the seeds; add it, or {'user:buys:item': None}"),
        (stage(both, True, {}), ValueError, "has no reverse of the edge type"),
        (stage(both, True), ValueError, "include_reverse_edges needs reverse_etypes_mapping, as the seeds have types"),
        (stage(both, True, {FORTH: FORTH, TO_PREDICT: None}), ValueError,
         "has 'user:likes:item' as the reverse of 'user:likes:item', but it does not lead from 'item' to 'user'"),
    ]  # fmt: skip
    check_refused(rows)


def test_a_wrong_mapping_is_refused_with_a_mini_batch_where_no_graph_was_known() -> None:
    batch = sample(BOTH_WAYS, {FORTH: PAIRS[FORTH][:5]})

    def run(*given: Any) -> Any:
        return lambda: [
            gf.exclude_seed_edges(batch, *given),
            list(gf.SeedEdgesExcluder(gf.IterableSource([batch]), *given)),
        ]

    rows: list[Refusal] = [
        (run(True, {FORTH: "item:likd_by:user"}), KeyError, "'item:likd_by:user', .*; did you mean 'item:liked_by"),
        (run(True, {BACKWARDS: None}), ValueError, "has no reverse of the edge type 'user:likes:item'"),
        (run(True, {FORTH: FORTH}), ValueError, "but it does not lead from 'item' to 'user'"),
        (run(False, {FORTH: BACKWARDS}), ValueError, "but include_reverse_edges is False"),
    ]
    check_refused(rows)


def test_a_stage_of_a_user_may_rename_the_seeds() -> None:
    def rename(minibatch: Any) -> Any:
        return gf.MiniBatch(seeds={TO_PREDICT: minibatch.seeds[FORTH]})

    items = gf.ItemSampler(gf.HeteroItemSet({FORTH: gf.ItemSet(PAIRS[FORTH], names="seeds")}), 12)
    pipe = items.transform(rename).sample_neighbor(BOTH_WAYS, [-1]).exclude_seed_edges(True, {TO_PREDICT: BACKWARDS})
    assert sum(1 for _ in pipe) == 5


REPEATED = torch.tensor([[0, 0, 0, 1, 2, 1], [1, 1, 1, 0, 1, 2]])


@pytest.mark.parametrize("both", [False, True])
def test_by_id_other_edges_between_the_ends_stay(both: bool) -> None:
    graph = gf.from_coo(REPEATED, 3)
    items = gf.ItemSet((REPEATED.T[[1, 4]], torch.tensor([1, 4])), names=("seeds", "seed_edge_ids"))
    pipe = gf.ItemSampler(items, 2).sample_negative_pairs(graph, "binary", 2).sample_neighbor(graph, [-1, -1])
    stage = pipe.exclude_seed_edges(both, by_id=True)
    for before, after in zip(pipe, stage, strict=True):
        back = pairs_of(before.seeds, swapped=True) if both else []
        for layer, found in zip(layers_of(before), layers_of(after), strict=True):
            kept = [edge for edge in edges_of(layer)["_:_:_"] if edge[2] not in (1, 4) and edge[:2] not in back]
            assert edges_of(found)["_:_:_"] == kept
        assert_same(gf.exclude_seed_edges(before, both, by_id=True), after)


def test_by_id_with_types_ids_are_those_of_the_type_and_reverse_edges_go_by_their_ends() -> None:
    ids = torch.arange(10, 20)
    items = gf.HeteroItemSet({FORTH: gf.ItemSet((PAIRS[FORTH][ids], ids), names=("seeds", "seed_edge_ids"))})
    pipe = gf.ItemSampler(items, 5).sample_neighbor(BOTH_WAYS, [-1, -1])
    for before, after in zip(pipe, pipe.exclude_seed_edges(True, BACK, by_id=True), strict=True):
        gone, back = before.seed_edge_ids[FORTH].tolist(), pairs_of(before.seeds[FORTH], swapped=True)
        for layer, found in zip(layers_of(before), layers_of(after), strict=True):
            edges = without(edges_of(layer), {BACKWARDS: back})
            edges[FORTH] = [edge for edge in edges[FORTH] if edge[2] not in gone]
            assert edges_of(found) == edges


def test_by_id_needs_ids() -> None:
    batch, typed = sample(RANDOM, ENDS.T[:5]), sample(BOTH_WAYS, {FORTH: PAIRS[FORTH][:5]}, seed_edge_ids={})
    known = sample(RANDOM, ENDS.T[:5], seed_edge_ids=torch.arange(5))
    for layer in layers_of(known):
        layer.original_edge_ids = None
    words = "by_id needs .* has no seed_edge_ids of each type"
    check_refused([
        (lambda: gf.exclude_seed_edges(batch, by_id=True), ValueError, words),
        (lambda: gf.exclude_seed_edges(typed, by_id=True), ValueError, words),
        (lambda: gf.exclude_seed_edges(known, by_id=True), ValueError, "the subgraph has no original_edge_ids"),
    ])  # fmt: skip
