from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline import find
from graphfeed.loader.stages.sampled_together import SampledTogether
from graphfeed.storage.graph.sampling import mapped_arrays
from graphfeed.storage.memory import mapped_file
from tests.digests import digests

pytestmark = pytest.mark.usefixtures("fork_server")

NODES = 2000


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gf.FusedCSCSamplingGraph:
    """Return a graph in a file that is larger than the memory."""
    monkeypatch.setattr(mapped_file, "LEAST_MAPPED", 0)
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 90_000.0)
    nodes = torch.arange(NODES)
    edges = nodes.repeat(3), torch.cat([nodes * 7, nodes * 11, nodes + 1]) % NODES
    gf.from_coo(edges, NODES).save(tmp_path / "graph")
    return gf.load_graph(tmp_path / "graph")


def pipe_of(graph: gf.SamplingGraph, **options: Any) -> gf.Datapipe:
    items = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=64, shuffle=True)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.arange(NODES)[:, None])})
    pipe = items.sample_neighbor(graph, fanouts=[2, 2], **options)
    return pipe.fetch_feature(store, node_feature_keys=["feat"])


def together(pipe: gf.Datapipe, **options: Any) -> list[Any]:
    return list(find(gf.DataLoader(pipe, **options).plan.running, SampledTogether))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_mini_batches_are_those_that_are_sampled_apart(graph: gf.FusedCSCSamplingGraph, num_workers: int) -> None:
    loader = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    assert "sample_together" in loader.explain()
    assert digests(loader) == digests(gf.DataLoader(pipe_of(graph), num_workers, seed=3, window=0))
    sampled = gf.DataLoader(pipe_of(graph).datapipe, num_workers, seed=3)  # type: ignore[attr-defined]
    assert len(list(sampled)) == len(sampled) == 32
    loader = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    again = gf.DataLoader(pipe_of(graph), num_workers, seed=3)
    again.load_state_dict(loader.state_dict())
    assert digests(again) == digests(gf.DataLoader(pipe_of(graph), 0, seed=3, window=0))[4:]


def test_a_window_is_as_large_as_asked_and_as_there_is_memory_for(graph: gf.FusedCSCSamplingGraph) -> None:
    for options, size in (({"window": 5}, 5), ({"window": 500}, 32), ({}, 32)):
        (stage,) = together(pipe_of(graph), num_workers=2, **options)
        assert stage.window == size
        assert stage.together.sample_bytes == 90_000 / 4
    (stage,) = together(pipe_of(graph), num_workers=2, memory_limit=10_000)
    assert stage.together.sample_bytes == 10_000


def test_what_is_not_read_together_is_sampled_apart(
    graph: gf.FusedCSCSamplingGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert together(pipe_of(graph), num_workers=2, window=0) == []
    assert together(pipe_of(graph), num_workers=2, worker="process") == []
    assert together(pipe_of(graph, only_new=True), num_workers=2) == []
    assert together(pipe_of(graph, deduplicate=False), num_workers=2) == []
    assert together(pipe_of(gf.from_coo(([0], [1]), NODES)), num_workers=2) == []
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 200_000.0)
    assert together(pipe_of(graph), num_workers=2) == []
