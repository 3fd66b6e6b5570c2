"""Lines of JSON whose keys and types change late."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from graphfeed.ingest.tables.ndjson import ndjson_batches, ndjson_schema

BLOCK = 256
EARLY: list[dict[str, Any]] = [{"id": number, "f": None} for number in range(50)]


def write(folder: Path, *late: Any) -> Path:
    path = folder / "t.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*EARLY, *late]))
    return path


def read(path: Path, *columns: str) -> list[dict[str, Any]]:
    schema = ndjson_schema(path, BLOCK)
    return [row for batch in ndjson_batches(path, columns, schema, BLOCK) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("late", "kind"), [(3, pa.int64()), (1.5, pa.float64()), ("a", pa.string()), ([1], pa.list_(pa.int64()))]
)
def test_a_value_may_come_late(tmp_path: Path, late: Any, kind: Any) -> None:
    path = write(tmp_path, {"id": 50, "f": late}, {"id": 51, "late": late})
    assert ndjson_schema(path, BLOCK) == pa.schema({"id": pa.int64(), "f": kind, "late": kind})
    rows = read(path, "late", "f")
    assert rows[-2:] == [{"late": None, "f": late}, {"late": late, "f": None}]
    assert len(rows) == 52


def test_integers_and_floats_have_a_common_type_also_in_lists(tmp_path: Path) -> None:
    blocks = [{"a": 1, "b": [1]}] * 50 + [{"a": 1.5, "b": [1.5]}]
    rows = read(write(tmp_path, *blocks), "a", "b")
    assert rows[-2:] == [{"a": 1.0, "b": [1.0]}, {"a": 1.5, "b": [1.5]}]


@pytest.mark.parametrize("between", [0, 50])
@pytest.mark.parametrize(("one", "other"), [(1, "a"), ([1], 1), ({"x": 1}, {"x": "a"}), (True, 1), ([1], ["a"])])
def test_a_column_that_nothing_reads_may_hold_anything(tmp_path: Path, between: int, one: Any, other: Any) -> None:
    late = [{"id": 50, "z": one}, *[{"id": 51}] * between, {"id": 52, "z": other}]
    path = write(tmp_path, *late)
    assert [row["id"] for row in read(path, "id")] == [*range(50), 50, *[51] * between, 52]
    with pytest.raises(pa.ArrowInvalid, match=r"Column\(/z.*\) changed from"):
        read(path, "z")


def test_what_is_no_json_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text() + '{"id": \n')
    with pytest.raises(pa.ArrowInvalid, match="JSON parse error"):
        ndjson_schema(path, BLOCK)
    path.write_text(" \n")
    with pytest.raises(ValueError, match="it has no lines"):
        ndjson_schema(path, BLOCK)
