import pickle
from typing import Any
from unittest.mock import patch

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling.temporal_sampling import timed_columns
from graphfeed.storage.graph.sampling_request import Strategy
from tests.datapipes.samplers.test_temporal_neighbor_sampler import GRAPH, ITEMS, MOMENTS, SEEDS
from tests.digests import assert_same, digests


class Newest(gf.TemporalSampler):
    """A sampler of a user."""

    @property
    def chosen_by(self) -> Strategy:
        return "latest"


def test_a_subclass_says_how_edges_are_chosen() -> None:
    named = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time", strategy="latest")
    assert digests(Newest(ITEMS, GRAPH, [3, 2], edge_timestamp_attr_name="time")) == digests(named)
    with pytest.raises(NotImplementedError, match="TemporalSampler must write chosen_by"):
        gf.TemporalSampler(ITEMS, GRAPH, [3], edge_timestamp_attr_name="time")


def test_each_seed_may_have_a_window_of_its_own() -> None:
    stage: Any = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time")
    same: Any = ITEMS.temporal_sample_neighbor(GRAPH, [3, 2], edge_timestamp_attr_name="time", pre_time_window=300)
    torch.manual_seed(0)
    expected = same.sample_subgraphs(SEEDS, MOMENTS)
    torch.manual_seed(0)
    assert_same(stage.sample_subgraphs(SEEDS, MOMENTS, torch.full_like(SEEDS, 300)), expected)


def test_what_is_prepared_is_shared_with_workers() -> None:
    times = torch.randint(0, 100, (2000,), generator=torch.Generator().manual_seed(0))
    edges = torch.randint(0, 50, (2, 2000), generator=torch.Generator().manual_seed(1))
    graph = gf.from_coo(edges, 50, edge_attributes={"time": times})
    stage: Any = ITEMS.temporal_sample_neighbor(graph, [3], edge_timestamp_attr_name="time")
    copy = pickle.loads(pickle.dumps(stage))
    with patch.object(ops, "order_by_time", side_effect=AssertionError("made again")):
        assert_same(timed_columns(copy.graph, copy.request), timed_columns(graph, stage.request))
    assert timed_columns(graph, stage.request).links is not None


class Plain(gf.SamplingGraph):
    """A graph that knows no time."""

    num_nodes = num_edges = 5

    def sample_neighbors(self, seeds: ByType, *args: Any, **kwargs: Any) -> gf.SampledSubgraph:
        raise AssertionError


def test_a_graph_may_lack_it() -> None:
    stage: Any = ITEMS.temporal_sample_neighbor(Plain(), [1], edge_timestamp_attr_name="time")
    with pytest.raises(NotImplementedError, match="Plain has no temporal_sample_hops"):
        next(iter(stage))
