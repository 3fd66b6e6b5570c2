"""Graphs written by GraphBolt 2.1, with files in the folder `graphbolt`, and the detection of formats."""

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import verify_graph
from tests.kinds.digests import assert_same

FILES = Path(__file__).parent / "graphbolt"
EDGES = {
    "user:follows:user": torch.tensor([[0, 1, 2, 3, 1], [1, 2, 0, 1, 0]]),
    "user:likes:item": torch.tensor([[0, 1, 1], [1, 2, 0]]),
}
"""Edge lists of the typed graph; its edge attribute "w" is 0 to 4, and 0.1 to 0.3."""


@pytest.mark.since_torch("2.6")
def test_a_graph_with_types_is_read_and_its_attributes_are_in_its_order() -> None:
    graph = gf.load_graph(FILES / "typed.pt")
    weights = {"user:follows:user": torch.arange(5.0), "user:likes:item": torch.tensor([0.1, 0.2, 0.3])}
    expected = gf.from_coo(EDGES, {"item": 3, "user": 4}, edge_attributes={"w": weights})
    assert graph.num_nodes == expected.num_nodes
    assert graph.num_edges == expected.num_edges
    seeds = {"item": torch.arange(3), "user": torch.arange(4)}
    by_kind = graph.in_subgraph(seeds).original_edge_ids
    for kind, own in by_kind.items():
        assert sorted(own.tolist()) == list(range(EDGES[kind].shape[1]))
    assert graph.type_per_edge is not None
    ids, found = graph.edge_attributes["_ORIGINAL_EDGE_ID"], graph.edge_attributes["w"]
    for kind, number in (graph.edge_type_to_id or {}).items():
        of_kind = graph.type_per_edge == number
        assert_same(found[of_kind], weights[kind][ids[of_kind].long()])


@pytest.mark.since_torch("2.6")
def test_attributes_without_original_edge_ids_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weighted.pt holds no graph that can be read: .* no original edge ids"):
        gf.load_graph(FILES / "weighted.pt")


ARRAYS: dict[str, Any] = {
    "csc_indptr": torch.tensor([0, 3, 3]),
    "indices": torch.tensor([0, 1, 1]),
    "node_type_offset": torch.tensor([0, 2]),
    "node_type_to_id": {"a": 0},
    "edge_type_to_id": {"a:r:a": 0, "a:s:a": 1},
    "type_per_edge": torch.tensor([0, 0, 1]),
}


def of_types(ids: Any, **others: Any) -> dict[str, Any]:
    """Return a graph with two edges of one type, with weights 10 and 11, and one of another type, with weight 20."""
    weights = {"w": torch.tensor([10.0, 11.0, 20.0]), "_ORIGINAL_EDGE_ID": torch.tensor(ids)}
    return ARRAYS | {"edge_attributes": weights} | others


def test_original_ids_belong_to_their_types(tmp_path: Path) -> None:
    torch.save(of_types([1, 0, 0]), tmp_path / "graph.pt")
    assert gf.load_graph(tmp_path / "graph.pt").edge_attributes["w"].tolist() == [11, 10, 20]


IDS: Any = ([2, 0, 1], [0, -1, 1], [0, 0, 0], [1.7, 0.2, 0.0], [[0], [1], [0]], [0, 1])
TYPES: Any = ([0, 0, -1], [0, 0, 2**40], [0])
NO_GRAPHS: list[Any] = [
    *(of_types(ids) for ids in IDS),
    *(of_types([0, 1, 0], type_per_edge=torch.tensor(types)) for types in TYPES),
    of_types([0, 1, 0], node_type_to_id=["a"]),
    of_types([0, 1, 0], foo=1),
    ARRAYS | {"edge_attributes": {"w": 3}},
    [1],
    gf.ItemSet(3),
    Fraction(1, 3),
]


def test_what_holds_no_graph_is_refused(tmp_path: Path) -> None:
    for made_up in NO_GRAPHS:
        torch.save(made_up, tmp_path / "graph.pt")
        with pytest.raises(ValueError, match=r"graph.pt holds no graph that can be read: "):
            gf.load_graph(tmp_path / "graph.pt")


@pytest.mark.since_torch("2.6")
def test_the_folder_of_graphbolt_is_enough(tmp_path: Path) -> None:
    made = tmp_path / "preprocessed"
    made.mkdir()
    shutil.copy(FILES / "typed.pt", made / "fused_csc_sampling_graph.pt")
    (made / "metadata.yaml").write_text(
        "dataset_name: toy\n"
        "graph_topology: {type: FusedCSCSamplingGraph, path: preprocessed/fused_csc_sampling_graph.pt}\n"
    )
    graph = gf.OnDiskDataset(tmp_path).load().graph
    assert graph is not None
    assert graph.num_edges == {"user:follows:user": 5, "user:likes:item": 3}


def test_a_dict_of_arrays_is_read(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"csc_indptr": torch.tensor([0, 1, 2]), "indices": torch.tensor([1, 0])}
    torch.save(arrays, tmp_path / "graph.pt")
    assert gf.load_graph(tmp_path / "graph.pt").indices.tolist() == [1, 0]


def test_a_format_without_checksums_is_named() -> None:
    with pytest.raises(ValueError, match=r"typed.pt has no checksum, as it was written by torch.save"):
        verify_graph(FILES / "typed.pt")
