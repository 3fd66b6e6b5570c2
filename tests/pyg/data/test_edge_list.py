"""What a sorted `EdgeIndex` knows is used, and gives the same mini-batches as the plain tensor."""

from typing import Any

import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler, NodeLoader
from graphfeed.pyg.data.data_graph import make_graph, read_graph
from graphfeed.pyg.data.edge_list import EdgeList
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import values_of
from tests.pyg.stores import sorted_data


def with_edge_index(layout: str, **options: Any) -> tuple[Any, Any]:
    """Return data with an `EdgeIndex`, and the same with a plain tensor."""
    plain, data = sorted_data(False, layout), sorted_data(False, layout)
    order = {"csc": "col", "csr": "row", "coo": None}[layout]
    data.edge_index = import_pyg("torch_geometric", "tests").EdgeIndex(plain.edge_index, sort_order=order, **options)
    return data, plain


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
@pytest.mark.parametrize("size", [(60, 60), None])
def test_mini_batches_are_those_of_a_plain_tensor(layout: str, cached: bool, size: Any) -> None:
    data, plain = with_edge_index(layout, sparse_size=size)
    if cached:
        data.edge_index.fill_cache_()

    def batches(given: Any) -> list[Any]:
        backward = NeighborSampler(given, [2, 2], sample_direction="backward")
        loaders: list[Any] = [
            NeighborLoader(given, [2, 2], batch_size=20, seed=0),
            NeighborLoader(given, [2, 2], None, torch.arange(60), batch_size=20, seed=0, time_attr="edge_time"),
            NodeLoader(given, backward, batch_size=20, seed=0),
            LinkNeighborLoader(given, [2], batch_size=50, seed=0),
        ]
        return [values_of(batch) for loader in loaders for batch in loader]

    assert batches(data) == batches(plain)


def test_sorted_edges_are_neither_copied_nor_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    by_col, by_row = with_edge_index("csc", sparse_size=(60, 60))[0], with_edge_index("csr", sparse_size=(60, 60))[0]
    monkeypatch.setattr("graphfeed.ops.coo_to_csc", lambda *_: pytest.fail("edges were sorted again"))
    graph = read_graph(by_col).graph
    assert graph.indices.data_ptr() == by_col.edge_index.as_tensor()[0].data_ptr()
    assert graph.csc_indptr.data_ptr() == by_col.edge_index.get_indptr().data_ptr()
    reverse = read_graph(by_row, reverse=True).graph
    assert reverse.indices.data_ptr() == by_row.edge_index.as_tensor()[1].data_ptr()


def test_an_order_that_is_not_there_is_an_error() -> None:
    data, _ = with_edge_index("csc")
    data.edge_index = type(data.edge_index)(data.edge_index.as_tensor().flip(1).contiguous(), sort_order="col")
    with pytest.raises(ValueError, match="says that it is sorted by col, but is not"):
        NeighborLoader(data, [2])


def test_an_edge_beyond_the_nodes_is_an_error() -> None:
    data, _ = with_edge_index("csc", sparse_size=(60, 60))
    with pytest.raises(ValueError, match=r"must lie in 0 .. 29, but holds 59"):
        read_graph(type(data)(edge_index=data.edge_index, num_nodes=30))
    edges = EdgeList(torch.tensor([5]), indptr=torch.tensor([0, 1]))
    assert make_graph({None: edges}, {None: 6}, {}, {}).csc_indptr.tolist() == [0, 1, 1, 1, 1, 1, 1]
