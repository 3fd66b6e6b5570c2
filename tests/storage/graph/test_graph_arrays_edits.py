import gc
import weakref
from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import SamplingRequest
from tests.digests import digests
from tests.ops.arguments.test_verified import large_graph

NODES, EDGES = 40, 900


def test_a_check_after_edits_refuses_what_is_no_graph_and_so_does_sampling_from_then_on() -> None:
    graph = large_graph()
    pipe = gf.ItemSampler(gf.ItemSet(10, names="seeds"), batch_size=10).sample_neighbor(graph, [2])
    assert len(list(pipe)) == 1
    graph.csc_indptr[5] = 2**40
    for sample in (graph.check, lambda: list(pipe), graph.high_degree_index):
        with pytest.raises(ValueError, match="csc_indptr must not fall, but goes from 1099511627776 to 12 at node 5"):
            sample()
    graph.csc_indptr[5] = 10
    assert len(list(pipe)) == 1
    graph.indices[7] = 3000
    with pytest.raises(ValueError, match=r"indices must lie in 0 \.\. 2999, but holds 3000"):
        graph.check()


def test_what_was_not_checked_when_it_was_made_is_checked_before_it_is_sampled() -> None:
    fields = gf.from_coo({"a:to:b": ([0, 1], [0, 1]), "b:to:a": ([1], [0])}, {"a": 2, "b": 2}).fields()
    graph = gf.FusedCSCSamplingGraph(**{**fields, "type_per_edge": torch.tensor([1, 0, 200])})
    items = gf.ItemSampler(gf.HeteroItemSet({"b": gf.ItemSet(2, names="seeds")}), batch_size=2)
    with pytest.raises(ValueError, match="type_per_edge"):
        list(items.sample_neighbor(graph, [2, 2]))


def random_graph(seed: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph with weights and times; all have the same columns."""
    chance = torch.Generator().manual_seed(seed)
    return gf.fused_csc_sampling_graph(
        torch.arange(NODES + 1) ** 2 * EDGES // NODES**2,
        torch.randint(NODES, (EDGES,), generator=chance),
        node_attributes={"born": torch.randint(50, (NODES,), generator=chance)},
        edge_attributes={
            "w": (torch.rand(EDGES, generator=chance) - 0.5).clamp(min=0),
            "time": torch.randint(50, (EDGES,), generator=chance),
        },
    )


def ways_to_sample(graph: gf.FusedCSCSamplingGraph) -> Iterator[gf.Datapipe]:
    """Yield a pipeline for all that is computed from the arrays of a graph."""
    seeds = gf.ItemSet((torch.arange(NODES), torch.full((NODES,), 40)), names=("seeds", "timestamp"))
    items = gf.ItemSampler(seeds, batch_size=NODES)
    yield items.sample_neighbor(graph, [3, 3], prob_name="w")
    yield items.sample_layer_neighbor(graph, [3, 3])
    for hop_time in ("seed", "edge"):
        yield items.temporal_sample_neighbor(
            graph, [3, 3], prob_name="w", edge_timestamp_attr_name="time", hop_time=hop_time, inclusive=True
        )
    yield items.temporal_sample_neighbor(
        graph, [3], pre_time_window=20, node_timestamp_attr_name="born", edge_timestamp_attr_name="time"
    )


def sampled(graph: gf.FusedCSCSamplingGraph) -> list[list[str]]:
    return [digests(pipe) for pipe in ways_to_sample(graph)]


def test_mini_batches_after_edits_in_place_and_a_check_are_those_of_new_arrays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = import_module("graphfeed.ops.sampling.high_degree_index")
    monkeypatch.setattr(index, "MIN_DEGREE", 2)
    monkeypatch.setattr(index, "MAX_SHARE", 1)
    graph, other = random_graph(0), random_graph(1)
    before, expected = sampled(graph), sampled(other)
    assert all(own != its for own, its in zip(before, expected, strict=True))
    graph.indices.copy_(other.indices)
    for mine, its in ((graph.node_attributes, other.node_attributes), (graph.edge_attributes, other.edge_attributes)):
        for name in its:
            mine[name].copy_(its[name])
    graph.check()
    assert sampled(graph) == expected


def test_what_was_computed_from_an_attribute_goes_with_it() -> None:
    graph = random_graph(0)
    graph.add_edge_attribute("v", torch.ones(EDGES))
    query = gf.TemporalQuery(edge_timestamp_attr_name="time", hop_time="edge", inclusive=True)
    graph.prepare(SamplingRequest([torch.tensor([2])], probs_name="w", temporal=query))
    kept = graph.cumulative_weights("v")
    made = [
        weakref.ref(part)
        for name, entry in graph._derived.items()
        if " v" not in name
        for part in entry[1]
        if part is not None
    ]
    made.append(weakref.ref(graph.edge_attribute("w")))
    assert len(made) > 4
    graph.edge_attributes = {"v": graph.edge_attribute("v")}
    gc.collect()
    assert [own() for own in made] == [None] * len(made)
    assert graph.cumulative_weights("v") is kept
