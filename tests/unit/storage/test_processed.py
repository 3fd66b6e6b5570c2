"""Preprocessed data: the graph in dtypes that fit its ids, features in place, and items of each type."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from graphfeed.ops import ALWAYS
from graphfeed.storage import ItemSet, OnDiskDataset, from_coo, preprocess_ondisk_dataset
from graphfeed.storage.datasets import id_dtype
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from tests.kinds import on_disk
from tests.kinds.refusals import Refusal, check_refused


def process(folder: Path, data: dict[str, Any], with_edge_ids: bool = True, auto_cast: bool = True) -> Any:
    """Preprocess and load a data set; return its graph."""
    options: dict[str, Any] = {"include_original_edge_id": with_edge_ids, "auto_cast_to_optimal_dtype": auto_cast}
    return OnDiskDataset(on_disk.write(folder, data), force_preprocess=True, **options).load().graph


def metadata_of(folder: Path, data: dict[str, Any]) -> Any:
    """Preprocess a data set; return the metadata that are written."""
    path = preprocess_ondisk_dataset(on_disk.write(folder, data), force_preprocess=True)
    return yaml.safe_load(Path(path).read_text())


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
        return process(folder, data)

    def untyped(name: str, values: Any) -> object:
        return changed(on_disk.untyped, name, values)

    def typed(name: str, values: Any) -> object:
        return changed(on_disk.typed, name, values)

    def of_type() -> object:
        return process(folder, on_disk.change(on_disk.untyped(folder), "feature_data.0.type", "user"))

    def outside() -> object:
        return process(folder, on_disk.change(on_disk.untyped(folder), "feature_data.0.path", "../feat.npy"))

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

    outside = r"graph\.edges\[0\]: destinations must be in 0 \.\. 3, but holds 9"
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


def test_a_graph_that_is_as_it_was_written_is_opened_without_a_pass(tmp_path: Path) -> None:
    """An invalid id is not noticed unless all ids are read."""
    data = on_disk.typed(tmp_path)
    process(tmp_path, data, with_edge_ids=False)
    path = tmp_path / "graphfeed" / "graph" / "indices.npy"
    stamp, indices = path.stat().st_mtime_ns, np.load(path)
    np.save(path, indices + 99)
    os.utime(path, ns=(stamp, stamp))
    graph = OnDiskDataset(tmp_path).load().graph
    assert graph is not None
    with pytest.raises(ValueError, match="indices must be in"):
        graph.check()
    path.touch()
    with pytest.raises(ValueError, match="indices must be in"):
        OnDiskDataset(tmp_path).load()
    np.save(path, indices)
    assert OnDiskDataset(tmp_path).load().graph is not None


def test_numpy_files_are_used_where_they_lie(tmp_path: Path) -> None:
    made = metadata_of(tmp_path, on_disk.untyped(tmp_path))
    assert (made["feature_data"][0]["path"], made["feature_data"][0]["num_categories"]) == ("feat.npy", 5)
    assert made["tasks"][0]["train_set"][0]["data"][1]["path"] == "set/labels.npy"
    assert made["tasks"][0]["num_classes"] == 2


def test_torch_files_one_column_and_seeds_are_converted(tmp_path: Path) -> None:
    made = metadata_of(tmp_path, on_disk.untyped(tmp_path, "pt"))
    features = made["feature_data"]
    assert np.load(tmp_path / features[0]["path"]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert np.load(tmp_path / features[1]["path"]).shape == (6, 1)
    seeds = np.load(tmp_path / made["tasks"][1]["train_set"][0]["data"][0]["path"])
    assert seeds.dtype == np.int32
    assert seeds.tolist() == [[0, 1], [3, 2]]
    assert {part["format"] for part in features} == {"numpy"}


def test_what_torch_can_not_map_is_converted(tmp_path: Path) -> None:
    arrays: list[Any] = [np.asfortranarray(np.ones((4, 2))), np.ones((4, 2), dtype=">f4")]
    for array in arrays:
        data = on_disk.untyped(tmp_path)
        np.save(tmp_path / "feat.npy", array)
        path = metadata_of(tmp_path, data)["feature_data"][0]["path"]
        made = np.load(tmp_path / path)
        assert path != "feat.npy"
        assert made.flags.c_contiguous
        assert made.dtype.isnative
        assert np.array_equal(made, array)


def test_items_may_have_no_names_and_stay_on_disk(tmp_path: Path) -> None:
    for ending in ("npy", "pt"):
        data = on_disk.untyped(tmp_path)
        data["tasks"][0]["train_set"] = [
            {"data": [on_disk.save(tmp_path, f"a.{ending}", [3, 4]) | {"in_memory": False}]}
        ]
        items = OnDiskDataset(on_disk.write(tmp_path, data)).load().tasks[0].train_set
        assert isinstance(items, ItemSet)
        assert items.names is None
        assert int(items[1]) == 4
