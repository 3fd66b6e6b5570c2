"""Reports about data sets: the numbers in them, and files that have changed."""

from pathlib import Path

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset, inspect_dataset
from graphfeed.storage.datasets.preprocess import preprocess_ondisk_dataset
from tests.ingest.example_tables import likes
from tests.on_disk import untyped, write


def small(folder: Path) -> Path:
    pairs = np.array([[0, 0, 1, 2, 2, 2], [1, 1, 1, 2, 0, 0]])
    code = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    edges = EdgeTable({"s": pairs[0], "d": pairs[1], "x": code}, source="s", destination="d", features={"x": "x"})
    labels = np.array(["a", "b", "a", "a", "b"])
    other = EdgeTable({"s": np.array([4]), "d": np.array([1])}, source="s", destination="d")
    spec = Spec(
        {"a:r:a": edges, "a:q:b": other},
        {"a": NodeTable({"y": labels}, label="y"), "b": NodeTable(count=2)},
        "little",
    )
    build_dataset(spec, folder / "out")
    return folder / "out"


def test_degrees_duplicates_loops_and_isolated_nodes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small(tmp_path)
    whole = str(inspect_dataset(folder))
    monkeypatch.setattr("graphfeed.ingest.report.dataset_report.PART", 2)
    report = inspect_dataset(folder)
    assert str(report) == whole
    assert {kind: (own.count, own.isolated) for kind, own in report.nodes.items()} == {"a": (5, 1), "b": (2, 1)}
    loops = report.edges["a:r:a"]
    assert (loops.count, loops.most_out, loops.duplicates, loops.loops) == (6, 3, 2, 2)
    assert loops.in_degrees.tolist() == [2, 3, 1, 0, 0]
    feature = report.features["edge", "a:r:a", "x"]
    assert (feature.dtype, feature.shape, feature.low, feature.high, feature.nan) == ("float32", (6, 1), 1, 6, 0)
    assert report.tasks == ["task node_classification: 5 to train; 2 classes"]
    assert report.damaged == []
    assert "all files are as they were written" in whole
    assert "data set little" in whole


def test_a_file_that_has_changed_or_is_missing_is_named(tmp_path: Path) -> None:
    folder = small(tmp_path)
    before = inspect_dataset(folder).checksum
    path = folder / "graphfeed" / "edge_1_feature_0.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = inspect_dataset(folder)
    assert report.damaged == ["edge_1_feature_0.npy"]
    assert report.checksum == before
    assert "damaged: edge_1_feature_0.npy" in str(report)


def test_data_sets_of_others_are_reported_too(tmp_path: Path) -> None:
    preprocess_ondisk_dataset(write(tmp_path, untyped(tmp_path)))
    report = inspect_dataset(tmp_path)
    assert report.nodes[None].count == 4
    assert report.edges[None].count == 6
    assert [line.split()[0] for line in str(report).splitlines()[1:3]] == ["nodes", "None"]
    assert "\nnode None feat" in str(report)
    assert report.checksum is None
    assert "checksum" not in str(report)


def test_rows_that_were_left_out_are_told(tmp_path: Path) -> None:
    spec = likes(tmp_path)
    (tmp_path / "likes.csv").write_text("user,item,at\nann,1,1\neve,2,2\n")
    edges = EdgeTable("likes.csv", source="user", destination="item")
    build_dataset(Spec({"user:likes:item": edges}, spec.nodes, folder=tmp_path), tmp_path / "out", on_error="skip")
    assert "1 rows of " in str(inspect_dataset(tmp_path / "out"))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "int8", "float16", "bool"])
def test_features_of_every_dtype_have_bounds(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "x.npy", np.array([1, 0, 1], dtype=dtype))
    edges = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 2])}, source="s", destination="d")
    spec = Spec({"n:r:n": edges}, {"n": NodeTable(features={"x": "x.npy"})}, folder=tmp_path)
    build_dataset(spec, tmp_path / "out")
    feature = inspect_dataset(tmp_path / "out").features["node", "n", "x"]
    assert (feature.dtype, feature.low, feature.high, feature.nan) == (dtype, 0, 1, 0)
