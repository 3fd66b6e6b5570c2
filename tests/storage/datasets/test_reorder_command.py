from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.__main__ import main
from tests import on_disk


def test_it_writes_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    on_disk.write(tmp_path / "old", on_disk.untyped(tmp_path / "old"))
    arguments = ["reorder", str(tmp_path / "old"), "-o", str(tmp_path / "new"), "--by", "met", "--memory", "1M"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'new'}; its `ids` are those that nodes had before\n"
    assert list(gf.OnDiskDataset(tmp_path / "new").load().ids()) == [0, 3, 1, 2]
    assert main(arguments) == 1
    assert "is not an empty folder" in capsys.readouterr().err
