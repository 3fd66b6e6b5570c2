"""When a graph in a file is read by page; `test_graph_kinds.py` checks that mini-batches are the same."""

import copy
import pickle
from pathlib import Path

import pytest
import torch

from graphfeed.storage import from_coo, load_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, SamplingRequest
from graphfeed.storage.graph.sampling import graph_files
from graphfeed.storage.graph.sampling.graph_files import files_read, in_passes, is_by_page, read_choice
from tests.digests import assert_same

NUM_NODES = 3000
SEEDS, REQUEST = torch.arange(0, NUM_NODES, 7), SamplingRequest((torch.tensor([3]), torch.tensor([-1])))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a graph that is too large to be assumed to stay in memory."""
    monkeypatch.setattr(graph_files, "available_memory", lambda: 4 * 80_000 * 8)
    edges = torch.randint(0, NUM_NODES, (2, 80_000))
    attributes = {"w": torch.rand(80_000), "t": torch.randint(0, 1000, (80_000,))}
    from_coo((edges[0], edges[1]), NUM_NODES, edge_attributes=attributes).save(tmp_path / "graph")
    return tmp_path / "graph"


def advice_for(array: torch.Tensor) -> bool:
    """Return whether the system's table of mappings marks an array as read at random."""
    place, inside = array.data_ptr() // 4096 * 4096, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            low, high = (int(part, 16) for part in first.split("-"))
            inside = low <= place < high
        elif inside and first == "VmFlags:":
            return "rr" in line.split()
    raise AssertionError("the graph is not mapped")


def test_what_was_found_in_memory_is_read_as_if_there_were_no_file(path: Path) -> None:
    graph = load_graph(path)
    assert is_by_page(graph)
    expected = graph.sample_hops(SEEDS, REQUEST, [1, 2])
    graph.sample_hops(SEEDS, REQUEST, [1, 2])
    assert not is_by_page(graph)
    assert_same(graph.sample_hops(SEEDS, REQUEST, [1, 2]), expected)


def test_ids_of_edges_that_no_kernel_reads_by_page_are_read_for_several_mini_batches_too(path: Path) -> None:
    whole = load_graph(path)
    whole.add_edge_attribute(ORIGINAL_EDGE_ID, torch.arange(whole.total_num_edges).to(torch.int16))
    whole.save(path)
    graph, keys = load_graph(path), [[1, 2], [3, 4]]
    assert is_by_page(graph)
    together = graph.sample_hops_together([SEEDS, SEEDS[:1]], REQUEST, keys)
    alone = [graph.sample_hops(own, REQUEST, its) for own, its in zip([SEEDS, SEEDS[:1]], keys, strict=True)]
    assert_same(together, alone)


def test_a_graph_that_may_stay_in_memory_is_read_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_files, "available_memory", lambda: 1e9)
    graph = load_graph(path)
    assert read_choice(graph) is None
    assert not advice_for(graph.indices)


def test_each_process_advises_its_own_mapping(path: Path) -> None:
    graph = load_graph(path)
    assert not advice_for(graph.indices)
    assert is_by_page(graph)
    assert advice_for(graph.indices)
    again = pickle.loads(pickle.dumps(graph))  # as in a worker
    assert not advice_for(again.indices)
    assert is_by_page(again)
    assert advice_for(again.indices)
    assert not is_by_page(copy.deepcopy(graph))


def test_a_graph_that_is_given_other_arrays_is_looked_at_again(path: Path) -> None:
    graph = load_graph(path)
    assert is_by_page(graph)
    before = files_read(graph).num_bytes
    graph.indices = graph.indices.clone()
    assert files_read(graph).num_bytes == before - graph.indices.nbytes


def test_column_starts_stay_in_memory_where_there_is_room_for_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load_graph(path)
    read_choice(graph)
    assert not advice_for(graph.csc_indptr)
    monkeypatch.setattr(graph_files, "available_memory", lambda: 8 * graph.csc_indptr.nbytes - 1)
    graph = load_graph(path)
    read_choice(graph)
    assert advice_for(graph.csc_indptr)


def test_passes_over_the_whole_graph_read_ahead(path: Path) -> None:
    graph = load_graph(path)
    read_choice(graph)
    with in_passes(graph):
        assert not advice_for(graph.indices)
    assert advice_for(graph.indices)
    assert graph.cumulative_weights("w").numel() == graph.total_num_edges
    assert advice_for(graph.indices)
