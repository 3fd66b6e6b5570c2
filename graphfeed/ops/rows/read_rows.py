"""Reads rows of a file by id, without mapping the file."""

import os

import numpy as np
import torch

from graphfeed.ops.arguments import bounds, check_count, check_ids, check_vector
from graphfeed.ops.backend import kernels

LAST_BYTE = (1 << 63) - 1


def read_rows(descriptor: int, start: int, ids: torch.Tensor, out: torch.Tensor, places: torch.Tensor) -> None:
    """Read row `ids[i]` of an open file into `out[places[i]]`.

    Each run of neighbouring rows takes one system call, which reads straight into the output, and a repeated id is
    read once. Reads are positional and don't use the file's own position, so threads may share a descriptor.

    Args:
        descriptor: The descriptor of a file that is open for reading.
        start: The offset of row 0 in the file.
        ids: int64, ascending, 0 or more.
        out: Written; contiguous, shape (rows, ...), with the dtype and shape of the file's rows.
        places: int64, as long as `ids`, in `0 .. len(out) - 1`.

    Raises:
        IndexError: A place lies outside of `out`, or an id outside of any file.
        ValueError: The lengths differ, or `out` is not contiguous.
        OSError: A read failed.
        EOFError: The file ends inside or before a row.

    Example:
        >>> import tempfile
        >>> out = torch.zeros(2, 2, dtype=torch.uint8)
        >>> with tempfile.TemporaryFile() as file:
        ...     _ = file.write(bytes([0, 1, 2, 3, 4, 5]))
        ...     file.flush()
        ...     read_rows(file.fileno(), 0, torch.tensor([0, 2]), out, torch.tensor([1, 0]))
        >>> out.tolist()
        [[4, 5], [0, 1]]
    """
    check_count("start", start, 0)
    check_vector("ids", ids, (torch.int64,))
    check_vector("places", places, (torch.int64,))
    if ids.numel() != places.numel():
        raise ValueError(f"ids and places must be equally long, but have {ids.numel()} and {places.numel()} values")
    if not out.is_contiguous():
        raise ValueError(f"out must be contiguous, but has strides {out.stride()}; read into a copy")
    row_bytes = out[:1].nbytes
    if row_bytes == 0 or ids.numel() == 0:
        return
    check_ids("places", places, out.shape[0], IndexError)
    low, high = bounds(ids)
    if low < 0 or start > LAST_BYTE - (high + 1) * row_bytes:
        raise IndexError(f"ids must be 0 or more, and no row may end beyond 2**63, but they are {low} to {high}")
    into = out.view(-1).view(torch.uint8).numpy()
    rows, targets = ids.contiguous(), places.contiguous()
    module = kernels("rows.read_rows", out)
    file, segments = np.array([descriptor, start, row_bytes]), np.empty(2 * module.SEGMENTS, np.int64)
    done = 0
    while (done := module.read_rows(file, rows, targets, done, segments, into)) < len(rows):
        # The kernel reports no errors. What it could not read in one call is read here, or raises the error here.
        target = int(targets[done]) * row_bytes
        read_bytes(descriptor, start + int(rows[done]) * row_bytes, into[target : target + row_bytes].data)
        done += 1


def read_bytes(descriptor: int, start: int, into: memoryview) -> None:
    """Fill a buffer from an offset in an open file, by as many reads as it takes.

    Raises:
        OSError: A read failed.
        EOFError: The file ends before the buffer is full.
    """
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], start + done)
        if count == 0:
            raise EOFError(f"the file ends at {start + done}, but {len(into) - done} bytes more are needed from there")
        done += count
