from typing import Any

import pytest
import torch

from graphfeed.pyg import ShaDowKHopSampler
from tests.pyg.neighborhood import around, heterogeneous, homogeneous

ROOTS = torch.tensor([9, 4, 9, 7])


def parts_of(data: Any, batch: Any) -> list[tuple[list[int], set[int]]]:
    """Return the nodes and the edges of each subgraph, after a look at whether they join what they should."""
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    parts = []
    for place in range(len(batch.ptr) - 1):
        nodes = batch.n_id[batch.ptr[place] : batch.ptr[place + 1]].tolist()
        assert set(batch.batch[batch.ptr[place] : batch.ptr[place + 1]].tolist()) == {place}
        edges = batch.e_id[batch.batch[batch.edge_index[0]] == place].tolist()
        assert len(edges) == len(set(edges))
        parts.append((nodes, set(edges)))
    return parts


def induced(data: Any, nodes: list[int]) -> set[int]:
    pairs = data.edge_index.T.tolist()
    return {edge for edge, (source, end) in enumerate(pairs) if source in nodes and end in nodes}


def test_all_neighbours_give_the_induced_subgraph_around_each_root() -> None:
    data = homogeneous()
    (batch,) = ShaDowKHopSampler(data, 2, -1, ROOTS, batch_size=4)
    for root, (nodes, edges) in zip(ROOTS.tolist(), parts_of(data, batch), strict=True):
        assert nodes == around(data, {"": [root]}, 2).nodes[""]
        assert edges == induced(data, nodes)
    assert batch.n_id[batch.root_n_id].tolist() == ROOTS.tolist()
    assert batch.y.tolist() == ROOTS.tolist()
    assert batch.input_id.tolist() == [0, 1, 2, 3]
    assert (batch.num_graphs, batch.num_nodes, batch.name) == (4, len(batch.n_id), "random")
    assert type(batch).__name__ == "DataBatch"


@pytest.mark.parametrize("replace", [False, True])
def test_as_many_neighbours_as_asked_for_are_sampled(replace: bool) -> None:
    data = homogeneous()
    sizes = []
    for batch in ShaDowKHopSampler(data, 2, 2, batch_size=20, replace=replace, seed=2):
        for nodes, edges in parts_of(data, batch):
            whole = around(data, {"": nodes[:1]}, 2).nodes[""]
            assert set(nodes) <= set(whole)
            assert edges == induced(data, nodes)
            sizes.append(len(nodes))
    assert len(sizes) == 60
    assert 4 < max(sizes) <= 7


def test_roots_may_be_a_mask() -> None:
    data = homogeneous()
    roots = [batch.n_id[batch.root_n_id].tolist() for batch in ShaDowKHopSampler(data, 1, 1, data.train_mask)]
    assert roots == [[node] for node in range(0, 60, 3)]


def test_labels_that_are_not_those_of_nodes_stay() -> None:
    data = homogeneous()
    data.y = torch.tensor([5.0, 6.0])
    assert next(iter(ShaDowKHopSampler(data, 1, 1))).y.tolist() == [5, 6]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="data has types"):
        ShaDowKHopSampler(heterogeneous(), 2, 2)
    with pytest.raises(ValueError, match="depth must be"):
        ShaDowKHopSampler(homogeneous(), 0, 2)
