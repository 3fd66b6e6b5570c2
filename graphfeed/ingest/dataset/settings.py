"""Checks of the settings of tables: which values can be the name of a column, a number or a row."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from graphfeed.ingest.queries.numbers import MOST_FLOAT32
from graphfeed.ops.arguments import brief, nearest
from graphfeed.storage.graph import ends_of


def check_constant(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    if not is_real(value):
        raise TypeError(f"{name} must be the name of a column or a number, but is {brief(value)}")
    if name == "weight" and not (0 <= value <= MOST_FLOAT32 and (value == 0 or np.float32(value) > 0)):
        raise ValueError(f"weight must be a number of 0 or more that float32 can represent, but is {value}")
    if name == "time" and (not -(1 << 63) <= value < 1 << 63 or value % 1):
        raise ValueError(f"time must be an integer that int64 can represent, but is {value}")


def as_flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be true or false, but is {brief(value)}")
    return bool(value)


def is_real(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) or is_whole(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_column(value: Any) -> bool:
    return isinstance(value, str) or is_whole(value)  # numbers are for columns without names


def is_dict_row(value: Any) -> bool:
    # A row is a dict of single values; a dict of columns is a table.
    return isinstance(value, Mapping) and any(
        isinstance(part, str) or not hasattr(part, "__len__") for part in value.values()
    )


def as_columns(name: str, columns: Any) -> tuple[str, ...]:
    given = columns if isinstance(columns, (list, tuple)) else [columns]
    if not (given and all(map(is_column, given))):
        raise TypeError(f"{name} must be a column or a list of columns, but is {brief(columns)}")
    return tuple(map(str, given))


def as_bounds(until: Any) -> dict[str, Any]:
    """Return the latest value by column, with dates as strings."""
    if not isinstance(until, Mapping):
        raise TypeError(f"until must be a mapping of columns to their latest values, but is {brief(until)}")
    for column, bound in until.items():
        if not is_column(column) or not (is_whole(bound) or isinstance(bound, (str, date))):
            raise TypeError(f"until must map columns to integers, dates or times, but has {brief({column: bound})}")
    return {str(column): str(bound) if isinstance(bound, date) else bound for column, bound in until.items()}


def check_reverses(edges: Mapping[str, Any]) -> None:
    """Raise unless each `reverse_of` names edges that have files and lead the other way."""
    for name, table in edges.items():
        if (other := table.reverse_of) is None:
            continue
        with_files = [own for own, given in edges.items() if given.reverse_of is None]
        if other not in with_files:
            raise ValueError(
                f"edges.{name}: reverse_of is {other!r}, but the edge types with files are {with_files}"
                f"{nearest(other, with_files)}"
            )
        ends = tuple(ends_of(other)[::-1])
        if tuple(ends_of(name)) != ends:
            raise ValueError(
                f"edges.{name}: the reverse of {other!r} leads from {ends[0]!r} to {ends[1]!r}; call it "
                f"'{ends[0]}:{name.split(':')[1]}:{ends[1]}'"
            )
