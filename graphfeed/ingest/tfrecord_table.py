"""TFRecord files as tables: the features of their `tf.train.Example` records are the columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from graphfeed.ingest.example_schema import ExampleSchema, describe_list, features_of, lists_of, values_of
from graphfeed.ingest.record_stream import RecordStream
from graphfeed.ingest.tfrecord_reader import parse, scan_stream, settle
from graphfeed.ops.arguments import brief


def find_columns(path: Path) -> dict[str, tuple[str, int]]:
    """Return the columns of the first record: the kind of each, "int64", "float" or "bytes", and its number of values.

    A column is a list of numbers, or one text. Other features are left out.

    Raises:
        OSError: The file can't be read.
        ValueError: The file is damaged, or has no records.
    """
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, ExampleSchema([])):
            found = {}
            try:
                for name, value in features_of(record_at(stream, int(starts[0]), int(sizes[0]))):
                    kinds, lists = lists_of(value)
                    kind = kinds.pop() if len(kinds) == 1 else None
                    if kind == "bytes":
                        count = len(values_of(lists))
                    else:
                        count = describe_list(name, kind, lists)[0] if kind else 0
                    if kind and (count == 1 or (count and kind != "bytes")):
                        found[name] = (kind, count)
            except ValueError as error:
                raise stream.error(str(error)) from error
            return found
    raise ValueError("it has no records, so nothing says which columns it has")


def has_records(path: Path) -> bool:
    """Tell whether a file holds anything."""
    with RecordStream(path) as stream:
        return stream.fill()


def read_columns(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the columns of some thousand records at a time, in their order; the first time those of one record.

    Args:
        path: The file.
        numbers: Features of integers or floats; come out as arrays of shape (records,) or (records, values).
        texts: Features of one text; come out as lists.

    Raises:
        OSError: The file can't be read.
        ValueError: The file is damaged, or a record has no such feature, or has another number of values than the first
            one. The message names the file, the record and the byte.
    """
    schema = ExampleSchema(numbers)
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, schema):
            if schema.columns is None:
                settle(schema, stream, int(starts[0]), int(sizes[0]))
            found: dict[str, Any] = {}
            if numbers:
                found |= {name: values.numpy() for name, values in parse(schema, stream, starts, sizes).items()}
            if texts:
                found |= read_texts(stream, starts, sizes, texts)
            yield found


def read_texts(
    stream: RecordStream, starts: torch.Tensor, sizes: torch.Tensor, names: Sequence[str]
) -> dict[str, list[str]]:
    """Return the texts of some records by name."""
    columns: dict[str, list[str]] = {name: [] for name in names}
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        try:
            found = texts_of(record_at(stream, start, size), names)
        except ValueError as error:
            stream.record += number
            raise stream.error(str(error), stream.offset + start) from error
        for name, values in columns.items():
            values.append(found[name])
    return columns


def texts_of(record: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of a record by name.

    Raises:
        ValueError: The record is malformed, or lacks a text, or has another value in its place.
    """
    found: dict[str, str] = {}
    for name, value in features_of(record):
        if name not in names:
            continue
        if name in found:
            raise ValueError(f"feature {name!r} is there twice")
        kinds, lists = lists_of(value)
        if kinds != {"bytes"}:
            raise ValueError(f"feature {name!r} has {' and '.join(sorted(kinds)) or 'no values'}, and not bytes")
        values = values_of(lists)
        if len(values) != 1:
            raise ValueError(f"feature {name!r} has {len(values)} values, and not 1")
        try:
            found[name] = values[0].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"feature {name!r} is no text in UTF-8: {brief(values[0])}") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"feature {missing[0]!r} is missing")
    return found


def record_at(stream: RecordStream, start: int, size: int) -> bytes:
    """Return a record that lies in the buffer of a stream."""
    return stream.buffer[start : start + size].tobytes()
