"""Writes tensors as TFRecord files, without TensorFlow."""

import gzip
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from graphfeed.ops.arguments import as_tensor, brief, checked
from graphfeed.ops.records import FRAME_BYTES, MOST_RECORD_BYTES, ExampleLayout, most_bytes, write_examples
from graphfeed.storage.memory import new_file

BATCH_BYTES = 1 << 22
EXACT_IN_FLOAT = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.bool)


@checked
def write_tfrecords(path: str | os.PathLike[str], columns: Mapping[str, Any], compression: str | None = None) -> None:
    """Write the rows of tensors as `tf.train.Example` records, one record per row.

    The file appears under its name when it is whole. An existing one is replaced.

    Args:
        path: Of the file.
        columns: A tensor or array for each feature, with equally many rows: integers of shape (rows,) or (rows, k),
            floats of the same shapes, or bytes as uint8 of shape (rows, length) or (rows, k, length). Floats are
            written as float32, which is all that the format has.
        compression: "gzip", or None.

    Raises:
        TypeError: `columns` are no dict by name, or values have another dtype. Of float64, digits would be lost:
            convert it with `.float()`.
        ValueError: Columns of different lengths or with other dimensions, a row that is too large for a record, or
            another compression.

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
        raise TypeError(f"columns must have names that are text, but has {brief(list(columns))}")
    tensors = {name: as_column(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have equally many rows, but have {brief(lengths)}")
    rows = next(iter(lengths.values()), 0)
    layout = layout_of(tensors)
    step = max(1, BATCH_BYTES // most_bytes(layout))
    with (
        new_file(Path(path), rows * most_bytes(layout), hidden=True) as raw,
        # The same content makes the same file: without a name and a time.
        nullcontext(raw) if compression is None else gzip.GzipFile("", "wb", 6, raw, mtime=0) as file,
    ):
        for start in range(0, rows, step):
            part = {name: values[start : start + step] for name, values in tensors.items()}
            count = min(step, rows - start)
            buffer = torch.zeros(layout.buffer_bytes(count), dtype=torch.uint8)
            for name, into in layout.columns(buffer, count).items():
                into.copy_(part[name])
            records = write_examples(buffer, count, layout)
            # Several records together are far from the limit.
            if len(records) - FRAME_BYTES > MOST_RECORD_BYTES:
                raise ValueError(
                    f"a record may have {MOST_RECORD_BYTES} bytes, but row {start} takes {len(records) - FRAME_BYTES}; "
                    "write it as several rows"
                )
            file.write(records.numpy().data)


def layout_of(tensors: Mapping[str, torch.Tensor]) -> ExampleLayout:
    kinds = {torch.int64: "int64", torch.float32: "float", torch.uint8: "bytes"}
    return ExampleLayout(
        list(tensors),
        [kinds[values.dtype] for values in tensors.values()],
        [values.shape[1] for values in tensors.values()],
        [values.shape[2] if values.dim() == 3 else values.dtype.itemsize for values in tensors.values()],
    )


def as_column(name: str, values: Any) -> torch.Tensor:
    """Return a column as (rows, k) of int64 or float32, or (rows, k, length) of uint8."""
    tensor = as_tensor(f"columns[{name!r}]", values).detach().cpu()
    is_bytes = tensor.dtype == torch.uint8
    if is_bytes and tensor.dim() in (2, 3):
        return tensor if tensor.dim() == 3 else tensor.unsqueeze(1)
    if is_bytes or tensor.dim() not in (1, 2):
        wanted = "(rows, length) or (rows, k, length)" if is_bytes else "(rows,) or (rows, k)"
        raise ValueError(f"columns[{name!r}] of {tensor.dtype} must have shape {wanted}, but has {tuple(tensor.shape)}")
    if tensor.dtype not in INTEGERS + EXACT_IN_FLOAT:
        raise TypeError(
            f"columns[{name!r}] must be integers, float32 or bytes as uint8, but is {tensor.dtype}; convert it with "
            ".long() or .float()"
        )
    tensor = tensor.to(torch.int64 if tensor.dtype in INTEGERS else torch.float32)
    return tensor if tensor.dim() == 2 else tensor.unsqueeze(1)
