"""Figures of records in pages: `python -m docs.builder.figures` fills README, its chart and the pages of `docs/`.

A page names a figure by a link to its record, `[33 ns](measured/peers.json "products*sample, * / graphfeed")`, whose
title has the table, the row and, if it isn't the median, the field: `ratio` or `name`. Table and row are patterns of
`fnmatch`: the table's is found anywhere in its title, and the row's is the whole name of one row, with its unit if two
rows have that name. Words between the brackets are the figure. On the site, the link leads to the table.
"""

import json
import re
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from docs.builder.measured import picture_alone

ROOT = Path(__file__).resolve().parents[2]
FIGURE = re.compile(r'\[([^]]*)\]\(((?:[^)\s"]*/)?measured/(\w+)\.json) "([^"]*)"\)')
LARGER = {"ns": "us", "us": "ms", "ms": "s", "kB": "MB", "MB": "GB"}
"""Units of 1,000."""


class Figure(NamedTuple):
    """A figure as text, and its table as the number in the record."""

    words: str
    table: int


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that may have figures."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def fill(text: str, folder: Path) -> str:
    """Return a page with the figures that the records of a folder have today."""
    return FIGURE.sub(lambda match: f'[{find(folder, match[3], match[4]).words}]({match[2]} "{match[4]}")', text)


def find(folder: Path, record: str, name: str) -> Figure:
    """Return the figure of a record.

    Raises:
        ValueError: The name does not name one row of one table, or names no field.
    """
    table, row, field = [part.strip() for part in [*name.split(" / "), "median"][:3]]
    tables = [
        (title, list(rows)) for title, rows in groupby(rows_of(folder / f"{record}.json"), lambda own: own["table"])
    ]
    found = [
        Figure(words(own, field), place)
        for place, (title, rows) in enumerate(tables)
        for own in rows
        if fnmatchcase(title, f"*{table}*") and any(fnmatchcase(what, row) for what in names(own))
    ]
    if len(found) != 1:
        raise ValueError(f"{name!r} names {len(found)} rows of the record {record}; it has to name one")
    return found[0]


def names(row: dict[str, Any]) -> tuple[str, str]:
    """Return the names of a row: with its unit, it differs from another clock's row."""
    return row["what"], f"{row['what']}, {row['unit']}"


@cache
def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a record."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def words(row: dict[str, Any], field: str) -> str:
    """Return a field of a row with two significant digits, and the unit if it has one."""
    if field == "name":
        return str(row["what"])
    if field not in ("median", "ratio"):
        raise ValueError(f"a figure is the 'median', 'ratio' or 'name' of a row, not its {field!r}")
    value, unit = row[field], row["unit"] if field == "median" else ""
    while value >= 999.5 and unit in LARGER:
        value, unit = value / 1000, LARGER[unit]
    digits = f"{float(f'{value:.2g}'):,.10g}" if value >= 10 else f"{value:.2g}"
    return f"{digits} {unit}".strip()


def chart(root: Path = ROOT) -> str:
    """Return the picture of README, of an epoch with each library."""
    return picture_alone(json.loads((root / "docs" / "measured" / "epoch.json").read_text()), "epoch")


if __name__ == "__main__":
    for page in pages():
        page.write_text(fill(page.read_text(), ROOT / "docs" / "measured"))
    (ROOT / "docs" / "epoch.svg").write_text(chart())
