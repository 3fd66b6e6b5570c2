import pickle
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.storage.graph.sampling import temporal_sampling
from graphfeed.storage.graph.sampling.temporal_sampling import (
    temporal_sample_hop_by_hop,
    temporal_sample_one_hop,
    time_order,
    timed_columns,
)
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests.digests import assert_same
from tests.pipelines import random_edges

SIZE, MANY = 40, 900
GENERATOR = torch.Generator().manual_seed(0)
EDGES = random_edges(SIZE, SIZE, MANY, 0)
TIMES = torch.randint(0, 100, (MANY,), generator=GENERATOR)
BORN = torch.randint(0, 60, (SIZE,), generator=GENERATOR)
WEIGHTS = (torch.rand(MANY, generator=GENERATOR) - 0.3).clamp(min=0)
GRAPH = gf.from_coo(
    EDGES, SIZE, node_attributes={"born": BORN, "half": BORN / 2}, edge_attributes={"time": TIMES, "w": WEIGHTS}
)
KINDS = {"a": 30, "b": 20}
TYPED_EDGES = {
    "a:r:b": random_edges(30, 20, 400, 1), "b:r:a": random_edges(20, 30, 400, 2), "a:s:a": random_edges(30, 30, 300, 3),
}  # fmt: skip
TYPED_TIMES = {kind: torch.randint(0, 100, (ends.shape[1],), generator=GENERATOR) for kind, ends in TYPED_EDGES.items()}
TYPED_BORN = {kind: torch.randint(0, 60, (count,), generator=GENERATOR) for kind, count in KINDS.items()}
TYPED = gf.from_coo(
    TYPED_EDGES, KINDS, node_attributes={"born": TYPED_BORN}, edge_attributes={"time": TYPED_TIMES}
)  # fmt: skip
NAMES: Any = st.sampled_from([("born", "time"), (None, "time"), ("born", None), (None, None)])
SEEDS, MOMENTS = torch.tensor([3, 0, 3, 7]), torch.tensor([50, 90, 20, 0])
ONE = torch.tensor([4])
THREE = torch.tensor([[0, 1, 2], [0, 0, 0]])


def admitted(
    ends: torch.Tensor, times: torch.Tensor, born: torch.Tensor, names: Any, column: tuple[int, int, int | None]
) -> list[int]:
    """Return the rows of an edge list that end in a node, are before a time and inside of a window: one by one."""
    node, time, window = column
    found = []
    for row, (source, destination) in enumerate(ends.T.tolist()):
        stamps = ([int(born[source])] if names[0] else []) + ([int(times[row])] if names[1] else [])
        inside = all(stamp < time and (window is None or stamp > time - window) for stamp in stamps)
        if destination == node and inside:
            found.append(row)
    return found


@given(NAMES, st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(-5, 110)), max_size=5), st.booleans(), st.data())
def test_all_that_is_admitted_and_nothing_else(
    names: Any, columns: list[tuple[int, int]], labor: bool, data: st.DataObject
) -> None:
    windows = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 120), min_size=5, max_size=5)))
    seeds, moments = (torch.tensor([column[end] for column in columns], dtype=torch.int64) for end in (0, 1))
    own = None if windows is None else torch.tensor(windows[: len(columns)], dtype=torch.int64)
    sample = GRAPH.temporal_sample_layer_neighbors if labor else GRAPH.temporal_sample_neighbors
    hop = sample(seeds, moments, torch.tensor([-1]), False, own, None, *names)
    assert isinstance(hop.sampled_csc, gf.CSCFormatBase)
    assert isinstance(hop.original_edge_ids, torch.Tensor)
    assert torch.equal(EDGES[0][hop.original_edge_ids], hop.sampled_csc.indices)
    parts = torch.tensor_split(hop.original_edge_ids, hop.sampled_csc.indptr[1:-1]) if columns else []
    for place, (node, time) in enumerate(columns):
        window = None if windows is None else windows[place]
        assert sorted(parts[place].tolist()) == admitted(EDGES, TIMES, BORN, names, (node, time, window))


@given(NAMES, st.lists(st.tuples(st.integers(0, 19), st.integers(-5, 110)), max_size=4), st.booleans(), st.data())
def test_all_that_is_admitted_of_each_type(
    names: Any, columns: list[tuple[int, int]], by_type: bool, data: st.DataObject
) -> None:
    window = data.draw(st.one_of(st.none(), st.integers(0, 120)))
    seeds, moments = (torch.tensor([column[end] for column in columns], dtype=torch.int64) for end in (0, 1))
    both = {"b": seeds, "a": seeds[:2]}, {"b": moments, "a": moments[:2]}
    windows = None if window is None else {kind: torch.full_like(own, window) for kind, own in both[0].items()}
    fanouts = torch.tensor([-1, -1, -1] if by_type else [-1])
    hop = TYPED.temporal_sample_neighbors(*both, fanouts, False, windows, None, *names)
    assert isinstance(hop.sampled_csc, dict)
    assert isinstance(hop.original_edge_ids, dict)
    for kind, ends in TYPED_EDGES.items():
        source, _, destination = kind.split(":")
        found = [
            row
            for node, time in (columns if destination == "b" else columns[:2])
            for row in admitted(ends, TYPED_TIMES[kind], TYPED_BORN[source], names, (node, time, window))
        ]
        assert hop.original_edge_ids[kind].tolist() == found


def test_the_latest_are_taken_of_equal_times_the_last() -> None:
    ends = torch.stack([torch.arange(6), torch.zeros(6, dtype=torch.int64)])
    graph = gf.from_coo(ends, 6, edge_attributes={"time": torch.tensor([5, 1, 5, 9, 5, 2])})

    def latest(count: int) -> Any:
        hop = graph.temporal_sample_neighbors(
            torch.tensor([0]), torch.tensor([9]), torch.tensor([count]), edge_timestamp_attr_name="time",
            strategy="latest",
        )  # fmt: skip
        assert isinstance(hop.original_edge_ids, torch.Tensor)
        return hop.original_edge_ids.tolist()

    assert [latest(count) for count in (0, 1, 2, 4, 9)] == [[], [4], [2, 4], [5, 0, 2, 4], [1, 5, 0, 2, 4]]


@pytest.mark.parametrize("names", [("born", "time"), (None, "time"), ("born", None)])
@pytest.mark.parametrize("strategy", ["uniform", "latest", "labor"])
@pytest.mark.parametrize("window", [None, 30])
def test_one_call_gives_what_hop_after_hop_does(names: Any, strategy: Any, window: int | None) -> None:
    hop_time: Any = "edge" if names[1] else "seed"
    weights = None if strategy == "latest" else "w"
    query = gf.TemporalQuery(names[0], names[1], window, hop_time)
    fanouts, keys = [torch.tensor([2]), torch.tensor([3]), torch.tensor([-1])], [1, 2, 3]
    request = SamplingRequest(fanouts, False, weights, strategy, temporal=query)
    layers = GRAPH.temporal_sample_hops(SEEDS, MOMENTS, request, keys)
    sample = partial(temporal_sample_one_hop, GRAPH)
    assert_same(layers, temporal_sample_hop_by_hop(GRAPH.num_nodes, sample, SEEDS, MOMENTS, request, keys))
    if window is not None:
        each = replace(request, temporal=replace(query, pre_time_window=torch.full_like(SEEDS, window)))
        assert_same(layers, GRAPH.temporal_sample_hops(SEEDS, MOMENTS, each, keys))


def test_what_was_prepared_is_shared_and_made_again_where_an_attribute_changes() -> None:
    times = torch.tensor([30, 10, 20])
    graph = gf.from_coo(THREE, 3, edge_attributes={"time": times})
    request = SamplingRequest([ONE], temporal=gf.TemporalQuery(edge_timestamp_attr_name="time"))
    first = timed_columns(graph, request)
    assert timed_columns(graph, request).times is first.times
    copy = pickle.loads(pickle.dumps(graph))
    made = timed_columns(copy, request)
    assert made.times is timed_columns(copy, request).times
    assert_same(made.order, first.order)
    graph.add_edge_attribute("time", torch.tensor([1, 2, 3]))
    assert timed_columns(graph, request).order is None


def test_fan_outs_by_type_sort_edges_within_their_types_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = {"a:r:a": THREE, "a:s:a": THREE}
    graph = gf.from_coo(edges, {"a": 3}, edge_attributes={"time": dict.fromkeys(edges, torch.tensor([3, 1, 2]))})
    sorted_by_type = []

    def order(*arguments: Any, by_type: bool) -> Any:
        sorted_by_type.append(by_type)
        return time_order(*arguments, by_type=by_type)

    monkeypatch.setattr(temporal_sampling, "time_order", order)
    seeds, moments = {"a": torch.tensor([0])}, {"a": torch.tensor([9])}
    graph.temporal_sample_neighbors(seeds, moments, torch.tensor([1, 1]), edge_timestamp_attr_name="time")
    assert sorted_by_type == [True]


def test_times_of_any_integers_and_nodes_in_the_order_of_time() -> None:
    graph = gf.from_coo(THREE, 3, edge_attributes={"time": torch.tensor([3, 1, 2], dtype=torch.int16)})
    hop = graph.temporal_sample_neighbors(
        torch.tensor([0]), torch.tensor([3], dtype=torch.int32), torch.tensor([-1]), edge_timestamp_attr_name="time"
    )
    assert isinstance(hop.original_edge_ids, torch.Tensor)
    assert hop.original_edge_ids.tolist() == [1, 2]


def sample(graph: gf.FusedCSCSamplingGraph = GRAPH, **options: Any) -> gf.SampledSubgraph:
    arguments: dict[str, Any] = {"seeds": SEEDS, "seeds_timestamp": MOMENTS, "fanouts": ONE} | options
    return graph.temporal_sample_neighbors(**{"edge_timestamp_attr_name": "time"} | arguments)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seeds_timestamp": None}, ValueError, "seeds_timestamp must be provided for temporal neighbor sampling"),
        ({"seeds_timestamp": MOMENTS[:2]}, ValueError, "seeds_timestamp must have 4 values, one per seed, but has 2"),
        ({"seeds_timestamp": MOMENTS / 2}, TypeError, "seeds_timestamp must be torch.int64, but is torch.float32"),
        ({"seeds_pre_time_window": ONE}, ValueError, "seeds_pre_time_window must have 4 values"),
        ({"seeds_pre_time_window": -SEEDS}, ValueError, "windows must be 0 or more, but one is -7"),
        ({"edge_timestamp_attr_name": "when"}, KeyError, "Edge attribute when does not exist; the graph has ["),
        ({"node_timestamp_attr_name": "when"}, KeyError, "Node attribute when does not exist"),
        ({"node_timestamp_attr_name": "half"}, TypeError, "the nodes' timestamps must be torch.int64"),
        ({"probs_name": "p"}, KeyError, "Edge attribute p does not exist"),
        ({"seeds": SEEDS + SIZE}, ValueError, "seeds must lie in 0 .. 39"),
        ({"seeds": SEEDS.float()}, TypeError, "seeds must be torch.int32 or torch.int64, but is torch.float32"),
        ({"seeds": {"a": SEEDS}, "seeds_timestamp": {"a": MOMENTS}}, TypeError, "but is {"),
        ({"fanouts": torch.tensor([1, 2])}, ValueError, "fanouts of a hop must hold 1 number"),
        ({"strategy": "latest", "replace": True}, ValueError, "strategy='latest' takes each edge once"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        sample(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seeds_timestamp": MOMENTS}, TypeError, "seeds_timestamp must be a dict by node type, as seeds is"),
        ({"seeds_timestamp": {"c": MOMENTS}}, KeyError, "seeds_timestamp has node type 'c', but the graph has"),
        ({"seeds_timestamp": {"b": MOMENTS}}, ValueError, "seeds_timestamp['a'] must have 4 values, one per seed"),
        ({"seeds": SEEDS}, TypeError, "seeds must be a dict by node type"),
    ],
)
def test_errors_of_a_graph_with_types(options: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"seeds": {"a": SEEDS}, "seeds_timestamp": {"a": MOMENTS}} | options
    if options.get("seeds") is SEEDS:
        given["seeds_timestamp"] = MOMENTS
    with pytest.raises(error, match=re.escape(words)):
        sample(TYPED, **given)
