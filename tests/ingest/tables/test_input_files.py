"""Files that change, grow or go away while a data set is made of them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build.id_task import read_ids
from graphfeed.ingest.tables.input_files import InputFiles
from tests.ingest.example_tables import likes, write
from tests.ingest.interrupted import stop_before
from tests.on_disk import listing


def test_a_file_that_is_gone_or_replaced_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    files = InputFiles()
    (found,) = files.remember([path])
    assert found[:2] == (str(path), 3)
    files.check_unchanged()
    os.utime(path, ns=(0, 0))
    with pytest.raises(ValueError, match="a changed while it was read"):
        files.check_unchanged()
    with pytest.raises(ValueError, match="a changed while it was read"):
        files.remember([path])
    path.unlink()
    with pytest.raises(ValueError, match="a changed while it was read"):
        files.check_unchanged()


def test_nodes_that_change_between_their_ids_and_their_features_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = likes(tmp_path)

    def change(*given: Any) -> Any:
        found = read_ids(*given)
        write(
            tmp_path / "users.parquet", {"name": ["dia", "ann", "cem", "ben"], "age": [1.0] * 4, "split": [0, 1, 2, 0]}
        )
        return found

    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.ingest.build.node_task.read_ids", change)
        with pytest.raises(ValueError, match=r"users\.parquet changed while it was read"):
            build_dataset(spec, tmp_path / "out")
    assert "out" not in listing(tmp_path)
    dataset = build_dataset(spec, tmp_path / "out").load()
    assert dataset.ids("user")[:] == ["dia", "ann", "cem", "ben"]


def test_an_array_of_an_archive_that_changes_after_an_interruption_is_read_again(tmp_path: Path) -> None:
    edges = EdgeTable({"s": np.array([0]), "d": np.array([1])}, source="s", destination="d")
    spec = Spec({"n:r:n": edges}, {"n": NodeTable(features={"x": "x.npz#x"})}, folder=tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([1, 2]))
    stop_before(spec, tmp_path / "out", "sort")
    time = (tmp_path / "x.npz").stat().st_mtime_ns
    np.savez(tmp_path / "x.npz", x=np.array([3, 4]), y=np.array([5, 6]))
    os.utime(tmp_path / "x.npz", ns=(time, time))
    dataset = build_dataset(spec, tmp_path / "out").load()
    assert dataset.feature.read("node", "n", "x").tolist() == [[3], [4]]
