"""The commands `ingest` and `inspect`, and the reports about data sets."""

import signal
from pathlib import Path

import numpy as np
import pytest

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset, inspect_dataset, inspect_graph_file
from graphfeed.ingest.build.dataset_builder import Builder
from graphfeed.storage import from_coo
from graphfeed.storage.datasets.preprocess import preprocess_ondisk_dataset
from tests.ingest.example_tables import likes
from tests.ingest.example_tables import write as write_table
from tests.on_disk import listing, untyped, write


def test_tables_become_a_data_set_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(likes(tmp_path).to_yaml())
    arguments = [str(tmp_path / "spec.yaml"), str(tmp_path / "out")]
    assert main(["ingest", *arguments, "--memory", "64M"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/out; `graphfeed inspect")
    assert gf.OnDiskDataset(tmp_path / "out").load().graph is not None
    assert main(["ingest", *arguments]) == 1
    assert "is not an empty folder" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_read_and_sort(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(likes(tmp_path).to_yaml())
    arguments = ["ingest", str(tmp_path / "spec.yaml")]
    assert main([*arguments, str(tmp_path / "here")]) == 0
    assert main([*arguments, str(tmp_path / "out"), "--workers", "2"]) == 0
    one, other = (gf.OnDiskDataset(tmp_path / name).yaml_data["checksums"] for name in ("here", "out"))
    assert one == other
    assert main([*arguments, str(tmp_path / "other"), "--workers", "0"]) == 1
    assert "--workers must be 1 or more" in capsys.readouterr().err


def test_rows_that_are_left_out_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(likes(tmp_path).to_yaml())
    write_table(tmp_path / "likes.parquet", {"user": ["ann", "eve", "eve"], "item": [1, 2, 3], "at": [1, 2, 3]})
    arguments = ["ingest", str(tmp_path / "spec.yaml"), str(tmp_path / "out")]
    assert main(arguments) == 1
    assert "likes.parquet, row 1: user is 'eve', but no row of the nodes has that id" in capsys.readouterr().err
    assert "out" not in listing(tmp_path)
    assert main([*arguments, "--on-error", "skip"]) == 0
    assert "2 rows of " in capsys.readouterr().out


def test_a_specification_is_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    likes(tmp_path)
    path = (tmp_path / "likes.parquet").rename(tmp_path / "edges_user_likes_item.parquet")
    assert main(["ingest", "--guess", str(path)]) == 0
    assert "user:likes:item" in capsys.readouterr().out


def test_wrong_arguments_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", str(tmp_path)]) == 1
    assert "give the specification and the folder to write, but 1 paths are given" in capsys.readouterr().err

    assert main(["ingest", str(tmp_path), str(tmp_path), "--memory", "4 apples"]) == 1
    assert "--memory must be a number of bytes, such as '512M' or '4G', but is '4 apples'" in capsys.readouterr().err


def test_an_interruption_is_one_line_and_leaves_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.yaml").write_text(likes(tmp_path).to_yaml())
    arguments = ["ingest", str(tmp_path / "spec.yaml"), str(tmp_path / "out")]

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    for method, left in (("read_nodes", ""), ("sort", "; the next run with the same files goes on from what is done")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Builder, method, interrupt)
            assert main(arguments) == 130
        error = capsys.readouterr().err
        assert error.startswith(f"graphfeed: interrupted{left}")
        assert error.count("\n") == 1
        assert "out" not in listing(tmp_path)
    assert main(arguments) == 0


def test_a_report_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_dataset(likes(tmp_path), tmp_path / "out")
    assert main(["inspect", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "user:likes:item" in printed
    assert "all files are as they were written" in printed


def test_damage_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_dataset(likes(tmp_path), tmp_path / "out")
    (tmp_path / "out" / "graphfeed" / "ids_0.npy").write_bytes(b"")
    assert main(["inspect", str(tmp_path / "out")]) == 1
    assert main(["inspect", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err


def test_a_saved_graph_is_inspected_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph"
    from_coo({"a:r:b": ([0, 1], [2, 2])}, {"a": 2, "b": 3}).save(path)
    assert main(["inspect", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "a:r:b" in printed
    assert str(inspect_graph_file(path)) in printed
    assert main(["inspect", "--verify", str(path)]) == 0
    assert "all files are as they were written" in capsys.readouterr().out
    data = bytearray(path.read_bytes())
    data[data.index(b'"a:r:b"') + 1] = ord("c")  # the header is still one of a graph
    path.write_bytes(data)
    assert main(["inspect", "--verify", str(path)]) == 1
    assert "is damaged: its checksum is" in capsys.readouterr().err


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


def test_features_of_every_dtype_have_bounds(tmp_path: Path) -> None:
    dtypes = ("uint16", "uint32", "uint64", "int8", "float16", "bool")
    for dtype in dtypes:
        np.save(tmp_path / f"{dtype}.npy", np.array([1, 0, 1], dtype=dtype))
    edges = EdgeTable({"s": np.array([0, 1]), "d": np.array([1, 2])}, source="s", destination="d")
    nodes = NodeTable(features={dtype: f"{dtype}.npy" for dtype in dtypes})
    build_dataset(Spec({"n:r:n": edges}, {"n": nodes}, folder=tmp_path), tmp_path / "out")
    report = inspect_dataset(tmp_path / "out")
    for dtype in dtypes:
        feature = report.features["node", "n", dtype]
        assert (feature.dtype, feature.low, feature.high, feature.nan) == (dtype, 0, 1, 0)
