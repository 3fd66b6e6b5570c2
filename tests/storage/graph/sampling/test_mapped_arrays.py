"""A graph in a file that may not stay in memory is read by page, with the same results."""

import pickle
from pathlib import Path

import pytest
import torch

from graphfeed.storage import FusedCSCSamplingGraph, from_coo, load_graph
from graphfeed.storage.graph.sampling import mapped_arrays
from graphfeed.storage.graph.sampling.mapped_arrays import in_passes, mapped_reads
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.memory import mapped_file
from tests.digests import assert_same

NUM_NODES = 3000
SEEDS, REQUEST = torch.arange(0, NUM_NODES, 7), SamplingRequest((torch.tensor([3]), torch.tensor([-1])))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a graph that is more than may be taken to stay in memory."""
    monkeypatch.setattr(mapped_file, "LEAST_MAPPED", 0)
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 4 * 80_000 * 8)
    edges = torch.randint(0, NUM_NODES, (2, 80_000))
    from_coo((edges[0], edges[1]), NUM_NODES, edge_attributes={"w": torch.rand(80_000)}).save(tmp_path / "graph")
    return tmp_path / "graph"


def is_read_by_page(graph: FusedCSCSamplingGraph) -> bool:
    reads = mapped_reads(graph)
    return reads is not None and reads.from_disk


def advice_for(graph: FusedCSCSamplingGraph) -> bool:
    """Tell whether the system knows that a graph's sources are read at random, by its table of mappings."""
    place, inside = graph.indices.data_ptr() // 4096 * 4096, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            low, high = (int(part, 16) for part in first.split("-"))
            inside = low <= place < high
        elif inside and first == "VmFlags:":
            return "rr" in line.split()
    raise AssertionError("the graph is not mapped")


def test_what_is_sampled_by_page_is_the_same(path: Path) -> None:
    graph, in_memory = load_graph(path), pickle.loads(pickle.dumps(load_graph(path)))
    in_memory.csc_indptr, in_memory.indices = in_memory.csc_indptr.clone(), in_memory.indices.clone()
    assert is_read_by_page(graph)
    assert mapped_reads(in_memory) is None
    for request in (REQUEST, SamplingRequest(REQUEST.fanouts, probs_name="w")):
        vars(graph).pop("_mapped_reads", None)
        assert_same(graph.sample_hops(SEEDS, request, [1, 2]), in_memory.sample_hops(SEEDS, request, [1, 2]))
    assert not is_read_by_page(graph)  # all of it is in memory


def test_a_graph_that_may_stay_in_memory_is_read_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_arrays, "available_memory", lambda: 1e9)
    graph = load_graph(path)
    assert mapped_reads(graph) is None
    assert not advice_for(graph)


def test_each_process_advises_its_own_mapping(path: Path) -> None:
    graph = load_graph(path)
    assert not advice_for(graph)
    assert is_read_by_page(graph)
    assert advice_for(graph)
    vars(graph)["_mapped_reads"] = (-1, None)  # as a worker gets it
    again = pickle.loads(pickle.dumps(graph))
    assert not advice_for(again)
    assert is_read_by_page(again)
    assert advice_for(again)


def test_passes_over_the_whole_graph_read_ahead(path: Path) -> None:
    graph = load_graph(path)
    mapped_reads(graph)
    with in_passes(graph):
        assert not advice_for(graph)
    assert advice_for(graph)
    assert graph.cumulative_weights("w").numel() == graph.total_num_edges
    assert advice_for(graph)
