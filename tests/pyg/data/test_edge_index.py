"""Edges as an `EdgeIndex`: of data, whose order is used, and of mini-batches, which PyG's layers take as they are."""

from itertools import product
from typing import Any

import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler, NodeLoader
from graphfeed.pyg.data.data_graph import read_graph
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import heterogeneous, homogeneous, values_of
from tests.pyg.stores import sorted_data


def check(index: Any, plain: torch.Tensor, size: tuple[int, int], order: str) -> None:
    assert index.sort_order == order
    assert index.sparse_size() == size
    index.validate()
    assert torch.equal(index.as_tensor(), plain)
    counts = torch.bincount(plain[int(order == "col")], minlength=size[int(order == "col")])
    assert torch.equal(index._indptr.diff(), counts)


def test_it_knows_its_size_its_order_and_its_pointers() -> None:
    data = homogeneous()
    for make, subgraph_type in product(
        (NeighborLoader, LinkNeighborLoader), ("directional", "bidirectional", "induced")
    ):
        options: dict[str, Any] = {"batch_size": 8, "seed": 0, "subgraph_type": subgraph_type}
        plain, batch = (next(iter(make(data, [3, 2], as_edge_index=own, **options))) for own in (False, True))
        assert type(plain.edge_index) is torch.Tensor
        assert plain.edge_index.shape[1] > 8
        check(batch.edge_index, plain.edge_index, (len(batch.n_id),) * 2, "col")


def test_with_types_and_the_other_way_around() -> None:
    data = heterogeneous()
    sampler = NeighborSampler(data, [3, 2], sample_direction="backward")
    cases: Any = (
        (lambda **more: NeighborLoader(data, [3, 2], "user", batch_size=8, seed=0, **more), "col"),
        (lambda **more: NodeLoader(data, sampler, "user", batch_size=8, seed=0, **more), "row"),
    )
    for make, order in cases:
        plain, batch = next(iter(make())), next(iter(make(as_edge_index=True)))
        for kind in data.edge_types:
            size = (len(batch[kind[0]].n_id), len(batch[kind[2]].n_id))
            check(batch[kind].edge_index, plain[kind].edge_index, size, order)


def test_edges_that_a_function_mixed_up_have_no_order() -> None:
    def turn_around(output: Any) -> Any:
        output.row, output.col = output.row.flip(0), output.col.flip(0)
        return output

    options: dict[str, Any] = {"batch_size": 8, "as_edge_index": True, "transform_sampler_output": turn_around}
    batch = next(iter(NeighborLoader(homogeneous(), [3, 2], **options)))
    assert (batch.edge_index.sort_order, batch.edge_index._indptr) == (None, None)


def test_a_layer_of_pygs_converts_nothing_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, module = import_pyg("torch_geometric.nn", "tests"), import_pyg("torch_geometric.edge_index", "tests")
    options: dict[str, Any] = {"batch_size": 8, "seed": 0}
    plain, batch = (
        next(iter(NeighborLoader(homogeneous(), [3, 2], as_edge_index=own, **options))) for own in (False, True)
    )
    layer = layers.SAGEConv(3, 4)
    with torch.no_grad():
        expected = layer(plain.x, plain.edge_index)
        monkeypatch.setattr(module, "index2ptr", lambda *_: pytest.fail("pointers were computed again"))
        monkeypatch.setattr("torch_geometric.utils.index_sort", lambda *_: pytest.fail("edges were sorted again"))
        assert torch.allclose(layer(batch.x, batch.edge_index), expected, atol=1e-5)
    monkeypatch.undo()
    trim = import_pyg("torch_geometric.utils", "tests").trim_to_layer
    sizes = (batch.num_sampled_nodes, batch.num_sampled_edges)
    _, trimmed, _ = trim(1, *sizes, batch.x, batch.edge_index)
    assert torch.equal(trimmed.as_tensor(), trim(1, *sizes, plain.x, plain.edge_index)[1])
    trimmed.validate()


def with_edge_index(layout: str, **options: Any) -> tuple[Any, Any]:
    """Return data with an `EdgeIndex`, and the same with a plain tensor."""
    plain, data = sorted_data(False, layout), sorted_data(False, layout)
    order = {"csc": "col", "csr": "row", "coo": None}[layout]
    data.edge_index = import_pyg("torch_geometric", "tests").EdgeIndex(plain.edge_index, sort_order=order, **options)
    return data, plain


@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_mini_batches_are_those_of_a_plain_tensor(layout: str) -> None:
    def batches(given: Any) -> list[Any]:
        backward = NeighborSampler(given, [2, 2], sample_direction="backward")
        loaders: list[Any] = [
            NeighborLoader(given, [2, 2], batch_size=20, seed=0),
            NeighborLoader(given, [2, 2], None, torch.arange(60), batch_size=20, seed=0, time_attr="edge_time"),
            NodeLoader(given, backward, batch_size=20, seed=0),
            LinkNeighborLoader(given, [2], batch_size=50, seed=0),
        ]
        return [values_of(batch) for loader in loaders for batch in loader]

    expected = batches(with_edge_index(layout)[1])
    for size, cached in product(((60, 60), None), (False, True)):
        data, _ = with_edge_index(layout, sparse_size=size)
        if cached:
            data.edge_index.fill_cache_()
        assert batches(data) == expected, (size, cached)


def test_sorted_edges_are_neither_copied_nor_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    by_col, by_row = with_edge_index("csc", sparse_size=(60, 60))[0], with_edge_index("csr", sparse_size=(60, 60))[0]
    monkeypatch.setattr("graphfeed.ops.coo_to_csc", lambda *_: pytest.fail("edges were sorted again"))
    graph = read_graph(by_col).graph
    assert graph.indices.data_ptr() == by_col.edge_index.as_tensor()[0].data_ptr()
    assert graph.csc_indptr.data_ptr() == by_col.edge_index.get_indptr().data_ptr()
    reverse = read_graph(by_row, reverse=True).graph
    assert reverse.indices.data_ptr() == by_row.edge_index.as_tensor()[1].data_ptr()


def test_nodes_behind_the_last_one_with_a_column_have_no_edges() -> None:
    data, plain = with_edge_index("csc", sparse_size=(60, 60))
    given = type(data)(edge_index=data.edge_index, num_nodes=70)
    (batch,) = NeighborLoader(given, [-1], torch.tensor([65, 3]), batch_size=2)
    assert batch.n_id[:2].tolist() == [65, 3]
    assert batch.e_id.tolist() == (plain.edge_index[1] == 3).nonzero().squeeze(1).tolist()
