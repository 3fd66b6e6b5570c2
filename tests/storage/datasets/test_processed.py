"""Preprocessed data: the graph in dtypes that fit its ids, features in place, and items of each type."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops import ALWAYS
from graphfeed.storage import from_coo
from graphfeed.storage.datasets import HeteroItemSet, ItemSet, id_dtype
from graphfeed.storage.datasets.metadata import parse_metadata
from graphfeed.storage.datasets.processed_arrays import Files, inside, open_items, write_features, write_tasks
from graphfeed.storage.datasets.processed_graph import COLUMN_FILES, open_graph, type_dtype, write_graph
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph
from tests import on_disk
from tests.refusals import Refusal, check_refused


def process(folder: Path, data: dict[str, Any], with_edge_ids: bool, auto_cast: bool = True) -> FusedCSCSamplingGraph:
    graph = parse_metadata(data).graph
    assert graph is not None
    target = folder / "made"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    topology, _ = write_graph(folder, target, graph, with_edge_ids, auto_cast)
    assert on_disk.listing(target) == ["graph"]
    (folder / "topology").write_text(json.dumps(topology | {"path": "made/graph"}))
    return open_graph(folder, topology | {"path": "made/graph"})


def test_without_types(tmp_path: Path) -> None:
    for edges, ending in product(["npy", "pt", "csv"], ["npy", "pt"]):
        folder = tmp_path / f"{edges} {ending}"
        folder.mkdir()
        graph = process(folder, on_disk.untyped(folder, ending, edges), with_edge_ids=True)
        expected = from_coo((torch.tensor(on_disk.SOURCES), torch.tensor(on_disk.DESTINATIONS)), 4)
        assert graph.csc_indptr.tolist() == expected.csc_indptr.tolist(), (edges, ending)
        assert graph.indices.tolist() == expected.indices.tolist(), (edges, ending)
        order = expected.edge_attribute(ORIGINAL_EDGE_ID)
        assert graph.edge_attribute(ORIGINAL_EDGE_ID).tolist() == order.tolist(), (edges, ending)
        assert order.tolist() != sorted(order.tolist())
        assert graph.edge_attribute("weight").tolist() == (order + 10.0).tolist(), (edges, ending)
        assert graph.node_attribute("age").tolist() == [7, 8, 9, 10], (edges, ending)
        assert graph.node_type_to_id is None


def test_types_may_lack_weights_and_times(tmp_path: Path) -> None:
    data = on_disk.typed(tmp_path)
    del data["graph"]["feature_data"][1:]
    for domain, kind, values in (("node", "item", [5, 6, 7]), ("edge", "user:likes:item", [9, 8, 7, 6])):
        spec = on_disk.save(tmp_path, f"time_{domain}.npy", values)
        data["graph"]["feature_data"].append({"domain": domain, "type": kind, "name": "time", **spec})
    graph = process(tmp_path, data, with_edge_ids=True)
    likes = graph.type_per_edge == graph.edge_types.index("user:likes:item")
    ids = graph.edge_attribute(ORIGINAL_EDGE_ID).long()
    assert graph.node_attribute("time").tolist() == [5, 6, 7, *[ALWAYS] * 4]
    assert graph.edge_attribute("time").tolist() == torch.where(likes, 9 - ids, ALWAYS).tolist()
    assert graph.edge_attribute("weight").tolist() == torch.where(likes, ids, 1).tolist()
    on_disk.save(tmp_path, "time_node.npy", [0.5, 1, 2])
    with pytest.raises(ValueError, match="'time' of domain node has no entry for the type 'user'; only times in int64"):
        process(tmp_path, data, with_edge_ids=True)


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


def test_without_edges(tmp_path: Path) -> None:
    edges = on_disk.save(tmp_path, "none.npy", np.empty((2, 0), dtype=np.int64))
    graph = process(tmp_path, {"graph": {"nodes": [{"num": 3}], "edges": [edges]}}, with_edge_ids=True)
    assert (graph.total_num_nodes, graph.total_num_edges) == (3, 0)


def refusals_of_arrays(folder: Path) -> list[Refusal]:
    """Return datasets with a file or type that does not fit the rest."""

    def changed(made: Callable[[Path], dict[str, Any]], name: str, values: Any) -> object:
        data = made(folder)
        if made is on_disk.typed:
            data["feature_data"] = []
        on_disk.save(folder, name, values)
        return process_arrays(folder, data)

    def untyped(name: str, values: Any) -> object:
        return changed(on_disk.untyped, name, values)

    def typed(name: str, values: Any) -> object:
        return changed(on_disk.typed, name, values)

    def of_type() -> object:
        return process_arrays(folder, on_disk.change(on_disk.untyped(folder), "feature_data.0.type", "user"))

    def outside() -> object:
        data = parse_metadata(on_disk.change(on_disk.untyped(folder), "feature_data.0.path", "../feat.npy"))
        return inside(folder, data.feature_data)

    data = r"train_set\[0\]\.data\[0\]"
    no_type = r"feature_data\[0\]\.type must be one of the node types \[None\], but is 'user'"
    far = r"train_set\[1\]\.data\[0\] must hold ids in 0 \.\. 2, but goes from 0 to 3"
    far_pairs = r"validation_set\[0\]\.data\[0\] must hold ids in 0 \.\. 2, but goes from 3 to 3"
    one_number = r"tasks\[0\]\.train_set\[0\]\.data\[1\] must have rows, but is one number"
    return [
        (lambda: untyped("feat.npy", np.ones((3, 2))), ValueError,
         r"data\[0\] must have 4 rows, but has shape \(3, 2\)"),
        (lambda: untyped("row.npy", 5), ValueError, r"feature_data\[1\] must have 6 rows, but has shape \(\)"),
        (lambda: untyped("set/train.npy", [0, 4]), ValueError,
         data + r" must hold ids in 0 \.\. 3, but goes from 0 to 4"),
        (lambda: untyped("set/train.npy", [-1, 2]), ValueError, data + r" must hold ids in 0 \.\. 3, .* from -1 to 2"),
        (lambda: untyped("set/train.npy", [0.5, 2]), ValueError,
         "has seeds, which must be integers, but are float64"),
        (lambda: untyped("set/labels.npy", [0]), ValueError,
         r"tasks\[0\]\.train_set\[0\] must have arrays of equal length"),
        (lambda: untyped("set/labels.npy", 0), ValueError, one_number),
        (lambda: typed("item.npy", [0, 3]), ValueError, far),
        (lambda: typed("likes.npy", [[0, 3]]), ValueError, far_pairs),
        (lambda: typed("likes.npy", [[0, 1, 2]]), ValueError, r"seeds of shape \(1, 3\) and type 'user:likes:item'"),
        (of_type, ValueError, no_type),
        (outside, ValueError, r"feature_data\[0\]\.path is '\.\./feat\.npy'"),
    ]  # fmt: skip


def refusals_of_graphs(folder: Path) -> list[Refusal]:
    """Return datasets whose edges or attributes do not fit the graph."""

    def edges(values: Any) -> object:
        data = on_disk.untyped(folder)
        data["graph"]["feature_data"] = []
        on_disk.save(folder, "edges/all.npy", values)
        return process(folder, data, with_edge_ids=True)

    def attribute(name: str, values: Any) -> object:
        data = on_disk.untyped(folder)
        on_disk.save(folder, f"opt/{name}.npy", values)
        return process(folder, data, with_edge_ids=True)

    def of_other_dtypes() -> object:
        data = on_disk.typed(folder)
        on_disk.save(folder, data["graph"]["feature_data"][1]["path"], [1, 2, 3])
        return process(folder, data, with_edge_ids=True)

    outside = r"graph\.edges\[0\]: destinations must lie in 0 \.\. 3, but holds 9"
    other_dtype = r"graph\.feature_data\[1\] is int64 .* another type's 'weight' is float64"
    other_shape = r"graph\.edges\[0\]: The shape of edges should be \(2, N\), but got \(1, 3\)"
    return [
        (lambda: edges([[0, 1], [1, 9]]), ValueError, outside),
        (lambda: edges([[0, 1, 2]]), ValueError, other_shape),
        (lambda: attribute("weight", [1.0, 2.0]), ValueError, r"'weight' must have 6 rows, but has shape \(2,\)"),
        (lambda: attribute("age", [1, 2]), ValueError, r"graph\.feature_data 'age' must have 4 rows"),
        (of_other_dtypes, ValueError, other_dtype),
    ]


def test_what_does_not_fit_together_is_named(tmp_path: Path) -> None:
    check_refused([*refusals_of_graphs(tmp_path), *refusals_of_arrays(tmp_path)])


def test_a_graph_that_is_as_it_was_written_is_opened_without_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, on_disk.typed(tmp_path, "npy"), with_edge_ids=False)
    topology = json.loads((tmp_path / "topology").read_text())
    checks: list[FusedCSCSamplingGraph] = []
    monkeypatch.setattr(FusedCSCSamplingGraph, "check", lambda graph: checks.append(graph))
    for in_memory in (True, False):
        open_graph(tmp_path, topology | {"in_memory": in_memory})
    assert checks == []
    for name in COLUMN_FILES:
        stamp = (tmp_path / "made/graph" / name).stat().st_mtime_ns
        (tmp_path / "made/graph" / name).touch()
        graph = open_graph(tmp_path, topology)
        assert checks.pop() is graph
        os.utime(tmp_path / "made/graph" / name, ns=(stamp, stamp))
    open_graph(tmp_path, {name: value for name, value in topology.items() if name != "written"})
    assert len(checks) == 1


def process_arrays(folder: Path, data: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    metadata = parse_metadata(data)
    assert metadata.graph is not None
    (folder / "made").mkdir(exist_ok=True)
    files = Files(folder / "made", "made")
    counts: dict[str, dict[str | None, int]] = {
        "node": metadata.graph.num_nodes,
        "edge": {part.type: 6 if part.type is None else 4 for part in metadata.graph.edges},
    }
    features = write_features(folder, files, metadata.feature_data, counts)
    return features, write_tasks(folder, files, metadata.tasks, metadata.graph, auto_cast=True)


def test_numpy_files_are_used_where_they_lie(tmp_path: Path) -> None:
    features, tasks = process_arrays(tmp_path, on_disk.untyped(tmp_path))
    assert features[0]["path"] == "feat.npy"
    assert features[0]["num_categories"] == 5
    assert tasks[0]["train_set"][0]["data"][1]["path"] == "set/labels.npy"
    assert tasks[0]["num_classes"] == 2


def test_torch_files_one_column_and_seeds_are_converted(tmp_path: Path) -> None:
    features, tasks = process_arrays(tmp_path, on_disk.untyped(tmp_path, "pt"))
    assert np.load(tmp_path / features[0]["path"]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert np.load(tmp_path / features[1]["path"]).shape == (6, 1)
    seeds = np.load(tmp_path / tasks[1]["train_set"][0]["data"][0]["path"])
    assert seeds.dtype == np.int32
    assert seeds.tolist() == [[0, 1], [3, 2]]
    assert {part["format"] for part in features} == {"numpy"}


def test_what_torch_can_not_map_is_converted(tmp_path: Path) -> None:
    arrays: list[Any] = [np.asfortranarray(np.ones((4, 2))), np.ones((4, 2), dtype=">f4")]
    for array in arrays:
        data = on_disk.untyped(tmp_path)
        np.save(tmp_path / "feat.npy", array)
        path = process_arrays(tmp_path, data)[0][0]["path"]
        made = np.load(tmp_path / path)
        assert path != "feat.npy"
        assert made.flags.c_contiguous
        assert made.dtype.isnative
        assert np.array_equal(made, array)


def test_features_get_whole_paths(tmp_path: Path) -> None:
    metadata = parse_metadata(on_disk.untyped(tmp_path))
    assert inside(tmp_path, metadata.feature_data)[0].path == (tmp_path / "feat.npy").resolve()


def test_item_sets(tmp_path: Path) -> None:
    metadata = parse_metadata(on_disk.typed(tmp_path))
    items = open_items(tmp_path, metadata.tasks[0].train_set, "key")
    assert isinstance(items, HeteroItemSet)
    assert [next(iter(item)) for item in items] == ["user"] * 4 + ["item"] * 3
    assert open_items(tmp_path, (), "key") is None


def test_item_sets_without_names_or_in_memory(tmp_path: Path) -> None:
    for ending in ("npy", "pt"):
        data = {"data": [on_disk.save(tmp_path, f"a.{ending}", [3, 4]) | {"in_memory": False}]}
        metadata = parse_metadata({"tasks": [{"train_set": [data]}]})
        items = open_items(tmp_path, metadata.tasks[0].train_set, "key")
        assert isinstance(items, ItemSet)
        assert items.names is None
        assert int(items[1]) == 4
