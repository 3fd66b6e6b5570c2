import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ingest.build import node_ids
from graphfeed.ingest.build.node_ids import (
    IdCollector,
    IntegerIds,
    RowIds,
    StoredIds,
    TextIds,
    first_of_each,
    integer_ids,
    text_buffers,
)

INTEGERS = st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(-20, 20), min_size=1, max_size=30, unique=True)


def text_ids(ids: list[str]) -> TextIds:
    return TextIds(*text_buffers(pa.array(ids, pa.large_string())))


@given(ids=INTEGERS, asked=st.lists(st.integers(-30, 30) | st.integers(-(1 << 62), 1 << 62), max_size=20))
def test_integers_are_found_where_they_are(ids: list[int], asked: list[int]) -> None:
    found = IntegerIds(np.array(ids)).find(np.array([*asked, *ids], dtype=np.int64))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in [*asked, *ids]]


@given(ids=st.lists(st.text(max_size=5), unique=True, max_size=20), asked=st.lists(st.text(max_size=2), max_size=9))
def test_texts_are_found_where_they_are(ids: list[str], asked: list[str]) -> None:
    found = text_ids(ids).find(pa.array([*asked, *ids], pa.large_string()))
    assert found.tolist() == [ids.index(one) if one in ids else -1 for one in [*asked, *ids]]


def test_numbers_of_rows_are_used_as_they_are() -> None:
    ids = integer_ids(np.arange(5))
    assert isinstance(ids, RowIds)
    assert ids.find(np.array([0, 4, 5, -1])).tolist() == [0, 4, -1, -1]
    assert "there are 5 nodes, from 0" in ids.describe()
    assert isinstance(integer_ids(np.array([1, 0])), IntegerIds)


@pytest.mark.parametrize(
    "ids",
    [
        RowIds(3),
        IntegerIds(np.array([5, 3, 1 << 60])),
        text_ids(["b", "", "ä"]),
        TextIds(*text_buffers(pa.array(["x", "b", "", "ä", "y"], pa.large_string())[1:4])),
    ],
)
def test_ids_are_the_same_after_writing(ids: RowIds, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(StoredIds(tmp_path, ids.write(tmp_path, "ids"), len(ids)))).ids
    assert len(again) == 3
    asked = pa.array(["ä", "b", "c"], pa.large_string()) if ids.texts else np.array([5, 2, 1 << 60])
    assert again.find(asked).tolist() == ids.find(asked).tolist()


def test_a_worker_reads_ids_once_for_all_tasks_until_they_are_written_anew(tmp_path: Path) -> None:
    ids = IntegerIds(np.array([5, 3, 1 << 60]))
    task = pickle.dumps(StoredIds(tmp_path, ids.write(tmp_path, "ids"), 3))
    first = pickle.loads(task).ids
    assert pickle.loads(task).ids is first
    files = IntegerIds(np.array([3, 5, 1 << 60])).write(tmp_path, "ids")
    os.utime(tmp_path / files["values"], ns=(0, 0))
    assert pickle.loads(pickle.dumps(StoredIds(tmp_path, files, 3))).ids.find(np.array([3])).tolist() == [0]


@given(ids=st.lists(st.integers(0, 5), max_size=20))
def test_the_first_of_each_kind(ids: list[int]) -> None:
    expected = [one not in ids[:place] for place, one in enumerate(ids)]
    assert first_of_each(np.array(ids, dtype=np.int64)).tolist() == expected
    assert first_of_each(pa.array(list(map(str, ids)), pa.large_string())).tolist() == expected


def test_ids_are_collected_in_ascending_order() -> None:
    for ids, expected in (([3, 9, 3, 1], [1, 3, 9]), ([2, 0, 1], [0, 1, 2])):
        collector = IdCollector()
        for one in ids:
            collector.add(np.array([one]))
        found = collector.finish()
        assert found.find(np.array(expected)).tolist() == [0, 1, 2]
        assert isinstance(found, RowIds) == (expected == [0, 1, 2])
    collector = IdCollector()
    collector.add(pa.array(["b", "a"], pa.large_string()))
    collector.add(pa.array(["a", "ä"], pa.large_string()))
    assert collector.finish().find(pa.array(["a", "b", "ä"], pa.large_string())).tolist() == [0, 1, 2]
    assert len(IdCollector().finish()) == 0


def test_collecting_many_ids_merges_them_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_ids, "PENDING", 300)
    collector = IdCollector()
    for start in range(0, 1000, 100):
        collector.add(np.arange(start, start + 100))
    assert len(collector.parts) < 10
    assert len(collector.finish()) == 1000
