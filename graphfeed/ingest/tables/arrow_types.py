"""Arrow types of columns: conversion to plain types, and the common type of two."""

from typing import Any
from uuid import UUID

from graphfeed.ops.process import import_optional, install_hint


def arrow(module: str = "") -> Any:
    name = f"pyarrow.{module}" if module else "pyarrow"
    return import_optional(name, "reading tables", install_hint("arrow"))


def plain_type(arrow_type: Any) -> Any:
    """Return the type that the values of a column are read as: a string, a number, or a list of these."""
    pa = arrow()
    if pa.types.is_dictionary(arrow_type):  # such as categories
        return plain_type(arrow_type.value_type)
    if pa.types.is_decimal(arrow_type):
        return pa.int64() if arrow_type.scale <= 0 else pa.float64()
    if pa.types.is_string_view(arrow_type):
        return pa.large_string()
    if is_uuid(arrow_type):
        return pa.binary(16)
    if pa.types.is_float16(arrow_type):  # which the engine can't read from frames
        return pa.float32()
    if is_arrow_list(arrow_type):
        inner = plain_type(arrow_type.value_type)
        if inner != arrow_type.value_type:
            fixed = pa.types.is_fixed_size_list(arrow_type)
            return pa.list_(inner, arrow_type.list_size) if fixed else pa.large_list(inner)
    return arrow_type


def as_plain(values: Any) -> Any:
    pa, wanted = arrow(), plain_type(values.type)
    if is_uuid(values.type):
        parts = getattr(values, "storage", values).to_pylist()
        return pa.array([None if part is None else str(UUID(bytes=part)) for part in parts], pa.large_string())
    if pa.types.is_dictionary(values.type):
        # Polars' categories are string views, from which pyarrow can't take values.
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(wanted)).dictionary_decode()
    return values if values.type == wanted else values.cast(wanted)


def as_integers(values: Any) -> Any:
    """Convert dates and times to the integers that represent them in Arrow; other values are returned unchanged."""
    pa = arrow()
    if not pa.types.is_temporal(values.type):
        return values
    # Arrow only casts them to integers of the same width.
    return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def json_type(kind: str) -> Any:
    """Return the type of a column of NDJSON, for which DuckDB has found a type."""
    pa = arrow()
    if kind.endswith("[]"):
        return pa.list_(json_type(kind.removesuffix("[]")))
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return pa.timestamp("s")
    names = {"BOOLEAN": pa.bool_(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "UBIGINT": pa.uint64()}
    names["HUGEINT"] = pa.int64()  # DuckDB's type for numbers that may be negative or large
    names |= dict.fromkeys(("VARCHAR", "TIME", "UUID"), pa.string()) | {'"NULL"': pa.null()}
    # Values of several kinds have the type JSON.
    return names.get(kind, pa.binary())


def wider_type(one: Any, other: Any) -> Any:
    """Return a type for the values of both, or None if there is none. Dates and times need the same unit."""
    pa = arrow()
    if pa.types.is_temporal(one) and pa.types.is_temporal(other):
        return one if unit_of(one) == unit_of(other) else None
    if is_text(one) and is_text(other):
        return one if one == other else pa.string()
    schemas = [pa.schema([("", arrow_type)]) for arrow_type in (one, other)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def unit_of(arrow_type: Any) -> str | None:
    """Return the unit of the integers for dates or times, or None for numbers."""
    types = arrow().types
    if not types.is_temporal(arrow_type):
        return None
    # Times with a zone count from 1970 in UTC, those without one from 1970 in an unknown zone, so the two don't mix.
    if types.is_timestamp(arrow_type):
        return arrow_type.unit if arrow_type.tz is None else f"{arrow_type.unit} in UTC"
    if types.is_date(arrow_type):
        return "day" if types.is_date32(arrow_type) else "ms"
    return f"{arrow_type.unit} of {'a duration' if types.is_duration(arrow_type) else 'a day'}"


def item_type(arrow_type: Any) -> Any:
    """Return the type of the values of lists; other types are returned unchanged."""
    return arrow_type.value_type if is_arrow_list(arrow_type) else arrow_type


def is_uuid(arrow_type: Any) -> bool:
    """Return whether values have 16 bytes. They are read as UUIDs and converted to strings."""
    pa = arrow()
    return bool(arrow_type == pa.binary(16) or getattr(arrow_type, "extension_name", None) == "arrow.uuid")


def is_text(arrow_type: Any) -> bool:
    types = arrow().types
    return is_uuid(arrow_type) or any(
        test(arrow_type) for test in (types.is_string, types.is_large_string, types.is_string_view)
    )


def is_id(arrow_type: Any) -> bool:
    return is_text(arrow_type) or bool(arrow().types.is_integer(arrow_type))


def is_arrow_number(arrow_type: Any) -> bool:
    types = arrow().types
    return any(test(arrow_type) for test in (types.is_integer, types.is_floating, types.is_boolean))


def is_arrow_list(arrow_type: Any) -> bool:
    types = arrow().types
    return any(test(arrow_type) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list))
