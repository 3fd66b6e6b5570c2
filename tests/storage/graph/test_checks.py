"""What the shapes of a graph's arrays tell, before their values are looked at."""

from typing import Any

import pytest
import torch

from graphfeed.storage import FusedCSCSamplingGraph
from graphfeed.storage.graph.checks import check_shapes, check_types
from tests.storage.graph.test_fused_csc_sampling_graph import make_typed_graph


def changed(**fields: Any) -> FusedCSCSamplingGraph:
    """Return a graph with types whose fields nobody has checked."""
    return FusedCSCSamplingGraph(**{**make_typed_graph().fields(), **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"csc_indptr": torch.tensor([1, 1, 4, 4, 4, 6])}, "csc_indptr must start with 0"),
        ({"indices": torch.tensor([1, 0])}, "csc_indptr must end with the number of edges, 2"),
        ({"indices": torch.zeros(6)}, r"indices must be .*, but is torch\.float32"),
        ({"type_per_edge": None}, "a graph with types needs all of"),
        ({"type_per_edge": torch.zeros(6)}, r"type_per_edge must be .*, but is torch\.float32"),
        ({"type_per_edge": torch.zeros(5, dtype=torch.uint8)}, "type_per_edge must have 6 values"),
        ({"type_per_edge": torch.zeros(6, 1, dtype=torch.uint8)}, "type_per_edge must"),
        ({"node_type_offset": torch.tensor([0, 2, 6])}, "node_type_offset must have 3 values that rise from 0 to 5"),
        ({"edge_type_to_id": {"user:knows:user": 1}}, "edge_type_to_id must number its types"),
        ({"edge_attributes": {"w": torch.zeros(5)}}, "must have 6 rows, one for each edge, but has 5"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused_without_a_pass(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check_shapes(changed(**fields))


def test_values_take_a_pass() -> None:
    graph = changed(type_per_edge=torch.tensor([0, 0, 2, 2, 1, 0], dtype=torch.uint8))
    check_shapes(graph)
    with pytest.raises(ValueError, match="type_per_edge must ascend inside each column"):
        check_types(graph)
    check_types(changed())
