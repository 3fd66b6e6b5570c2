"""The loaders of a task yield the same mini-batches as pipelines that are written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.digests import digests
from tests.kinds.pipelines import random_edges
from tests.kinds.refusals import check_refused

NODES = 60
EDGES = {"a:to:b": random_edges(NODES, NODES, 300, 0), "b:back:a": random_edges(NODES, NODES, 300, 1)}
TYPED = gf.from_coo(EDGES, {"a": NODES, "b": NODES})
GRAPH = gf.from_coo(EDGES["a:to:b"], NODES)
ROWS = gf.TorchBasedFeature(torch.rand(NODES, 3))
OF_EDGES = gf.TorchBasedFeature(torch.arange(300)[:, None])
STORE = gf.BasicFeatureStore({("node", None, "x"): ROWS, ("node", None, "y"): ROWS, ("edge", None, "w"): OF_EDGES})
TYPED_STORE = gf.BasicFeatureStore({("node", "a", "x"): ROWS, ("node", "b", "z"): ROWS})
NODE_SET = gf.ItemSet((torch.arange(40), torch.arange(40)), names=("seeds", "labels"))
PAIRS = gf.ItemSet(EDGES["a:to:b"].T[:50], names="seeds")
LABELLED = gf.ItemSet((EDGES["a:to:b"].T[50:80], torch.arange(30) % 2), names=("seeds", "labels"))
TYPED_PAIRS = gf.HeteroItemSet({"a:to:b": PAIRS})
NODES_AND_EDGES = gf.HeteroItemSet({"a": gf.ItemSet(9, names="seeds"), "a:to:b": PAIRS})
EDGES_AND_NODES = gf.HeteroItemSet({"a:to:b": PAIRS, "a": gf.ItemSet(9, names="seeds")})
BATCH_SIZE, FANOUTS = 16, [3, 2]
LOADERS: Any = gf.loaders
Fetch = Callable[[gf.Datapipe], gf.Datapipe]


def task(train: Any, validation: Any = None, test: Any = None) -> gf.OnDiskTask:
    return gf.OnDiskTask({"name": "some"}, train, validation, test)


def fetched(pipe: gf.Datapipe) -> gf.Datapipe:
    return pipe.fetch_feature(STORE, ["x", "y"], ["w"])


def epoch_of(loader: Any) -> list[str]:
    with loader:
        return digests(loader)


def written(items: Any, shuffle: bool, *stages: Fetch) -> list[str]:
    """Return the mini-batches of a pipeline that is written by hand."""
    pipe: gf.Datapipe = gf.ItemSampler(items, BATCH_SIZE, shuffle=shuffle)
    for stage in stages:
        pipe = stage(pipe)
    return epoch_of(gf.DataLoader(pipe, num_workers=0, seed=3))


def test_nodes_are_sampled_and_all_features_fetched_and_training_shuffles() -> None:
    train, validation, test = gf.loaders(
        task(NODE_SET, NODE_SET), GRAPH, FANOUTS, BATCH_SIZE, STORE, num_workers=2, seed=3
    )
    stages = (lambda pipe: pipe.sample_neighbor(GRAPH, FANOUTS), fetched)
    assert epoch_of(train) == written(NODE_SET, True, *stages)
    assert epoch_of(validation) == written(NODE_SET, False, *stages)
    assert test is None


def test_a_set_without_items_has_no_loader() -> None:
    none = gf.HeteroItemSet({"a:to:b": gf.ItemSet(torch.empty(0, 2, dtype=torch.int64), names="seeds")})
    train, _, test = gf.loaders(task(TYPED_PAIRS, none, none), TYPED, FANOUTS, BATCH_SIZE, num_workers=0)
    assert len(train) == 4
    assert test is None


def test_edges_without_labels_get_negatives_and_are_not_shown_in_either_direction() -> None:
    train, validation, test = gf.loaders(
        task(PAIRS, LABELLED, PAIRS), GRAPH, FANOUTS, BATCH_SIZE, STORE, 2, num_workers=0, seed=3
    )
    behind = (lambda pipe: pipe.sample_neighbor(GRAPH, FANOUTS).exclude_seed_edges(True), fetched)
    stages = (lambda pipe: pipe.sample_uniform_negative(GRAPH, 2), *behind)
    assert epoch_of(train) == written(PAIRS, True, *stages)
    assert epoch_of(validation) == written(LABELLED, False, *behind)
    assert epoch_of(test) == written(PAIRS, False, *stages)


@pytest.mark.parametrize("reverse", [None, {"a:to:b": "b:back:a"}])
def test_of_edges_with_types_those_back_are_left_out_where_they_are_named(reverse: dict[str, str] | None) -> None:
    train, _, _ = gf.loaders(
        task(TYPED_PAIRS), TYPED, FANOUTS, BATCH_SIZE, TYPED_STORE, reverse_etypes=reverse, num_workers=0, seed=3
    )
    expected = written(
        TYPED_PAIRS,
        True,
        lambda pipe: pipe.sample_uniform_negative(TYPED, 1).sample_neighbor(TYPED, FANOUTS),
        lambda pipe: pipe.exclude_seed_edges(reverse is not None, reverse),
        lambda pipe: pipe.fetch_feature(TYPED_STORE, {"a": ["x"], "b": ["z"]}),
    )
    assert epoch_of(train) == expected


def test_features_may_be_left_out() -> None:
    train, _, _ = gf.loaders(task(gf.ItemSet(NODES, names="seeds")), GRAPH, [1], BATCH_SIZE, num_workers=0)
    assert {batch.node_features for batch in train} == {None}


TIMES = torch.arange(300) % 90
TIMED = gf.from_coo(EDGES["a:to:b"], NODES, edge_attributes={"time": TIMES}, node_attributes={"since": TIMES[:NODES]})
EVENTS = gf.ItemSet((EDGES["a:to:b"].T[:50], TIMES[:50]), names=("seeds", "timestamp"))
DATED = gf.ItemSet((torch.arange(40), torch.arange(40)), names=("seeds", "timestamp"))


def test_items_with_times_are_sampled_in_time() -> None:
    train, validation, _ = gf.loaders(task(EVENTS, DATED), TIMED, FANOUTS, BATCH_SIZE, num_workers=2, seed=3)
    in_time: Any = {"graph": TIMED, "fanouts": FANOUTS, "edge_timestamp_attr_name": "time"}
    assert epoch_of(train) == written(
        EVENTS,
        True,
        lambda pipe: pipe.sample_uniform_negative(TIMED, 1).temporal_sample_neighbor(**in_time),
        lambda pipe: pipe.exclude_seed_edges(True),
    )
    assert epoch_of(validation) == written(DATED, False, lambda pipe: pipe.temporal_sample_neighbor(**in_time))


def test_the_times_of_a_graph_may_have_any_name() -> None:
    train, _, _ = gf.loaders(task(DATED), TIMED, FANOUTS, BATCH_SIZE, time_attr="since", num_workers=0, seed=3)
    in_time: Any = {"graph": TIMED, "fanouts": FANOUTS, "node_timestamp_attr_name": "since"}
    assert epoch_of(train) == written(DATED, True, lambda pipe: pipe.temporal_sample_neighbor(**in_time))


def test_what_is_wrong_is_named() -> None:
    both = r"task has node items, \['a'\], as well as edge items, \['a:to:b'\]; pass a separate task to loaders"
    timed = gf.ItemSet((torch.arange(4), torch.arange(4)), names=("seeds", "timestamp"))
    nodes = task(NODE_SET)

    def call(**other: Any) -> Callable[[], object]:
        given = {"task": nodes, "graph": GRAPH, "fanouts": [1], "batch_size": 8} | other
        return lambda: LOADERS(**given)

    check_refused(
        [
            (call(task=[nodes]), TypeError, r"task must be a Task, but is \[an OnDiskTask\]"),
            (
                call(task=task(NODE_SET, timed)),
                ValueError,
                "neither nodes nor edges of the graph have an attribute 'time'",
            ),
            *((call(task=task(mixed), graph=TYPED), ValueError, both) for mixed in (NODES_AND_EDGES, EDGES_AND_NODES)),
            (call(graph=nodes), TypeError, "graph must be a SamplingGraph, but is an OnDiskTask"),
            (call(batch_size=0), ValueError, "batch_size must be 1 or more, but is 0"),
            (call(features={}), TypeError, "features must be a FeatureStore, but is {}"),
            (call(task=task(PAIRS), negative_ratio=0), ValueError, "negative_ratio is 0; give the number"),
            (
                call(task=task(TYPED_PAIRS), graph=TYPED, reverse_etypes={"a:to:b": "b:bakc:a"}),
                KeyError,
                r"has 'b:bakc:a', but the edge types are \['a:to:b', 'b:back:a'\]; did you mean 'b:back:a'",
            ),
            (call(reverse_etypes="b:back:a"), TypeError, "reverse_etypes must be a dict, but is 'b:back:a'"),
            (call(workers=2), TypeError, "no argument 'workers'; did you mean 'worker' or 'num_workers'"),
        ]
    )
