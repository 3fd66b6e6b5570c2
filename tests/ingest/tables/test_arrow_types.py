"""Types of columns: what they are read as, and which one holds the values of two."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.ingest.tables.arrow_types import as_plain, plain_type, wider_type

CATEGORIES = {
    "pyarrow": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "polars": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0], pa.uint32()), pa.array(["x", "y"], pa.string_view())
    ),
}


def test_kinds_that_have_no_common_one() -> None:
    assert wider_type(pa.int64(), pa.string()) is None
    assert wider_type(pa.bool_(), pa.int64()) is None
    assert wider_type(pa.string(), pa.large_string()) == pa.large_string()
    assert wider_type(pa.uint64(), pa.int8()) == pa.int64()


@pytest.mark.parametrize("library", CATEGORIES)
def test_categories_are_texts(library: str) -> None:
    assert as_plain(CATEGORIES[library]).to_pylist() == ["x", None, "y", "x"]
    assert as_plain(CATEGORIES[library]).type == plain_type(CATEGORIES[library].type)


@pytest.mark.parametrize(
    ("kind", "values", "plain"),
    [
        (pa.decimal128(10, 0), [Decimal(7), None], pa.int64()),
        (pa.decimal256(10, 2), [Decimal("1.25"), None], pa.float64()),
        (pa.list_(pa.decimal128(5, 1)), [[Decimal("1.5")], None], pa.large_list(pa.float64())),
        (pa.list_(pa.decimal128(5, 1), 1), [[Decimal("1.5")], None], pa.list_(pa.float64(), 1)),
    ],
)
def test_decimals_are_numbers(kind: Any, values: list[Any], plain: Any) -> None:
    found = as_plain(pa.array(values, kind))
    assert found.type == plain
    assert found.to_pylist() == values


@pytest.mark.parametrize("library", CATEGORIES)
def test_categories_are_ids_labels_and_parts_of_a_split(library: str) -> None:
    column = CATEGORIES[library]
    nodes = pa.table({"id": column.take(pa.array([0, 2])) if library == "pyarrow" else column[2:], "y": column[:2]})
    edges = EdgeTable(pa.table({"source": column[2:], "destination": column[2:]}))
    table = NodeTable(nodes, id="id", label="y", split=Split("id", train="x", test="y"))
    dataset = build_dataset(Spec({"n:r:n": edges}, {"n": table}))
    assert sorted(dataset.ids("n")[:]) == ["x", "y"]
    assert dataset.tasks[0].metadata["class_names"] == ["x"]


def test_decimals_are_ids_features_weights_and_times() -> None:
    whole = pa.array([Decimal(5), Decimal(9)], pa.decimal128(20, 0))
    parts = pa.array([Decimal("0.5"), Decimal("1.5")], pa.decimal128(5, 2))
    edges = EdgeTable(pa.table({"source": whole, "destination": whole, "w": parts, "t": whole}), weight="w", time="t")
    dataset = build_dataset(
        Spec({"n:r:n": edges}, {"n": NodeTable(pa.table({"id": whole, "f": parts}), id="id", features={"f": "f"})})
    )
    assert dataset.ids("n")[:] == [5, 9]
    assert np.ravel(dataset.feature.read("node", "n", "f")).tolist() == [0.5, 1.5]
    assert {name: values.tolist() for name, values in dataset.graph.edge_attributes.items()} == {
        "weight": [0.5, 1.5],
        "time": [5, 9],
    }
