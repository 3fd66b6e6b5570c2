"""Errors of a graph in memory: each names the argument, the value found, and what to do."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
import torch

import graphfeed as gf
from graphfeed.storage import SamplingRequest, fused_csc_sampling_graph
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.small_graphs import ALL, INDICES, INDPTR, make_graph, make_typed_graph

ZERO = torch.tensor([0])


def of_arrays(indptr: Any = INDPTR, indices: Any = INDICES, **attributes: Any) -> Callable[[], object]:
    return lambda: fused_csc_sampling_graph(indptr, indices, **attributes)


def of_types(**changed: Any) -> Callable[[], object]:
    arrays = make_typed_graph().fields()
    return lambda: fused_csc_sampling_graph(**{**arrays, **changed})


NO_GRAPHS: list[Refusal] = [
    (of_arrays(torch.tensor([], dtype=torch.int64)), ValueError, r"csc_indptr must start with 0, but is \[\]"),
    (of_arrays(INDPTR + 1), ValueError, r"csc_indptr must start with 0, but is \[1, 4, 5\]\.\.\.; is it CSC\?"),
    (of_arrays(indices=INDICES[:8]), ValueError, r"csc_indptr must end with the number of edges, 8 \(the length of "),
    (of_arrays(torch.tensor([0, 3, 2, 9])), ValueError, "must not decrease, but goes from 3 to 2 at node 1; it must"),
    (of_arrays(indices=INDICES + 1), ValueError, r"indices must be in 0 \.\. 4, but holds 5; check the ids"),
    (of_arrays(INDPTR.float()), TypeError, r"csc_indptr must be torch.int32 or torch.int64, but is torch.float32"),
    (of_arrays(indices=INDICES.short()), TypeError, "indices must be torch.int32 or torch.int64, but is torch.int16;"),
    (of_arrays("012"), TypeError, "csc_indptr must be a torch.Tensor, a NumPy array, or a list of numbers or of rows"),
    (of_arrays(edge_attributes={"w": torch.ones(5)}), ValueError,
     r"edge_attributes\['w'\] must have 9 rows, one for each edge, but has 5"),
    (of_arrays(node_attributes={"w": torch.tensor(5)}), ValueError,
     r"node_attributes\['w'\] must have 5 rows, .*, but has no dimension"),
    (of_arrays(node_attributes={"w": ["a"] * 5}), TypeError,
     r"node_attributes\['w'\] must be a torch.Tensor, .* but is \['a', 'a', .* 5 in"),
]  # fmt: skip
NO_TYPES: list[Refusal] = [
    (of_types(node_type_offset=None), ValueError, r"a graph with types needs all of \['node_type_offset', 'type_per_"),
    (of_types(edge_type_to_id=None), ValueError, r"but \['edge_type_to_id'\] is None"),
    (of_types(node_type_offset=torch.tensor([0, 5])), ValueError, r"3 values that rise from 0 to 5, but is \[0, 5\]"),
    (of_types(node_type_offset=torch.tensor([0, 3, 5])), ValueError, "type_per_edge is 2 for edge 2, but that type"),
    (of_types(node_type_to_id={"user": 1, "item": 2}), ValueError, "node_type_to_id must number its types 0 .. 1, but"),
    (of_types(node_type_to_id={"user": 0, "thing": 1}), ValueError, "Unrecognized node type 'item' in '.*'; there are"),
    (of_types(edge_type_to_id={"user:user": 0}), ValueError, "edge_type_to_id has 'user:user'; an edge type is 'sour"),
    (of_types(edge_type_to_id={"user:knows:user": 0}), ValueError, "type_per_edge must be in 0 .. 0, but holds 2"),
    (of_types(type_per_edge=ZERO), ValueError, "type_per_edge must have 6 values, one per edge, but has 1"),
    (of_types(type_per_edge=torch.tensor([0, 2, 0, 2, 1, 1])), ValueError, "must ascend inside each column, but falls"),
    (of_types(type_per_edge=torch.tensor([1, 0, 2, 2, 1, 1])), ValueError, "type_per_edge is 1 for edge 0, but that"),
    (of_types(type_per_edge=torch.zeros(6)), TypeError, r"type_per_edge must be .*, but is torch\.float32"),
    (of_types(node_type_offset=torch.zeros(3)), TypeError, r"node_type_offset must be .*, but is torch\.float32"),
]


def test_arrays_that_are_no_graph_and_types_that_do_not_agree() -> None:
    assert fused_csc_sampling_graph(**make_typed_graph().fields()).total_num_edges == 6
    check_refused([*NO_GRAPHS, *NO_TYPES])


Sample = Callable[[gf.FusedCSCSamplingGraph, Any], object]
WAYS: dict[str, Sample] = {
    "sample_neighbors": lambda graph, seeds: graph.sample_neighbors(seeds, ALL),
    "sample_layer_neighbors": lambda graph, seeds: graph.sample_layer_neighbors(seeds, ALL),
    "in_subgraph": lambda graph, seeds: graph.in_subgraph(seeds),
    "sample_hops": lambda graph, seeds: graph.sample_hops(seeds, SamplingRequest([ALL]), [0]),
}
SEEDS: list[tuple[Any, type[Exception], str]] = [
    (torch.tensor([0, 5]), ValueError, r"seeds must be in 0 \.\. 4, but holds 5"),
    (torch.tensor([-1]), ValueError, r"seeds must be in 0 \.\. 4, but holds -1"),
    (["0"], TypeError, "seeds must be a torch.Tensor, a NumPy array, or a list of numbers or of rows"),
    ({"user": ZERO}, TypeError, "seeds is a dict by type, but the graph has one type; give a tensor"),
]
SEEDS_BY_TYPE: list[tuple[Any, type[Exception], str]] = [
    ({"thing": ZERO}, KeyError, r"seeds have node type 'thing', but the graph has \['item', 'user'\]"),
    ({"user": torch.tensor([2])}, ValueError, r"seeds of type 'user' must be in 0 \.\. 1, but holds 2"),
    ({"item": torch.tensor([0, -1])}, ValueError, r"seeds of type 'item' must be in 0 \.\. 2, but holds -1"),
    (ZERO, TypeError, r"seeds must be a dict by node type, as the graph has types \['item', 'user'\], but is a Tens"),
]


def test_seeds_that_are_no_nodes_also_before_they_are_converted() -> None:
    for way in WAYS.values():
        for graph, table in ((make_graph(), SEEDS), (make_typed_graph(), SEEDS_BY_TYPE)):
            check_refused((partial(way, graph, seeds), kind, words) for seeds, kind, words in table)
    narrow, typed, far = fused_csc_sampling_graph(INDPTR, INDICES.int()), make_typed_graph(), [0, 2**32]
    typed.indices = typed.indices.int()
    given: Any = far
    check_refused([
        (lambda: narrow.sample_neighbors(torch.tensor(far), ALL), ValueError, r"0 \.\. 4, but holds 4294967296"),
        (lambda: narrow.sample_neighbors(given, ALL), ValueError, r"seeds must be in 0 \.\. 4, but holds 4294967296"),
        (lambda: typed.sample_neighbors({"user": given}, ALL), ValueError, "'user' must be in .* holds 4294967296"),
    ])  # fmt: skip


def fanouts(fanout: Any) -> Callable[[], object]:
    """Return a call with a fan-out for which all ways of sampling one hop raise the same error."""

    def sample() -> None:
        raised = []
        for graph, seeds in ((make_graph(), ZERO), (make_typed_graph(), {"user": ZERO})):
            for name in ("sample_neighbors", "sample_layer_neighbors"):
                with pytest.raises((TypeError, ValueError)) as caught:
                    getattr(graph, name)(seeds, fanout)
                raised.append(caught.value)
        assert len({str(error).partition(", ")[0] for error in raised}) == 1, raised
        raise raised[0]

    return sample


def weights(values: torch.Tensor, name: str = "w") -> Callable[[], object]:
    return lambda: make_graph(w=values).sample_neighbors(ZERO, ALL, probs_name=name)


def labor(**options: Any) -> Callable[[], object]:
    return lambda: make_graph(w=torch.ones(9)).sample_layer_neighbors(ZERO, ALL, **options)


def hops(*keys: int, graph: Any = make_graph, seeds: Any = ZERO, **options: Any) -> Callable[[], object]:
    return lambda: graph().sample_hops(seeds, SamplingRequest([ALL, ALL], **options), keys)


class OwnTypedGraph(gf.SamplingGraph):
    """A user-defined graph that doesn't check its seeds."""

    num_nodes: ClassVar[Any] = {"item": 3}
    num_edges: ClassVar[Any] = {"item:by:item": 0}

    def sample_neighbors(self, seeds: Any, *options: Any, **named: Any) -> gf.SampledSubgraph:
        none = gf.CSCFormatBase(torch.zeros(len(seeds) + 1, dtype=torch.int64), ZERO[:0])
        return gf.SampledSubgraph(none, seeds)


def walks(start: int, length: int, graph: Any = make_graph) -> Callable[[], object]:
    return lambda: graph().random_walks(torch.tensor([start]), length)


ONE_HOP: list[Refusal] = [
    (fanouts(torch.tensor([-2])), ValueError, r"fanouts must be -1 \(all neighbours\) or more, but holds -2"),
    (fanouts(torch.tensor([1, 1])), ValueError, "fanouts of a hop must hold 1 number, but hold 2"),
    (fanouts(["a"]), TypeError, "fanouts must be a torch.Tensor, a NumPy array, or a list of numbers"),
    (weights(torch.full((9,), -1.0)), ValueError, "weights must be finite and not negative, but range from -1.0 to"),
    (weights(torch.ones(9).long()), TypeError, "weights must be torch.bool, torch.float16, torch"),
    (weights(torch.ones(9), "x"), KeyError, r"Edge attribute x does not exist; the graph has \['w'\]"),
    (labor(random_seed=[1, 2, 3]), ValueError, "random_seed must hold 1 or 2 numbers, but holds 3"),
    (labor(random_seed=7), TypeError, "random_seed must hold 1 or 2 numbers, but is 7; put it in a list"),
    (labor(random_seed=[1, 2], seed2_contribution=1.5), ValueError,
     r"seed2_contribution must be in 0 \.\. 1, but is 1\.5"),
]  # fmt: skip
HOPS: list[Refusal] = [
    (hops(1), ValueError, r"keys must hold 2 numbers, one per hop, but holds|zip\(\) argument 2 is"),
    (hops(1, graph=make_typed_graph, seeds={"user": ZERO}), ValueError, r"keys must hold 2 numbers|zip\(\) argument 2"),
    (hops(1, 2, graph=OwnTypedGraph), TypeError, "seeds must be a dict by node type for this graph, but is a Tensor"),
    (hops(1, 2, probs_name="x"), KeyError, r"Edge attribute x does not exist; the graph has \[\]"),
    (walks(0, -1), ValueError, "length must be 0 or more, but is -1"),
    (walks(0, 1, make_typed_graph), ValueError, "on a graph with types need the edge type of each step; give etypes"),
]
EDGE_TIME, NODE_TIME = gf.TemporalQuery(edge_timestamp_attr_name="time"), gf.TemporalQuery("time")
BY_EDGE = gf.TemporalQuery(edge_timestamp_attr_name="time", hop_time="edge")


def request(**options: Any) -> Callable[[], object]:
    return lambda: SamplingRequest([ALL], **options)


def query(**options: Any) -> Callable[[], object]:
    return lambda: gf.TemporalQuery(**options)


REQUESTS: list[Refusal] = [
    (request(strategy="last"), ValueError, "strategy must be one of .*, but is 'last'"),
    (request(strategy="latest"), ValueError, "strategy='latest' needs timestamps"),
    (request(strategy="latest", replace=True, temporal=EDGE_TIME), ValueError,
     "strategy='latest' takes each edge once"),
    (request(disjoint=True), ValueError, "disjoint needs only_new=True"),
    (request(only_new=True, deduplicate=False), ValueError, "only_new merges nodes"),
    (request(only_new=True, temporal=NODE_TIME), ValueError, "temporal only_new needs disjoint"),
    (request(only_new=True, disjoint=True, temporal=BY_EDGE), ValueError, "disjoint needs hop_time='seed'"),
    (query(hop_time="node"), ValueError, "hop_time must be one of .*, but is 'node'"),
    (query(hop_time="edge"), ValueError, "hop_time='edge' needs the times of edges"),
    (query(pre_time_window=-1), ValueError, "pre_time_window must be an integer, 0 or more, but is -1"),
    (query(pre_time_window=1.5), TypeError, "pre_time_window must be an integer, as the times are"),
]  # fmt: skip


def test_what_can_not_be_sampled() -> None:
    check_refused([*ONE_HOP, *HOPS, *REQUESTS])


MOMENTS = torch.tensor([50, 90, 20])


def in_time(graph: gf.FusedCSCSamplingGraph, **options: Any) -> Callable[[], object]:
    given: dict[str, Any] = {"seeds": torch.tensor([3, 0, 3]), "seeds_timestamp": MOMENTS, "fanouts": ALL} | options
    return lambda: graph.temporal_sample_neighbors(**{"edge_timestamp_attr_name": "time"} | given)


def test_times_that_do_not_fit() -> None:
    graph = make_graph(time=torch.arange(9), p=torch.ones(9))
    graph.add_node_attribute("half", torch.ones(5) / 2)
    typed, by_type = make_typed_graph(time=torch.arange(6)), {"user": torch.tensor([0, 1])}
    check_refused([
        (in_time(graph, seeds_timestamp=None), ValueError, "seeds_timestamp must be provided for temporal neighbor"),
        (in_time(graph, seeds_timestamp=MOMENTS[:2]), ValueError, "must have 3 values, one per seed, but has 2"),
        (in_time(graph, seeds_timestamp=MOMENTS / 2), TypeError, "seeds_timestamp must be torch.int64, but is torc"),
        (in_time(graph, seeds_pre_time_window=ALL), ValueError, "seeds_pre_time_window must have 3 values"),
        (in_time(graph, seeds_pre_time_window=-MOMENTS), ValueError, "windows must be 0 or more, but one is -90"),
        (in_time(graph, edge_timestamp_attr_name="when"), KeyError, r"attribute when does not exist; the graph has \["),
        (in_time(graph, node_timestamp_attr_name="when"), KeyError, "Node attribute when does not exist"),
        (in_time(graph, node_timestamp_attr_name="half"), TypeError, "the nodes' timestamps must be torch.int64"),
        (in_time(graph, probs_name="x"), KeyError, "Edge attribute x does not exist"),
        (in_time(graph, strategy="latest", probs_name="p"), ValueError,
         "whatever its weight, but 'p' has weights of torch.float32; name a mask"),
        (in_time(typed, seeds=by_type), TypeError, "seeds_timestamp must be a dict by node type, as seeds is"),
        (in_time(typed, seeds=by_type, seeds_timestamp={"c": MOMENTS}), KeyError,
         "seeds_timestamp has node type 'c', but the graph has"),
        (in_time(typed, seeds=by_type, seeds_timestamp={"user": MOMENTS}), ValueError,
         r"seeds_timestamp\['user'\] must have 2 values, one per seed"),
        (lambda: graph.sample_hops(ZERO, SamplingRequest([ALL]), [1], seeds_timestamp=ZERO), ValueError,
         "no temporal query"),
    ])  # fmt: skip
