"""Both samplers in time on a graph with types, from nodes, from edges, and from edges with negatives."""

from itertools import islice
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import assert_same

SIZES = {"user": 60, "item": 30}
EDGES = {
    "user:likes:item": pipelines.random_edges(60, 30, 900, 1),
    "item:liked_by:user": pipelines.random_edges(30, 60, 900, 2),
    "user:knows:user": pipelines.random_edges(60, 60, 900, 3),
}
GENERATOR = torch.Generator().manual_seed(4)
TIMES = {kind: torch.randint(0, 100, (900,), generator=GENERATOR) for kind in EDGES}
BORN = {kind: torch.randint(0, 50, (size,), generator=GENERATOR) for kind, size in SIZES.items()}
GRAPH = gf.from_coo(EDGES, SIZES, node_attributes={"born": BORN}, edge_attributes={"time": TIMES})
NAMES = {"node_timestamp_attr_name": "born", "edge_timestamp_attr_name": "time"}
METHODS = ["temporal_sample_neighbor", "temporal_sample_layer_neighbor"]
LIKES = "user:likes:item"


def nodes() -> gf.Datapipe:
    moments = {kind: torch.randint(0, 120, (size,), generator=GENERATOR) for kind, size in SIZES.items()}
    sets = {kind: gf.ItemSet((torch.arange(len(own)), own), ("seeds", "timestamp")) for kind, own in moments.items()}
    return gf.ItemSampler(gf.HeteroItemSet(sets), batch_size=25, shuffle=True)


def links() -> gf.Datapipe:
    sets = {kind: gf.ItemSet((ends.T, TIMES[kind]), ("seeds", "timestamp")) for kind, ends in EDGES.items()}
    return gf.ItemSampler(gf.HeteroItemSet(sets), batch_size=90, shuffle=True)


def check(batch: Any, times: dict[str, torch.Tensor], window: int | None) -> int:
    """Check that edges are those of their ids and lie before the times of their columns; return how many there are."""
    count = 0
    for layer in reversed(batch.sampled_subgraphs):
        columns, rows = layer.original_column_node_ids, layer.original_row_node_ids
        wanted_rows = {kind: [columns[kind]] for kind in SIZES}
        row_times = {kind: [times[kind]] for kind in SIZES}
        for kind, csc in layer.sampled_csc.items():
            source, _, destination = kind.split(":")
            ids, places = layer.original_edge_ids[kind], torch.repeat_interleave(csc.indptr.diff())
            assert_same(rows[source][csc.indices], EDGES[kind][0][ids])
            assert_same(columns[destination][places], EDGES[kind][1][ids])
            moments = times[destination][places]
            for stamps in (TIMES[kind][ids], BORN[source][EDGES[kind][0][ids]]):
                assert (stamps < moments).all()
                assert window is None or (stamps > moments - window).all()
            wanted_rows[source].append(EDGES[kind][0][ids])
            row_times[source].append(moments)
            count += len(ids)
        assert_same(rows, {kind: torch.cat(parts) for kind, parts in wanted_rows.items()})
        times = {kind: torch.cat(parts) for kind, parts in row_times.items()}
    assert_same(batch.input_nodes, batch.sampled_subgraphs[0].original_row_node_ids)
    return count


CHOICES: list[tuple[Any, dict[str, Any]]] = [
    ([3, -1], {}),
    ([[2, 0, 3], [1, 2, 3]], {"replace": True}),
    ([[2, 0, 3], [1, 2, 3]], {"pre_time_window": 60}),
]


@pytest.mark.parametrize("method", METHODS)
def test_from_nodes_time_is_never_violated(method: str) -> None:
    for fanouts, options in CHOICES:
        found, window = 0, options.get("pre_time_window")
        for batch in getattr(nodes(), method)(GRAPH, fanouts, **NAMES, **options):
            none = torch.tensor([], dtype=torch.int64)
            found += check(batch, {kind: batch.timestamp.get(kind, none) for kind in SIZES}, window)
        assert found > 200


@pytest.mark.parametrize(("method", "ratio"), [(METHODS[0], 2), (METHODS[1], 0)])
def test_from_edges_both_ends_and_their_negatives_have_the_time_of_the_edge(method: str, ratio: int) -> None:
    pipe = links().sample_uniform_negative(GRAPH, ratio) if ratio else links()
    for batch in islice(getattr(pipe, method)(GRAPH, [2, 2], **NAMES), 0, None, 5):
        inner: Any = batch.sampled_subgraphs[-1]
        columns = inner.original_column_node_ids
        times = {kind: torch.full((len(columns[kind]),), -1) for kind in SIZES}
        for kind, local in batch.compacted_seeds.items():
            given = batch.timestamp[kind]
            own = torch.cat([given, given.repeat_interleave(ratio)])
            for place, end in enumerate(kind.split(":")[::2]):
                assert_same(columns[end][local[:, place]], batch.seeds[kind][:, place])
                times[end][local[:, place]] = own
        assert all((own >= 0).all() for own in times.values())
        assert check(batch, times, None) > 0


def test_columns_choose_the_same_neighbours_where_they_may() -> None:
    """All edges were there before, so each item takes the users of smallest variate, whatever its time."""
    ends = torch.stack([torch.arange(20).repeat(5), torch.arange(5).repeat_interleave(20)])
    graph = gf.from_coo(
        {LIKES: ends}, {"user": 20, "item": 5}, edge_attributes={"time": {LIKES: torch.zeros(100).long()}}
    )
    items = gf.ItemSet((torch.arange(5), torch.arange(1, 6)), ("seeds", "timestamp"))
    pipe = gf.ItemSampler(gf.HeteroItemSet({"item": items}), batch_size=5)
    (batch,) = pipe.temporal_sample_layer_neighbor(graph, [3], edge_timestamp_attr_name="time")
    users = batch.input_nodes["user"]
    assert len(users) == 15
    assert len(set(users.tolist())) == 3
