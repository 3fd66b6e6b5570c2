"""The command `graphfeed ingest`."""

import signal
import warnings
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.ingest.dataset.dataset_builder import Builder
from tests.kinds.example_tables import likes
from tests.kinds.example_tables import write as write_table
from tests.kinds.on_disk import listing


def test_tables_become_a_data_set_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_text(likes(tmp_path).to_yaml())
    arguments = [str(tmp_path / "spec.yaml"), str(tmp_path / "out")]
    assert main(["ingest", *arguments, "--memory", "64M"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/out; see `graphfeed inspect")
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


def test_a_warning_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "e.parquet", {"source": [0, 1], "destination": [1, 0], "part": ["train", "test"]})
    held_out = "{files: e.parquet, split: {column: part, train: train}, training_graph: true}"
    text = f"edges:\n  a:r:a: {held_out}\n  a:q:a: {{files: e.parquet, source: destination, destination: source}}\n"
    (tmp_path / "spec.yaml").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["ingest", str(tmp_path / "spec.yaml"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.startswith("graphfeed ingest: warning: the edges a:q:a are read from the table of")


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

    for method, left in (("read_nodes", ""), ("sort", "; the next run with the same files continues after the finish")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Builder, method, interrupt)
            assert main(arguments) == 130
        error = capsys.readouterr().err
        assert error.startswith(f"graphfeed: interrupted{left}")
        assert error.count("\n") == 1
        assert "out" not in listing(tmp_path)
    assert main(arguments) == 0
