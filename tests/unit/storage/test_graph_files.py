"""When a graph in a file is read by page; `test_graph_kinds.py` checks that mini-batches are the same."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphfeed.storage import from_coo, load_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, SamplingRequest
from graphfeed.storage.graph.sampling.graph_files import is_by_page
from graphfeed.testing import limits
from tests.kinds.digests import assert_same

NUM_NODES = 3000
SEEDS, REQUEST = torch.arange(0, NUM_NODES, 7), SamplingRequest((torch.tensor([3]), torch.tensor([-1])))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Yield the file of a graph that is too large to be assumed to stay in memory."""
    edges = torch.randint(0, NUM_NODES, (2, 80_000))
    attributes = {"w": torch.rand(80_000), "t": torch.randint(0, 1000, (80_000,))}
    from_coo((edges[0], edges[1]), NUM_NODES, edge_attributes=attributes).save(tmp_path / "graph")
    with limits(memory_bytes=4 * 80_000 * 8):
        yield tmp_path / "graph"


def test_ids_of_edges_that_no_kernel_reads_by_page_are_read_too(path: Path) -> None:
    whole = load_graph(path)
    whole.add_edge_attribute(ORIGINAL_EDGE_ID, torch.arange(whole.total_num_edges).to(torch.int16))
    whole.save(path)
    graph = load_graph(path)
    assert is_by_page(graph)
    found = graph.sample_hops(SEEDS, REQUEST, [1, 2])
    with limits(memory_bytes=math.inf):
        in_memory = load_graph(path)
        assert not is_by_page(in_memory)
        assert_same(found, in_memory.sample_hops(SEEDS, REQUEST, [1, 2]))
