import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.storage import from_coo
from graphfeed.storage.datasets.metadata import parse_metadata
from graphfeed.storage.datasets.processed_graph import (
    COLUMN_FILES,
    id_dtype,
    read_graph,
    type_dtype,
    write_graph,
)
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from tests import on_disk


def process(folder: Path, data: dict[str, Any], with_edge_ids: bool, auto_cast: bool = True) -> FusedCSCSamplingGraph:
    graph = parse_metadata(data).graph
    assert graph is not None
    target = folder / "made"
    target.mkdir()
    topology, _ = write_graph(folder, target, graph, with_edge_ids, auto_cast)
    assert on_disk.listing(target) == ["graph"]
    (folder / "topology").write_text(json.dumps(topology | {"path": "made/graph"}))
    return read_graph(folder, topology | {"path": "made/graph"})


@pytest.mark.parametrize("edges", ["npy", "pt", "csv"])
@pytest.mark.parametrize("ending", ["npy", "pt"])
def test_without_types(tmp_path: Path, edges: str, ending: str) -> None:
    graph = process(tmp_path, on_disk.untyped(tmp_path, ending, edges), with_edge_ids=True)
    expected = from_coo((torch.tensor(on_disk.SOURCES), torch.tensor(on_disk.DESTINATIONS)), 4)
    assert graph.csc_indptr.tolist() == expected.csc_indptr.tolist()
    assert graph.indices.tolist() == expected.indices.tolist()
    order = expected.edge_attribute(ORIGINAL_EDGE_ID)
    assert graph.edge_attribute(ORIGINAL_EDGE_ID).tolist() == order.tolist()
    assert order.tolist() != sorted(order.tolist())
    assert graph.edge_attribute("weight").tolist() == (order + 10.0).tolist()
    assert graph.node_attribute("age").tolist() == [7, 8, 9, 10]
    assert graph.node_type_to_id is None


@pytest.mark.parametrize("edges", ["npy", "csv"])
def test_with_types(tmp_path: Path, edges: str) -> None:
    data = on_disk.typed(tmp_path, edges)
    for kind, ages in (("user", [1, 2, 3, 4]), ("item", [5, 6, 7])):
        spec = on_disk.save(tmp_path, f"age_{kind}.npy", ages)
        data["graph"]["feature_data"].append({"domain": "node", "type": kind, "name": "age", **spec})
    graph = process(tmp_path, data, with_edge_ids=True)
    ordered = sorted(on_disk.TYPED_EDGES)
    places = list(on_disk.TYPED_EDGES)
    expected = from_coo(
        {kind: tuple(map(torch.tensor, on_disk.TYPED_EDGES[kind])) for kind in ordered},
        {"item": on_disk.ITEMS, "user": on_disk.USERS},
    )
    assert graph.node_type_to_id == {"item": 0, "user": 1}
    assert graph.edge_type_to_id == {kind: number for number, kind in enumerate(ordered)}
    assert graph.num_nodes == expected.num_nodes
    assert graph.num_edges == expected.num_edges
    for name in ("csc_indptr", "indices", "type_per_edge"):
        assert getattr(graph, name).tolist() == getattr(expected, name).tolist()
    rows = expected.edge_attribute(ORIGINAL_EDGE_ID).tolist()
    assert graph.edge_attribute(ORIGINAL_EDGE_ID).tolist() == rows
    assert graph.type_per_edge is not None
    kinds = [places.index(ordered[number]) for number in graph.type_per_edge.tolist()]
    assert graph.edge_attribute("weight").tolist() == [
        100.0 * kind + row for kind, row in zip(kinds, rows, strict=True)
    ]
    assert graph.node_attribute("age").tolist() == [5, 6, 7, 1, 2, 3, 4]


@pytest.mark.parametrize(("auto_cast", "ids", "types"), [(True, "int32", "uint8"), (False, "int64", "int64")])
def test_dtypes(tmp_path: Path, auto_cast: bool, ids: str, types: str) -> None:
    graph = process(tmp_path, on_disk.typed(tmp_path), with_edge_ids=True, auto_cast=auto_cast)
    arrays = [graph.csc_indptr, graph.indices, graph.node_type_offset, graph.edge_attribute(ORIGINAL_EDGE_ID)]
    assert {str(array.dtype) for array in arrays if array is not None} == {f"torch.{ids}"}
    assert graph.type_per_edge is not None
    assert str(graph.type_per_edge.dtype) == f"torch.{types}"


def test_the_smallest_dtype_that_holds_the_ids() -> None:
    assert id_dtype(2**31 - 1, auto_cast=True) == np.int32
    assert id_dtype(2**31, auto_cast=True) == np.int64
    assert [type_dtype(count, auto_cast=True) for count in (256, 257, 2**15, 2**15 + 1, 2**31 + 1)] == [
        np.uint8, np.int16, np.int16, np.int32, np.int64,
    ]  # fmt: skip


def test_edge_ids_are_left_out(tmp_path: Path) -> None:
    graph = process(tmp_path, on_disk.untyped(tmp_path), with_edge_ids=False)
    assert list(graph.edge_attributes) == ["weight"]


def test_without_edges(tmp_path: Path) -> None:
    edges = on_disk.save(tmp_path, "none.npy", np.empty((2, 0), dtype=np.int64))
    graph = process(tmp_path, {"graph": {"nodes": [{"num": 3}], "edges": [edges]}}, with_edge_ids=True)
    assert (graph.total_num_nodes, graph.total_num_edges) == (3, 0)


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("edges/all.npy", [[0, 1], [1, 9]], r"graph\.edges\[0\]: destinations must lie in 0 \.\. 3, but holds 9"),
        ("edges/all.npy", [[0, 1, 2]], r"graph\.edges\[0\]: The shape of edges should be \(2, N\), but got \(1, 3\)"),
        (
            "opt/weight.npy",
            [1.0, 2.0],
            r"graph\.feature_data 'weight' must have 6 rows, but has shape \(2,\)",
        ),
        ("opt/age.npy", [1, 2], r"graph\.feature_data 'age' must have 4 rows"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, values: Any, error: str) -> None:
    data = on_disk.untyped(tmp_path)
    if name != "edges/all.npy" or len(values) == 1:
        data["graph"]["feature_data"] = [part for part in data["graph"]["feature_data"] if part["path"] == name]
    else:
        data["graph"]["feature_data"] = []
    on_disk.save(tmp_path, name, values)
    with pytest.raises(ValueError, match=error):
        process(tmp_path, data, with_edge_ids=True)


def test_types_have_attributes_of_one_dtype(tmp_path: Path) -> None:
    data = on_disk.typed(tmp_path)
    on_disk.save(tmp_path, data["graph"]["feature_data"][1]["path"], [1, 2, 3])
    with pytest.raises(ValueError, match=r"graph\.feature_data\[1\] is int64 .* another type's 'weight' is float64"):
        process(tmp_path, data, with_edge_ids=True)


def test_a_graph_that_is_as_it_was_written_is_opened_without_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, on_disk.typed(tmp_path, "npy"), with_edge_ids=False)
    topology = json.loads((tmp_path / "topology").read_text())
    checks: list[FusedCSCSamplingGraph] = []
    monkeypatch.setattr(FusedCSCSamplingGraph, "check", lambda graph: checks.append(graph))
    for in_memory in (True, False):
        read_graph(tmp_path, topology | {"in_memory": in_memory})
    assert checks == []
    for name in COLUMN_FILES:
        stamp = (tmp_path / "made/graph" / name).stat().st_mtime_ns
        (tmp_path / "made/graph" / name).touch()
        graph = read_graph(tmp_path, topology)
        assert checks.pop() is graph
        os.utime(tmp_path / "made/graph" / name, ns=(stamp, stamp))
    read_graph(tmp_path, {name: value for name, value in topology.items() if name != "written"})
    assert len(checks) == 1
