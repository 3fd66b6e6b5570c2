from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from graphfeed.pyg import PyGLayerData, PyGLayerHeteroData
from graphfeed.storage import CSCFormatBase, SampledSubgraph
from tests import pipelines
from tests.digests import assert_same

CSC = CSCFormatBase(torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([2, 0, 1], dtype=torch.int32))
X = torch.arange(6.0).reshape(3, 2)
ETYPE = "user:likes:item"


def test_a_layer_without_types() -> None:
    layer = SampledSubgraph(CSC).to_pyg(X)
    assert isinstance(layer, PyGLayerData)
    assert_same(layer.x, (X, X[:2]))
    assert_same(layer.edge_index, torch.tensor([[2, 0, 1], [0, 1, 1]]))
    assert layer.size == (3, 2)


def test_a_layer_with_types() -> None:
    rows = {"user": torch.arange(3), "item": torch.arange(2)}
    x = {"user": X, "item": X[:2] + 10}
    layer = SampledSubgraph({ETYPE: CSC}, original_row_node_ids=rows).to_pyg(x)
    assert isinstance(layer, PyGLayerHeteroData)
    assert layer.x[0] is x
    assert_same(layer.x[1], {"item": X[:2] + 10})
    assert_same(layer.edge_index, {ETYPE: torch.tensor([[2, 0, 1], [0, 1, 1]])})
    assert layer.size == {ETYPE: (3, 2)}


def test_a_type_may_have_no_features() -> None:
    rows = {"user": torch.arange(3), "item": torch.arange(2)}
    layer = SampledSubgraph({ETYPE: CSC}, original_row_node_ids=rows).to_pyg({"item": X[:2]})
    assert layer.size == {ETYPE: (3, 2)}
    layer = SampledSubgraph({ETYPE: CSC}, original_row_node_ids=rows).to_pyg({"user": X})
    assert_same(layer.x, ({"user": X}, {}))
    assert SampledSubgraph({ETYPE: CSC}).to_pyg({"user": X}).size == {ETYPE: (3, 2)}


def test_sums_over_the_layer_are_sums_over_neighbours() -> None:
    batch = next(iter(pipelines.homogeneous()))
    subgraph = batch.sampled_subgraphs[0]
    x = torch.rand(len(subgraph.original_row_node_ids), 3, dtype=torch.float64)
    layer = subgraph.to_pyg(x)
    source, destination = layer.edge_index
    sums = torch.zeros(layer.size[1], 3, dtype=torch.float64).index_add_(0, destination, x[source])
    indptr = subgraph.sampled_csc.indptr.tolist()
    for column, (low, high) in enumerate(pairwise(indptr)):
        assert torch.allclose(sums[column], x[subgraph.sampled_csc.indices[low:high]].sum(0))


@pytest.mark.parametrize("make", [pipelines.homogeneous, pipelines.heterogeneous])
def test_a_model_compiles_as_one_graph(make: Callable[[], Any]) -> None:
    def messages(subgraph: SampledSubgraph, x: Any) -> Any:
        (sources, _), edge_index, size = subgraph.to_pyg(x)
        if isinstance(edge_index, dict):
            return {kind: sources[kind.split(":")[0]][own[0]] + size[kind][1] for kind, own in edge_index.items()}
        return sources[edge_index[0]] + size[1]

    compiled = torch.compile(messages, fullgraph=True, dynamic=True, backend="eager")
    for minibatch in make():
        for subgraph in minibatch.sampled_subgraphs:
            rows = subgraph.original_row_node_ids
            typed = isinstance(rows, dict)
            x = {kind: own.float()[:, None] for kind, own in rows.items()} if typed else rows.float()[:, None]
            assert_same(compiled(subgraph, x), messages(subgraph, x))
