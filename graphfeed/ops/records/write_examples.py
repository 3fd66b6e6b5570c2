"""Writes columns as TFRecords of `tf.train.Example` messages."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.records.example_layout import PLACES, ExampleLayout

FRAME_BYTES = 16
HEAD_BYTES = 11
"""What a field's tag and length take at most."""
VARINT_BYTES = 10
"""What an integer takes at most."""


def most_bytes(layout: ExampleLayout) -> int:
    """Return how many bytes a record takes at most."""
    total = FRAME_BYTES + HEAD_BYTES
    for name, kind, count, width in zip(layout.names, layout.kinds, layout.counts, layout.widths, strict=True):
        value = {"bytes": width + HEAD_BYTES, "float": width, "int64": VARINT_BYTES}[kind]
        total += 5 * HEAD_BYTES + len(name.encode(errors="surrogateescape")) + count * value
    return total


def write_examples(data: torch.Tensor, rows: int, layout: ExampleLayout) -> torch.Tensor:
    """Return each row as a record, with its length and both checksums.

    Args:
        data: uint8, of `layout.buffer_bytes(rows)` bytes: `layout.columns(data, rows)` is what is written.
        rows: How many rows there are.
        layout: The features, which are written in its order.

    Returns:
        uint8, shape (bytes,).

    Raises:
        ValueError: `data` has another size, or the layout has places.

    Example:
        >>> layout = ExampleLayout(["id"], ["int64"], counts=[1], widths=[8])
        >>> write_examples(torch.arange(5, 8).view(torch.uint8), 3, layout).shape
        torch.Size([93])
    """
    check_vector("data", data, (torch.uint8,))
    check_count("rows", rows, 0)
    if PLACES in layout.kinds:
        raise ValueError("layout has places, which are for reading; write bytes")
    data = data.contiguous()
    if len(data) != layout.buffer_bytes(rows) or data.data_ptr() % 8:
        raise ValueError(
            f"data must have {layout.buffer_bytes(rows)} bytes from a multiple of 8 on, but has {len(data)}"
        )
    out = torch.empty(rows * most_bytes(layout), dtype=torch.uint8)
    module = kernels("records.write_examples", data)
    arguments = module.Layout(*layout.kernel_arguments(rows)), torch.empty(len(layout.names), dtype=torch.int64)
    stop = module.write_examples(data, data.numpy().view(np.int64), rows, *arguments, out)
    return out[:stop]
