from pathlib import Path

import pytest

from graphfeed.__main__ import main
from graphfeed.ingest import build_dataset
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
