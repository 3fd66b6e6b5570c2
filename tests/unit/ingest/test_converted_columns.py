"""Columns of CSV that are converted while they are read have the values of those that are kept as strings."""

import random
from pathlib import Path
from typing import Any

import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset

VALUES = {
    "integers": ["0", "7", "-3", "9223372036854775807"],
    "floats": ["0.5", "-1.5", "1e-05", "12.0", "16777217.0", "1e+40"],
    "dates": ["2020-01-31", "1969-12-31"],
    "times": ["2020-01-31 10:11:12", "1969-12-31T23:59:59"],
}
OTHERS = [
    "", "NA", "nan", "NaN", "inf", "x", "007", "+7", " 7", "1e3", "1e400", "1.50", "16777217", "18446744073709551615",
    "true", "2020-02-30", "20200-01-01", "2020-01-31 10:11:12.5", "2020-01-31 10:11:12Z", "2020-01-31 10:11",
    "2020-01-31 (BC)", "infinity",
]  # fmt: skip
COUNT = 1
"""Number of other values to try with each kind."""
ROLES: dict[str, dict[str, Any]] = {
    "time": {"time": "v"},
    "weight": {"weight": "v"},
    "feature": {"features": {"f": "v"}},
    "floats": {"features": {"f": "v"}, "dtype": "float32"},
    "filled": {"features": {"f": ("v", "d")}, "missing": 0},
    "categories": {"encode": "v"},
    "label": {"label": "v"},
    "part": {"split": Split("v", train="7", test="0.5")},
    "parts": {"split": Split(time="v", train_until="2020-01-01", validation_until="2020-02-02")},
    "masks": {"split": Split(train="v")},
}


def outcome(tables: list[str], role: str, folder: Path, on_error: Any) -> Any:
    """Return the checksums and the left-out rows of a data set without the names of files, or the error."""
    ends: dict[str, Any] = {"source": "v", "destination": "d"} if role == "id" else {"source": "s", "destination": "d"}
    spec = Spec({"n:r:m": EdgeTable(tables, **ends, **ROLES.get(role, {}))}, {"m": NodeTable(count=9)}, folder=folder)
    try:
        found = build_dataset(spec, on_error=on_error, progress=False).yaml_data
    except (TypeError, ValueError) as error:
        return type(error), str(error).split(": ", 1)[-1].split(" (")[0].rsplit(" is ", 1)[-1]
    return found["checksums"], [(entry["reason"], entry["rows"]) for entry in found["skipped"]]


@pytest.mark.parametrize("role", ["id", *ROLES])
def test_converted_values_are_those_of_strings(role: str, tmp_path: Path) -> None:
    chance = random.Random(role)
    (tmp_path / "none.tsv").write_text("v\ts\td\n")  # columns of several formats are kept as strings
    for kind, known in VALUES.items():
        for other in [None, *chance.sample(OTHERS, COUNT)]:
            values = [chance.choice(known) for _ in range(150)]
            if other is not None:
                values[chance.choice([50, 149])] = other
            rows = [f"{value},{number},{number % 9}\n" for number, value in enumerate(values)]
            (tmp_path / "all.csv").write_text("v,s,d\n" + "".join(rows))
            on_error = chance.choice(["raise", "skip"])
            found = outcome(["all.csv"], role, tmp_path, on_error)
            assert found == outcome(["all.csv", "none.tsv"], role, tmp_path, on_error), (kind, other, values)
