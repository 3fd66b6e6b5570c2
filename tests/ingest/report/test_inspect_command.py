from pathlib import Path

import pytest

from graphfeed.__main__ import main
from graphfeed.ingest import build_dataset, inspect_graph_file
from graphfeed.storage import from_coo
from tests.ingest.example_tables import likes


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
