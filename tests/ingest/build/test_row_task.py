"""Which rows each task reads, and where their features go."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.build import row_outputs
from graphfeed.ingest.build.growing_arrays import Place
from graphfeed.ingest.build.row_task import RowTask
from graphfeed.ingest.build.spec import Table
from graphfeed.ingest.build.table_tasks import Piece, Reading
from graphfeed.ingest.tables.table import TableSource


class Rows(RowTask):
    def read(self, reading: Reading, folder: Path) -> Piece:
        raise NotImplementedError


def split(sources: list[TableSource], folder: Path, **options: Any) -> list[tuple[str, int, Place | None]]:
    given = {"table": Table(), "spec_folder": folder, **options}
    tasks = Rows(prefix="n", **given).split(sources, folder / "n")
    return [(task.prefix, task.first_row, task.place) for task in tasks]


def test_features_have_their_places_unless_rows_may_be_left_out_or_cannot_be_counted(tmp_path: Path) -> None:
    sources = [TableSource(pa.table({"x": range(rows)}), "t") for rows in (2, 0, 3)]
    places = [Place(tmp_path / "n", 5, first) for first in (0, 2, 2)]
    assert split(sources, tmp_path) == [("n_0", 0, places[0]), ("n_1", 2, places[1]), ("n_2", 2, places[2])]
    assert split(sources, tmp_path, on_error="skip") == [("n_0", 0, None), ("n_1", 2, None), ("n_2", 2, None)]
    (tmp_path / "a.csv").write_text("x\n1\n")
    texts = TableSource(tmp_path / "a.csv", "a.csv")
    assert split([*sources, texts], tmp_path) == [(f"n_{number}", 0, None) for number in range(4)]
    np.save(tmp_path / "a.npy", np.arange(6))
    assert split([*sources, texts], tmp_path, table=Table(features={"a": "a.npy"})) == [("n_0", 0, None)]
    assert len(split(sources, tmp_path, table=Table(features={"a": "a.npy"}))) == 3


def test_an_archive_of_arrays_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(4.0))
    tables = [pa.table({"y": [number, number]}) for number in range(2)]
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    spec = Spec({"e": edges}, {"n": NodeTable(tables, features={"f": ["y", "a.npz#x"]})}, folder=tmp_path)
    opened: list[str] = []
    read = row_outputs.open_reference

    def record(reference: str, folder: Path) -> Any:
        opened.append(reference)
        return read(reference, folder)

    monkeypatch.setattr(row_outputs, "open_reference", record)
    found = build_dataset(spec).feature.read("node", None, "f")
    assert found.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    assert opened == ["a.npz#x"]


def test_arrays_beside_tables_that_do_not_say_how_many_rows_they_have(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("x\n" + f"{number}\n" * (number + 1))
    np.save(tmp_path / "a.npy", np.arange(6))
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    spec = Spec({"e": edges}, {"n": NodeTable("*.csv", features={"f": ["x", "a.npy"]})}, folder=tmp_path)
    with ThreadPoolExecutor(2) as executor:
        for dataset in (build_dataset(spec), build_dataset(spec, executor=executor)):
            found = dataset.feature.read("node", None, "f").tolist()
            assert found == [[0, 0], [1, 1], [1, 2], [2, 3], [2, 4], [2, 5]]
