"""The nodes that a node met before a time, by the first edges of pairs and by all earlier edges."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import nodes_met
from graphfeed.testing import limits
from tests.kinds.digests import digests
from tests.kinds.events import FIRST_ITEM, NUM_NODES, event_graph, event_items
from tests.kinds.slow_events import seen


def met(graph: Any, nodes: list[int], times: list[int]) -> list[list[int]]:
    found = nodes_met(graph, "time", torch.tensor(nodes), torch.tensor(times))
    assert found is not None
    ids, counts = found
    return [sorted(part.tolist()) for part in np.split(ids, counts.cumsum()[:-1])]


def test_nodes_met_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    nodes = rng.integers(0, NUM_NODES, 500).tolist()
    times = rng.integers(995, 1305, 500).tolist()
    expected = [sorted({other for other, _, _ in seen(*own)}) for own in zip(nodes, times, strict=True)]
    assert max(map(len, expected)) > 10
    assert met(event_graph(), nodes, times) == expected


def test_a_graph_without_edges_has_no_meetings() -> None:
    graph = gf.from_coo(torch.empty(2, 0, dtype=torch.int64), 3, edge_attributes={"time": torch.empty(0).long()})
    assert met(graph, [0, 2], [5, 6]) == [[], []]


def test_other_times_are_read_again() -> None:
    graph = gf.from_coo(([1, 2], [0, 0]), 3, edge_attributes={"time": torch.tensor([3, 5])})
    assert met(graph, [0], [4]) == [[1]]
    graph.add_edge_attribute("time", torch.tensor([5, 3]))
    assert met(graph, [0], [4]) == [[2]]
    assert met(pickle.loads(pickle.dumps(graph)), [0], [4]) == [[2]]


@pytest.mark.parametrize("strict", [False, True])
def test_little_memory_changes_no_negative(strict: bool) -> None:
    def negatives() -> list[str]:
        pipe: Any = gf.ItemSampler(event_items(), batch_size=50, shuffle=True)
        pipe = pipe.sample_temporal_negative(
            event_graph(), "seen", 3, strict, edge_timestamp_attr_name="time", destinations=(FIRST_ITEM, NUM_NODES)
        )
        return digests(pipe)

    expected = negatives()
    with limits(memory_bytes=0):
        assert nodes_met(event_graph(), "time", torch.tensor([0]), torch.tensor([1])) is None
        assert negatives() == expected
