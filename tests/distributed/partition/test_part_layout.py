import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Partitioner, plan_halo, report_partition, write_partition
from graphfeed.distributed.partition.part_layout import (
    FILE_NAME,
    ArrayEntry,
    PartitionMetadata,
    map_entry,
    parse_entry,
    read_metadata,
)
from tests.distributed import graphs
from tests.refusals import check_all_refused, check_refused

ENTRY: dict[str, Any] = {"path": "a.npy", "role": "indices", "key": [], "dtype": "int64", "shape": [3]}


def metadata() -> PartitionMetadata:
    shared = [ArrayEntry("node_parts.npy", "node_parts", (), "uint8", (3,))]
    feature = ArrayEntry("part_0/feature_0.npy", "feature", ("node", "user", "feat"), "float32", (2, 4))
    return PartitionMetadata(
        {"user": 2, "item": 1}, {"user:likes:item": 5}, {"user:likes:item": 0}, shared, [[feature], []]
    )


def test_metadata_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(metadata().to_json())
    assert read_metadata(tmp_path) == metadata()
    assert metadata().total_num_nodes == 3


def test_other_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with pytest.raises(FileNotFoundError, match=FILE_NAME):
        read_metadata(tmp_path)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "of version 2"),
        ({"format": "other"}, "it is 'other'"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"num_edges": {"a:b:c": "many"}}, "num_edges is"),
        ({"edge_type_to_id": [1]}, "edge_type_to_id is"),
        ({"parts": [[{"path": "x"}]]}, "role"),
        ({"shared": 3}, "not iterable"),
    ]
    for changed, message in changes:
        path.write_text(json.dumps(json.loads(metadata().to_json()) | changed))
        with pytest.raises(ValueError, match=message) as caught:
            read_metadata(tmp_path)
        assert str(path) in str(caught.value)
        assert "write the partition again" in str(caught.value)
    for text in ("", "{", "[]", "null", '{"format": "graphfeed partition"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="can't be read"):
            read_metadata(tmp_path)


def test_entries_that_describe_no_array_are_refused() -> None:
    assert parse_entry(ENTRY).shape == (3,)
    wrong: list[Any] = [
        *[{"role": "node_type_to_id"}, {"role": "feature"}, {"dtype": "load"}, {"dtype": None}, {"path": 5}],
        *[{"shape": [-1]}, {"shape": []}, {"shape": [2.0]}, {"key": [3]}, {"key": ["name"]}],
    ]
    check_all_refused(lambda change: parse_entry(ENTRY | change), wrong, "", (ValueError, TypeError))


def test_a_write_does_not_reach_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    map_entry(tmp_path, parse_entry(ENTRY))[0] = 7
    assert map_entry(tmp_path, parse_entry(ENTRY)).tolist() == [0, 1, 2]


def test_a_file_that_is_not_as_described_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    entry = parse_entry(ENTRY)
    with pytest.raises(FileNotFoundError, match=r"a\.npy"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(4))
    with pytest.raises(ValueError, match=r"holds int64 of shape \(4,\), but .* says int64 of shape \(3,\)"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(3, dtype=np.int32))
    with pytest.raises(ValueError, match="holds int32"):
        map_entry(tmp_path, entry)
    np.save(path, np.arange(3))
    whole = path.read_bytes()
    np.save(path, np.array([{}, 1, 2], dtype=object))
    objects = path.read_bytes()
    with path.open("wb") as file:
        np.savez(file, a=np.arange(3))
    for content in (objects, whole[:-1], b"", path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="can't be read"):
            map_entry(tmp_path, entry)
    np.save(path, np.asfortranarray(np.ones((3, 2))))
    with pytest.raises(ValueError, match="Fortran order"):
        map_entry(tmp_path, ArrayEntry("a.npy", "indices", (), "float64", (3, 2)))


def test_no_path_leads_out_of_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    np.save(tmp_path / "a.npy", np.arange(3))
    (root / "link.npy").symlink_to(tmp_path / "a.npy")
    for path in ("../a.npy", f"{tmp_path}/a.npy", "link.npy"):
        with pytest.raises(ValueError, match="out of the folder"):
            map_entry(root, parse_entry(ENTRY | {"path": path}))


def test_more_parts_than_there_can_be_folders_are_refused_before_the_work_begins(tmp_path: Path) -> None:
    graph, parts = graphs.plain(), torch.zeros(100, dtype=torch.int64)
    features = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.zeros(100, 1))})
    many, words = 10**9, r"at most 65,536, for each part has a folder.*but is 1,000,000,000"
    check_refused(
        [
            (lambda: write_partition(tmp_path / "parts", graph, parts, many), ValueError, words),
            (lambda: Partitioner(graph, many, tmp_path / "parts", method=parts), ValueError, words),
            (lambda: report_partition(graph, parts, many), ValueError, words),
            (lambda: plan_halo(graph, parts, many, features, 40), ValueError, words),
        ]
    )
    assert list(tmp_path.iterdir()) == []
