"""Writing of tensors as TFRecord files, without TensorFlow."""

import gzip
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from graphfeed.ops.arguments import as_tensor, brief, checked
from graphfeed.ops.records import MOST_RECORD_BYTES, crc32c
from graphfeed.storage.memory import new_file

BATCH_ROWS = 1 << 12
HEAD_BYTES = 11
"""Maximum size of a field's tag and length."""
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.bool)


@checked
def write_tfrecords(path: str | os.PathLike[str], columns: Mapping[str, Any], compression: str | None = None) -> None:
    """Write the rows of tensors as `tf.train.Example` records, one per row.

    The file appears under its name when it is complete, and replaces an existing one. Some 100,000 records of a few
    numbers are written per second.

    Args:
        columns: A tensor or array for each feature, all with the same number of rows: integers of shape (rows,) or
            (rows, k), floats of the same shapes, or bytes as uint8 of shape (rows, length) or (rows, k, length). Floats
            are written as float32, the only float type of the format.
        compression: "gzip", or None.

    Raises:
        TypeError: Values have another dtype. float64 would lose digits: convert it with `.float()`.
        ValueError: Columns differ in length or have other dimensions, or a row is too large for a record.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_tfrecords(f"{folder}/nodes.tfrecord", {"id": [0, 1], "feat": torch.rand(2, 8)})
        ...     os.listdir(folder)
        ['nodes.tfrecord']
    """
    if compression is not None and str(compression).lower() != "gzip":
        raise ValueError(f"compression must be 'gzip' or None, but is {brief(compression)}")
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns must be a dict from name to values, but is {brief(columns)}")
    if not all(isinstance(name, str) for name in columns):
        raise TypeError(f"columns must have names that are strings, but has {brief(list(columns))}")
    tensors = {name: as_column(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have the same number of rows, but have {brief(lengths)}")
    rows = next(iter(lengths.values()), 0)
    # Maximum size of a row without its values: for the record, for each feature and for each value.
    heads = [5 * HEAD_BYTES + len(name.encode(errors="surrogateescape")) for name in tensors]
    widest = sum(heads) + sum(values.shape[1] * HEAD_BYTES + values[:1].nbytes for values in tensors.values())
    with (
        new_file(Path(path), rows * (widest + 3 * HEAD_BYTES), hidden=True) as raw,
        # Equal contents give equal files, because no name and no time are written.
        nullcontext(raw) if compression is None else gzip.GzipFile("", "wb", 6, raw, mtime=0) as file,
    ):
        for start in range(0, rows, BATCH_ROWS):
            part = {name: values[start : start + BATCH_ROWS] for name, values in tensors.items()}
            for row, message in enumerate(messages(part), start):
                if len(message) > MOST_RECORD_BYTES:
                    raise ValueError(
                        f"a record may have {MOST_RECORD_BYTES} bytes, but row {row} takes {len(message)}; write it as "
                        "several rows"
                    )
                file.write(head(len(message)) + message + masked(message))


def messages(columns: Mapping[str, torch.Tensor]) -> Iterator[bytes]:
    names = [field(1, name.encode(errors="surrogateescape")) for name in columns]
    for row in zip(*map(lists, columns.values()), strict=True):
        features = (field(1, name + field(2, content)) for name, content in zip(names, row, strict=True))
        yield field(1, b"".join(features))


def lists(values: torch.Tensor) -> Iterator[bytes]:
    """Yield the list of each row of a column: bytes, floats or integers. An empty list still has its kind."""
    for row in values.numpy():
        if values.dtype == torch.uint8:
            yield field(1, b"".join(field(1, one.tobytes()) for one in row))
        elif values.dtype == torch.float32:
            yield field(2, field(1, row.astype("<f4").tobytes()) if len(row) else b"")
        else:
            yield field(3, field(1, b"".join(map(varint, row.tolist()))) if len(row) else b"")


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    # Seven bits per byte, lowest first. The eighth is the continuation bit.
    rest, found = value & (1 << 64) - 1, []
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


@lru_cache
def head(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + masked(length)


def masked(content: bytes) -> bytes:
    """Return a checksum in the form of the records: rotated, with a constant added."""
    checksum = crc32c(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def as_column(name: str, values: Any) -> torch.Tensor:
    """Return a column as int64 or float32, shape (rows, k), or as uint8, shape (rows, k, length)."""
    tensor = as_tensor(f"columns[{name!r}]", values).detach().cpu()
    is_bytes = tensor.dtype == torch.uint8
    if is_bytes and tensor.dim() in (2, 3):
        return tensor if tensor.dim() == 3 else tensor.unsqueeze(1)
    if is_bytes or tensor.dim() not in (1, 2):
        wanted = "(rows, length) or (rows, k, length)" if is_bytes else "(rows,) or (rows, k)"
        raise ValueError(f"columns[{name!r}] of {tensor.dtype} must have shape {wanted}, but has {tuple(tensor.shape)}")
    if tensor.dtype not in (*INTEGERS, torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"columns[{name!r}] must be integers, float32 or bytes as uint8, but is {tensor.dtype}; convert it with "
            ".long() or .float()"
        )
    tensor = tensor.to(torch.int64 if tensor.dtype in INTEGERS else torch.float32)
    return tensor if tensor.dim() == 2 else tensor.unsqueeze(1)
