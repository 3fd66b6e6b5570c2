"""Reports of `graphfeed inspect` about datasets and saved graphs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.__main__ import main
from graphfeed.distributed import write_partition
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.storage import from_coo
from graphfeed.storage.datasets import inspect_dataset, inspect_graph_file, preprocess_ondisk_dataset
from graphfeed.testing import limits
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.on_disk import untyped, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pairs = np.array([[0, 0, 1, 2, 2, 2], [1, 1, 1, 2, 0, 0]])
    code = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    edges = EdgeTable({"s": pairs[0], "d": pairs[1], "x": code}, source="s", destination="d", features={"x": "x"})
    other = EdgeTable({"s": np.array([4, 9]), "d": np.array([1, 0])}, source="s", destination="d")
    nodes = {"a": NodeTable({"y": np.array(["a", "b", "a", "a", "b"])}, label="y"), "b": NodeTable(count=2)}
    build_dataset(Spec({"a:r:a": edges, "a:q:b": other}, nodes, "little"), tmp_path / "out", on_error="skip")
    return tmp_path / "out"


def test_types_degrees_doubles_loops_features_and_tasks_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = str(inspect_dataset(folder))
    with limits(part_values=2):
        report = inspect_dataset(folder)
    assert str(report) == whole
    assert report.lines == [
        ("data set", "", "little"),
        ("nodes a", "5", "1 without edges"),
        ("nodes b", "2", "1 without edges"),
        ("edges a:q:b", "1", "in-degree 0.50, at most 1; 0 duplicates, 0 loops"),
        ("edges a:r:a", "6", "in-degree 1.20, at most 3; 2 duplicates, 2 loops"),
        ("feature edge a:r:a x", "6 x 1", "float32, from 1 to 6, 0 NaN"),
        ("train_set of node_classification", "5", "2 classes"),
    ]
    assert main(["inspect", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("data set                                 little\n")
    reason = "s: which is out of range: there are 5 nodes, numbered from 0"
    assert f"\n1 rows of frame 0 were left out: {reason}\n" in printed
    assert printed.endswith(f"\nchecksum {report.checksum}; all files are unchanged\n")


def test_a_file_that_has_changed_or_is_missing_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = inspect_dataset(folder).checksum
    path = folder / "graphfeed" / "edge_1_feature_0.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = inspect_dataset(folder)
    assert (report.damaged, report.checksum) == (["edge_1_feature_0.npy"], before)
    assert main(["inspect", str(folder)]) == 1
    assert "; damaged: edge_1_feature_0.npy\n" in capsys.readouterr().out
    assert main(["inspect", str(folder / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_a_saved_graph_is_inspected_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph"
    from_coo({"a:r:b": ([0, 1], [2, 2])}, {"a": 2, "b": 3}).save(path)
    assert main(["inspect", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "a:r:b" in printed
    assert str(inspect_graph_file(path)) in printed
    assert main(["inspect", "--verify", str(path)]) == 0
    assert "all files are unchanged" in capsys.readouterr().out
    data = bytearray(path.read_bytes())
    data[data.index(b'"a:r:b"') + 1] = ord("c")  # the header is still one of a graph
    path.write_bytes(data)
    assert main(["inspect", "--verify", str(path)]) == 1
    assert "is damaged: its checksum is" in capsys.readouterr().err


def test_data_sets_of_others_are_reported_too(tmp_path: Path) -> None:
    preprocess_ondisk_dataset(write(tmp_path, untyped(tmp_path)))
    report = inspect_dataset(tmp_path)
    assert [line[:2] for line in report.lines[1:3]] == [("nodes None", "4"), ("edges None", "6")]
    assert "\nfeature node None feat " in str(report)
    assert (report.checksum is None, report.damaged) == (False, [])
    (made,) = (tmp_path / "graphfeed").rglob("indices.npy")
    made.write_bytes(made.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(ValueError, match="indices"):
        inspect_dataset(tmp_path)


def test_the_arrays_of_a_partition_are_compared_with_their_checksums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = graphs.plain()
    write_partition(tmp_path / "out", graph, torch.arange(100) % 3, 3, graphs.codes_of(graph))
    shutil.rmtree(tmp_path / "out" / "part_1")  # it is on another machine
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert "all files are unchanged" in capsys.readouterr().out
    for path in ("part_2/indices.npy", "node_parts.npy"):
        data = bytearray((tmp_path / "out" / path).read_bytes())
        data[-1] ^= 1
        (tmp_path / "out" / path).write_bytes(data)
    assert main(["inspect", str(tmp_path / "out")]) == 1
    assert "; damaged: node_parts.npy, part_2/indices.npy\n" in capsys.readouterr().out


def test_features_of_every_dtype_have_bounds(tmp_path: Path) -> None:
    dtypes = ("uint16", "uint32", "uint64", "int8", "float16", "bool")
    for dtype in dtypes:
        np.save(tmp_path / f"{dtype}.npy", np.array([1, 0, 1], dtype=dtype))
    edges = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 2])}, source="s", destination="d")
    nodes = NodeTable(features={dtype: f"{dtype}.npy" for dtype in dtypes})
    build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path), tmp_path / "out")
    found = [line for line in inspect_dataset(tmp_path / "out").lines if line[0].startswith("feature")]
    assert [more for _, _, more in found] == [f"{dtype}, from 0 to 1, 0 NaN" for dtype in dtypes]
