"""TFRecord files as tables: the features of their `tf.train.Example` records are the columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, describe_list, features_of
from graphfeed.ingest.tfrecord.record_stream import RecordStream
from graphfeed.ingest.tfrecord.tfrecord_reader import parse, scan_stream, settle
from graphfeed.ops.arguments import brief

LONG = 100
"""The mean size from which texts are copied one by one. Copying by the place of each byte takes 16 bytes per byte."""


def find_columns(path: Path) -> dict[str, tuple[str, int]]:
    """Return the columns of the first record: the kind of each, "int64", "float" or "bytes", and how many values."""
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, ExampleSchema([])):
            found = {}
            try:
                for name, kinds, values in features_of(record_at(stream, int(starts[0]), int(sizes[0]))):
                    # A column is a list of numbers, or one text. Other features are left out.
                    if kinds == {"bytes"} and len(values) == 1:
                        found[name] = ("bytes", 1)
                    elif len(kinds) == 1 and kinds != {"bytes"}:
                        kind = kinds.pop()
                        count, _ = describe_list(name, kind, values)
                        found |= {name: (kind, count)} if count else {}
            except ValueError as error:
                raise stream.error(str(error)) from error
            return found
    raise ValueError("it has no records, so nothing says which columns it has")


def has_records(path: Path) -> bool:
    with RecordStream(path) as stream:
        return stream.fill()


def read_columns(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the columns of some thousand records at a time, in their order; the first time those of one record."""
    schema = ExampleSchema(numbers)
    with RecordStream(path) as stream:
        for starts, sizes in scan_stream(stream, schema):
            if schema.columns is None:
                settle(schema, stream, int(starts[0]), int(sizes[0]))
                schema.add_texts(texts)
            found: dict[str, Any] = {
                name: values.numpy() for name, values in parse(schema, stream, starts, sizes).items()
            }
            # Numbers are arrays of shape (records,) or (records, values). Of texts, it is where each begins, with the
            # end of the last one, and the bytes of all.
            yield found | {name: copy_texts(stream, name, found[name]) for name in texts}


def copy_texts(
    stream: RecordStream, name: str, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return texts of the stream's buffer one behind the other: where each begins and ends, and the bytes of all."""
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
    # A character may not go over from one text to the next, which the bytes of all don't show.
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
                f"feature {name!r} is no text in UTF-8: {brief(value)}", stream.offset + start
            ) from error


def record_at(stream: RecordStream, start: int, size: int) -> bytes:
    return stream.buffer[start : start + size].tobytes()
