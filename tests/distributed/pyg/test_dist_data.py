from typing import Any

import pytest
import torch

from graphfeed.distributed import DistContext, LocalFeatureStore, LocalGraphStore, Peers
from graphfeed.distributed.pyg.dist_data import DistData, check_rank, find_peers
from graphfeed.pyg.data.data_features import FLAT
from tests.distributed.pyg_data import plain_data


def stores() -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return part 0 of two."""
    data = plain_data()
    features = LocalFeatureStore.from_data(torch.arange(60), data.x, data.y)
    graph = LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)
    return features, graph


def test_features_know_which_of_them_were_values() -> None:
    features, graph = stores()
    found = DistData((features, graph), Peers()).data_features()
    assert (found.node_names, found.edge_names, found.dims) == ({None: ["x", "y"]}, {None: []}, {(None, "y"): FLAT})
    features.labels = torch.zeros(60, 2)
    found = DistData((features, graph), Peers()).data_features()
    assert found.dims == {}
    assert found.store["node", None, "y"].read(torch.tensor([3])).tolist() == [[0.0, 0.0]]


def test_edges_get_the_ids_of_the_graph_store() -> None:
    features, graph = stores()
    features.put_tensor(torch.arange(400), (None, None), "weight")
    data = DistData((features, graph), Peers())
    ids = graph.get_edge_id(edge_type=None, layout="coo")
    assert ids is not None
    assert data.has_edge_ids
    rows = data.features["edge", None, "weight"].read(ids[:5])
    assert rows.squeeze(1).tolist() == [0, 1, 2, 3, 4]


def test_a_rank_holds_its_own_part() -> None:
    graph = stores()[1]
    check_rank(DistContext(0, 0, 1, 1, "test"), graph)
    with pytest.raises(ValueError, match="rank i holds part i"):
        check_rank(DistContext(0, 0, 2, 2, "test"), graph)


def test_ranks_meet_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Any] = []
    monkeypatch.setattr("graphfeed.distributed.pyg.dist_data.peers_at", lambda *given: met.append(given))
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "2900")
    two = DistContext(1, 1, 2, 2, "test")
    find_peers(two, None, None, 5)
    find_peers(two, "10.0.0.2", "77", 5)
    assert met == [(("10.0.0.1", 2901, 1, 2, "test"), 5), (("10.0.0.2", 77, 1, 2, "test"), 5)]
