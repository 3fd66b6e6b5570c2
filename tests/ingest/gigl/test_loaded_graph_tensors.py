from typing import Any

import pytest
import torch

from graphfeed.ingest import LoadedGraphTensors
from graphfeed.ingest.gigl.loaded_graph_tensors import EDGE_TYPE, NODE_TYPE

EDGES = torch.tensor([[0, 1], [1, 2]])
LABELS = torch.tensor([[0], [2]])
WRONG = torch.tensor([[1], [0]])


def graph(**more: Any) -> LoadedGraphTensors:
    fields = {
        "node_ids": torch.arange(3),
        "node_features": torch.ones(3, 2),
        "edge_index": EDGES,
        "edge_features": None,
        "positive_label": LABELS,
        "negative_label": WRONG,
        **more,
    }
    return LoadedGraphTensors(**fields)


def test_labels_become_edges_of_their_own_types() -> None:
    tensors = graph()
    tensors.treat_labels_as_edges("out")
    assert isinstance(tensors.edge_index, dict)
    assert list(tensors.edge_index) == [
        EDGE_TYPE,
        (NODE_TYPE, "to_gigl_positive", NODE_TYPE),
        (NODE_TYPE, "to_gigl_negative", NODE_TYPE),
    ]
    assert [value.tolist() for value in tensors.edge_index.values()] == [EDGES.tolist(), [[0], [2]], [[1], [0]]]
    assert (tensors.positive_label, tensors.negative_label, tensors.edge_features) == (None, None, None)
    assert isinstance(tensors.node_features, dict)
    assert list(tensors.node_features) == [NODE_TYPE]


def test_labels_of_a_typed_graph_are_turned_round_for_sampling_inwards() -> None:
    tensors = graph(
        node_ids={"user": torch.arange(2), "item": torch.arange(3)},
        node_features=None,
        edge_index={("user", "buys", "item"): EDGES},
        positive_label={("user", "buys", "item"): LABELS},
        negative_label=None,
    )
    tensors.treat_labels_as_edges("in")
    assert isinstance(tensors.edge_index, dict)
    assert list(tensors.edge_index) == [("user", "buys", "item"), ("item", "buys_gigl_positive", "user")]
    assert tensors.edge_index["item", "buys_gigl_positive", "user"].tolist() == [[2], [0]]
    assert tensors.node_features is None


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    tensors = graph(positive_label=None)
    with pytest.raises(ValueError, match="positive_label is None"):
        tensors.treat_labels_as_edges("in")
    with pytest.raises(ValueError, match="edge_dir must be 'in' or 'out', but is 'both'"):
        graph().treat_labels_as_edges("both")  # type: ignore[arg-type]
    assert tensors.edge_index is EDGES
