"""The ids of tables, read by tasks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest.build.id_task import collect_ids, read_ids
from graphfeed.ingest.tables.table import TableSource
from tests.ingest.example_tables import tasks_in


def csv(folder: Path, name: str, lines: str) -> TableSource:
    (folder / name).write_text(lines)
    return TableSource(folder / name, name)


def test_ids_are_collected_from_the_edges_that_name_them(tmp_path: Path) -> None:
    source = TableSource({"s": np.array([4, 2]), "d": np.array([2, 8])}, "edges")
    found = collect_ids(tasks_in(tmp_path / "a"), [(source, "s"), (source, "d")], "x")
    assert found.find(np.array([2, 4, 8, 3])).tolist() == [0, 1, 2, -1]
    texts = [TableSource(pa.table({"s": values}), "edges") for values in (["b", "a", "b"], ["ä", "a"])]
    found = collect_ids(tasks_in(tmp_path / "b"), [(source, "s") for source in texts], "x")
    assert found.find(pa.array(["a", "b", "ä", "c"], pa.large_string())).tolist() == [0, 1, 2, -1]


def test_ids_of_rows_come_with_where_each_table_begins(tmp_path: Path) -> None:
    sources = [csv(tmp_path, "a.csv", 'i\n5\n""\n7\n'), csv(tmp_path, "b.csv", "i\n9\n")]
    ids, given, starts = read_ids(tasks_in(tmp_path / "out"), [(source, "i") for source in sources], "x", "skip")
    assert ids[given].tolist() == [5, 7, 9]
    assert given.tolist() == [True, False, True, True]
    assert starts == [0, 3, 4]
    with pytest.raises(ValueError, match=r"a\.csv, row 1: i is 'missing', but must be an integer id"):
        read_ids(tasks_in(tmp_path / "out"), [(source, "i") for source in sources], "y", "raise")


@pytest.mark.parametrize("threads", [0, 2])
def test_one_id_that_is_a_text_makes_texts_of_those_in_all_tables(tmp_path: Path, threads: int) -> None:
    sources = [csv(tmp_path, "a.csv", "i\n5\n7\n"), csv(tmp_path, "b.csv", "i\n1\n2\n007\n")]
    tasks = replace(tasks_in(tmp_path / "out"), executor=ThreadPoolExecutor(threads) if threads else None)
    ids, given, starts = read_ids(tasks, [(source, "i") for source in sources], "x", "raise")
    assert ids.to_pylist() == ["5", "7", "1", "2", "007"]
    assert given.all()
    assert starts == [0, 2, 5]
