from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampled_subgraph import ByType
from tests import pipelines
from tests.digests import assert_same

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"w": torch.rand(600)})
EMPTY = gf.IterableSource([])


class Alike(gf.FanoutSampler):
    """Samples each mini-batch alike."""

    def sample_hops(self, seeds: ByType) -> list[gf.SampledSubgraph]:
        return self.graph.sample_hops(seeds, self.request, range(len(self.fanouts)))


def test_fields_are_those_of_samplers_with_fanouts() -> None:
    pipe = Alike(gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20), GRAPH, [2], True, "w")
    assert (pipe.replace, pipe.prob_name) == (True, "w")
    assert_same(pipe.request.fanouts, [torch.tensor([2])])
    batch = next(iter(pipe))
    (layer,) = batch.sampled_subgraphs
    assert layer.sampled_csc.indptr.diff().max() <= 2
    assert batch.input_nodes is layer.original_row_node_ids
    with pytest.raises(NotImplementedError, match="FanoutSampler must write sample_hops"):
        next(iter(gf.FanoutSampler(pipe, GRAPH, [2])))


@pytest.mark.parametrize("fanouts", [[], [1.5], [-2], [[1, 2]]])
def test_fanouts_are_checked_when_the_pipeline_is_written(fanouts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^fanouts"):
        Alike(EMPTY, GRAPH, fanouts)


def test_weights_and_graph_are_checked_too() -> None:
    with pytest.raises(KeyError, match="Edge attribute x does not exist"):
        Alike(EMPTY, GRAPH, [1], prob_name="x")
    items: Any = gf.ItemSet(3)
    with pytest.raises(TypeError, match="graph must be a SamplingGraph, but is a ItemSet"):
        Alike(EMPTY, items, [1])


@pytest.mark.parametrize("kind", [gf.NeighborSampler, gf.LayerNeighborSampler])
def test_options_of_samplers_on_gpus(kind: Any) -> None:
    """What changes only the speed is taken and has no effect; what would change the result is refused."""
    items = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=20)
    faster = kind(
        items, GRAPH, [2, 3], overlap_fetch=True, num_gpu_cached_edges=9, gpu_cache_threshold=2, asynchronous=True
    )
    for one, other in zip(kind(items, GRAPH, [2, 3]), faster, strict=True):
        assert_same(one, other)
    with pytest.raises(
        ValueError, match=r"^cooperative must be False: ranks don't sample for each other here; leave it"
    ):
        kind(items, GRAPH, [2, 3], cooperative=True)
