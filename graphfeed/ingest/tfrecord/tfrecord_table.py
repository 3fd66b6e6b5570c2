"""TFRecord files as tables: the features of their `tf.train.Example` records are the columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, describe_list, example_features
from graphfeed.ingest.tfrecord.record_stream import RecordStream
from graphfeed.ingest.tfrecord.tfrecord_reader import infer_schema, parse_shard, scan_stream
from graphfeed.ops.arguments import brief

LONG = 100
"""Mean size above which strings are copied one by one. Copying by byte indexes takes 16 bytes per byte."""


def find_columns(path: Path) -> dict[str, tuple[str, int]]:
    """Return the columns of the first record, with their kind ("int64", "float" or "bytes") and number of values."""
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, ExampleSchema([])):
            found = {}
            try:
                for name, kinds, values in example_features(record_at(stream, int(starts[0]), int(sizes[0]))):
                    # A column is a list of numbers, or one string. Other features are left out.
                    if kinds == {"bytes"} and len(values) == 1:
                        found[name] = ("bytes", 1)
                    elif len(kinds) == 1 and kinds != {"bytes"}:
                        kind = kinds.pop()
                        count, _ = describe_list(name, kind, values)
                        found |= {name: (kind, count)} if count else {}
            except ValueError as error:
                raise stream.error(str(error)) from error
            return found
    raise ValueError("it has no records, so its columns are unknown")


def has_records(path: Path) -> bool:
    with RecordStream(path) as stream:
        return stream.fill()


def read_example_columns(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the columns of some thousand records at a time, in their order; the first time, of one record."""
    schema = ExampleSchema(numbers)
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, schema):
            if schema.columns is None:
                infer_schema(schema, stream, int(starts[0]), int(sizes[0]))
                schema.add_texts(texts)
            found: dict[str, Any] = {
                name: values.numpy() for name, values in parse_shard(schema, stream, starts, sizes).items()
            }
            # Numbers are arrays of shape (records,) or (records, values). Strings are offsets, one more than records,
            # and the bytes of all strings.
            yield found | {name: copy_texts(stream, name, found[name]) for name in texts}


def copy_texts(
    stream: RecordStream, name: str, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return strings of the stream's buffer as contiguous bytes: their offsets, and the bytes of all."""
    starts, sizes = places.T
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    if offsets[-1] > LONG * len(starts):
        stops = starts + sizes
        values = np.concatenate([stream.buffer[start:stop] for start, stop in zip(starts, stops, strict=True)])
    else:
        values = stream.buffer[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    if not are_texts(offsets, values):
        refuse_texts(stream, name, places)
    return offsets, values


def are_texts(offsets: NDArray[np.int64], values: NDArray[np.uint8]) -> bool:
    begins = offsets[:-1][np.diff(offsets) > 0]
    # No character may span two strings, which decoding all bytes at once would not detect.
    if (values[begins] & 0xC0 == 0x80).any():
        return False
    try:
        str(values.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def refuse_texts(stream: RecordStream, name: str, places: NDArray[np.int64]) -> None:
    for number, (start, size) in enumerate(places.tolist()):
        value = record_at(stream, start, size)
        try:
            value.decode()
        except UnicodeDecodeError as error:
            stream.record += number
            raise stream.error(
                f"feature {name!r} is not a string in UTF-8: {brief(value)}", stream.offset + start
            ) from error


def record_at(stream: RecordStream, start: int, size: int) -> bytes:
    return stream.buffer[start : start + size].tobytes()
