"""Files of one JSON object a line, whose keys and types may change anywhere."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphfeed.ingest.tables.arrow_types import arrow, wider_type
from graphfeed.ingest.tables.text_lines import line_blocks


def ndjson_schema(path: Path, block_bytes: int) -> Any:
    """Return the columns that some line has, with the types of all lines; pyarrow would take those of the first."""
    pa = arrow()
    types: dict[str, Any] = {}
    for block in line_blocks(path, block_bytes):
        if not block.isspace():
            for column in block_schema(block):
                wider = wider_type(types.get(column.name, pa.null()), column.type)
                # Without a type, as for numbers and texts, a column may be left out; reading it is an error.
                types[column.name] = pa.string() if wider is None else readable(wider)
    if not types:
        raise ValueError("it has no lines")
    return pa.schema(types.items())


def block_schema(block: bytes) -> Any:
    """Return the columns of some lines."""
    # pyarrow finds no type for a column with values of several kinds, which is one of texts here.
    try:
        return read_block(block).schema
    except arrow().ArrowInvalid:
        try:
            rows = [json.loads(line) for line in block.splitlines() if line.strip()]
            kinds: dict[str, set[str]] = {}
            for row in rows:
                for name, value in row.items():
                    kinds.setdefault(name, set()).update(kinds_of(value))
        except (ValueError, AttributeError):
            rows, kinds = [], {}
        mixed = {name for name, found in kinds.items() if len(found) > 1 or any("object" in kind for kind in found)}
        if not mixed:
            raise
    lines = [json.dumps({name: value for name, value in row.items() if name not in mixed}) for row in rows]
    schema = read_block("\n".join(lines).encode()).schema
    for name in sorted(mixed):
        schema = schema.append(arrow().field(name, arrow().string()))
    return schema


def read_block(block: bytes) -> Any:
    reader = arrow("json")
    return reader.read_json(arrow().BufferReader(block), read_options=reader.ReadOptions(block_size=len(block)))


def kinds_of(value: Any) -> set[str]:
    if isinstance(value, list):
        return {f"list of {kind}" for part in value for kind in kinds_of(part)}
    if value is None:
        return set()
    names = {bool: "boolean", int: "number", float: "number", str: "text", dict: "object"}
    return {names[type(value)]}


def readable(arrow_type: Any) -> Any:
    # pyarrow doesn't read large lists from JSON.
    types = arrow().types
    is_any_list = types.is_list(arrow_type) or types.is_large_list(arrow_type)
    return arrow().list_(readable(arrow_type.value_type)) if is_any_list else arrow_type


def ndjson_batches(path: Path, columns: Sequence[str], schema: Any, block_bytes: int) -> Iterator[Any]:
    """Yield batches of some columns, whose types the schema has; other columns may hold anything."""
    reader = arrow("json")
    parse = reader.ParseOptions(
        explicit_schema=arrow().schema([schema.field(name) for name in columns]), unexpected_field_behavior="ignore"
    )
    stream = arrow().input_stream(str(path), compression="detect")
    for batch in reader.open_json(stream, read_options=reader.ReadOptions(block_size=block_bytes), parse_options=parse):
        yield batch.select(columns)
