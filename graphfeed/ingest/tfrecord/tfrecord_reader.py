"""Reading of TFRecord files into tensors, without TensorFlow."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ingest.tfrecord.example_schema import ExampleSchema, count_features, example_features
from graphfeed.ingest.tfrecord.growing_rows import GrowingRows
from graphfeed.ingest.tfrecord.record_stream import RecordStream
from graphfeed.ops.arguments import brief, checked
from graphfeed.ops.process import local_path
from graphfeed.ops.records import parse_examples, scan_records

BATCH_ROWS = 1 << 14
"""Maximum number of records that one call of the kernel parses."""
BATCH_BYTES = 1 << 20
"""Maximum size of their rows, except for a single larger row, so that they are in the cache when they are copied."""

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Batch = dict[str, torch.Tensor]


@checked
def read_tfrecords(
    files: Files, features: Iterable[str] | Mapping[str, Any] | None = None, verify: bool = True
) -> dict[str, torch.Tensor]:
    """Read `tf.train.Example` records into one tensor per feature, in the order of the files and their records.

    Every record must have the features, with the number of values and the dtype of the first record. Files that are
    compressed by gzip are recognized one by one, and may be mixed with others. This takes the memory of the result and
    some megabytes.

    Args:
        files: A path, or several.
        features: Names of the features to read, or a dict from name to `FixedLenFeature` (or TensorFlow's). By default,
            all features of the first record are read, and other records must not have more. A spec gives the shape and
            the dtype instead of the first record; it may have a value for records without the feature.
        verify: Whether to verify the checksums of each record. This takes a tenth of the time.

    Returns:
        One tensor per feature: int64 for lists of integers, float32 for floats, uint8 for bytes. A feature with one
        value per record has shape (records,), one with k values (records, k); bytes have their length as the last
        dimension. With a `FixedLenFeature`, the shape is `(records, *shape)`.

    Raises:
        ValueError: A checksum is wrong, a file is truncated, a record is not an Example, or a feature is missing or has
            another dtype or number of values. The message names the file, the record, the byte, and the feature.

    Example:
        >>> import tempfile
        >>> from graphfeed.ingest import write_tfrecords
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/edges.tfrecord.gz"
        ...     write_tfrecords(path, {"src": torch.arange(3), "weight": torch.rand(3, 2)}, compression="gzip")
        ...     read_tfrecords(path, ["src"])
        {'src': tensor([0, 1, 2])}
    """
    schema = ExampleSchema(features)
    rows: dict[str, GrowingRows] = {}

    def keep(batch: Batch) -> None:
        for name, values in batch.items():
            if name not in rows:
                rows[name] = GrowingRows(values.shape[1:], values.dtype)
            rows[name].append([values])

    read_batches(files, schema, keep, verify)
    return {name: rows[name].finish() for name in schema.columns or {}}


def shard_files(files: Files) -> list[str]:
    if isinstance(files, (str, os.PathLike)):
        return [local_path("files", files)]
    try:
        return [local_path("files", path) for path in files]
    except TypeError as error:
        raise TypeError(f"files must be a path or a list of paths, but is {brief(files)}") from error


def read_batches(files: Files, schema: ExampleSchema, keep: Callable[[Batch], None], verify: bool = True) -> None:
    """Read files in order, and call `keep` with the rows of some thousand records at a time; the last may be empty."""
    # Reading the next files in other threads did not pay off, because their rows then go to fresh memory before they
    # are copied. 48 files of 20,000 records each took 1.25 times as long with two threads on two busy cores, and the
    # same time if they were compressed.
    for path in shard_files(files):
        with RecordStream(path) as stream:
            for starts, sizes in scan_stream(stream, schema, verify):
                if schema.columns is None:
                    infer_schema(schema, stream, int(starts[0]), int(sizes[0]))
                if schema.names is None:
                    refuse_others(schema, stream, starts.numpy(), sizes.numpy())
                keep(parse_shard(schema, stream, starts, sizes))  # the batch is valid until this returns
    if schema.columns is None:
        schema.infer_without_records()
    # Without records, the tensors have no rows.
    empty = torch.empty(schema.layout.buffer_bytes(0), dtype=torch.uint8, device="cpu")
    keep(shaped(empty, 0, schema))


def scan_stream(
    stream: RecordStream, schema: ExampleSchema, verify: bool = True
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield offsets and sizes of records in the stream's buffer: first of one record, then of some thousand each."""
    starts, sizes = torch.empty(2, 1, dtype=torch.int64, device="cpu")
    while True:
        scanned = scan_records(stream.data, starts, sizes, stream.begin, verify)
        if scanned.records:
            yield starts[: scanned.records], sizes[: scanned.records]
        stream.begin = scanned.stop
        stream.record += scanned.records
        if scanned.problem:
            raise stream.error(scanned.problem)
        if scanned.records == len(starts):
            # The buffer may have more. The first time, one record is requested, from which the schema is inferred.
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(schema.layout.row_bytes, 1)))
            starts, sizes = torch.empty(2, rows, dtype=torch.int64, device="cpu")
        elif not stream.fill():
            break
    if stream.begin != stream.end:
        raise stream.error(f"the file ends within this record, after {stream.end - stream.begin} bytes")


def infer_schema(schema: ExampleSchema, stream: RecordStream, start: int, size: int) -> None:
    try:
        schema.infer_from(stream.buffer[start : start + size].tobytes())
    except ValueError as error:
        raise stream.error(str(error)) from error


def refuse_others(
    schema: ExampleSchema, stream: RecordStream, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Raise a ValueError if a record has a feature that the first one lacks."""
    counts = count_features(stream.buffer, starts, starts + sizes)
    for row in np.flatnonzero(counts != len(schema.columns or {})).tolist():
        start, size = int(starts[row]), int(sizes[row])
        try:
            names = [name for name, *_ in example_features(stream.buffer[start : start + size].tobytes())]
        except ValueError:
            return  # the kernel reports it
        other = next((name for name in names if name not in (schema.columns or {})), None)
        if other is not None:
            stream.record += row
            raise stream.error(
                f"feature {other!r} is not in the first record; give features, with a `default_value` for records "
                "without one",
                stream.offset + start,
            )


def parse_shard(schema: ExampleSchema, stream: RecordStream, starts: torch.Tensor, sizes: torch.Tensor) -> Batch:
    layout = schema.layout
    out = torch.empty(layout.buffer_bytes(len(starts)), dtype=torch.uint8, device="cpu")
    problem = parse_examples(stream.data, starts, sizes, layout, out, schema.defaults)
    if problem is not None:
        stream.record += problem.record
        raise stream.error(problem.text, stream.offset + problem.place)
    return shaped(out, len(starts), schema)


def shaped(out: torch.Tensor, rows: int, schema: ExampleSchema) -> Batch:
    columns = schema.layout.columns(out, rows)
    return {name: columns[name].view(rows, *column.row_shape) for name, column in (schema.columns or {}).items()}
