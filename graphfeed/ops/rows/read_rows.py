"""Read rows of a file by id, without mapping the file."""

import os
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.ops.arguments import LARGEST, bounds, check_count, check_ids, check_tensors, check_vector
from graphfeed.ops.backend import kernels

BLOCK_BYTES = 4096
"""Alignment of reads in the file and in memory, as `os.O_DIRECT` requires."""
SPAN_BYTES = 1 << 20
"""Maximum size of a read, unless a row is longer. Larger reads are no faster, and delay others."""

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


def read_rows(
    descriptor: int, start: int, ids: torch.Tensor, out: torch.Tensor, places: torch.Tensor, gap_bytes: int = 0
) -> None:
    """Read row `ids[i]` of an open file, in which row 0 begins at `start`, into `out[places[i]]`.

    Nearby rows are read by one system call of up to a megabyte, and copied from there. A repeated id is read once.
    Reads are aligned to 4096 bytes, so the file may be opened with `os.O_DIRECT`. They don't use the file's position,
    so threads may share a descriptor.

    Args:
        ids: int64, ascending, 0 or more.
        out: The target, contiguous, shape (rows, ...), with the dtype and shape of the file's rows.
        places: int64, as long as `ids`, in `0 .. len(out) - 1`.
        gap_bytes: Maximum number of bytes between two rows that are read together.

    Raises:
        IndexError: A place is not a row of `out`, or an id is negative or too large.
        ValueError: The lengths differ, or `out` is not contiguous.
        OSError: A read failed. An EOFError if the file ends before the end of a row.

    Example:
        >>> import tempfile
        >>> out = torch.zeros(2, 2, dtype=torch.uint8)
        >>> with tempfile.TemporaryFile(buffering=0) as file:
        ...     _ = file.write(bytes([0, 1, 2, 3, 4, 5]))
        ...     read_rows(file.fileno(), 0, torch.tensor([0, 2]), out, torch.tensor([1, 0]))
        >>> out.tolist()
        [[4, 5], [0, 1]]
    """
    check_count("start", start, 0)
    check_vector("ids", ids, (torch.int64,))
    check_vector("places", places, (torch.int64,))
    if ids.numel() != places.numel():
        raise ValueError(f"ids and places must be equally long, but have {ids.numel()} and {places.numel()} values")
    check_tensors(out=out)
    if not out.is_contiguous():
        raise ValueError(f"out must be contiguous, but has strides {out.stride()}; read into a copy")
    row_bytes = out[:1].nbytes
    if row_bytes == 0 or ids.numel() == 0:
        return
    check_ids("places", places, out.shape[0], IndexError)
    low, high = bounds(ids)
    if low < 0 or start > LARGEST - (high + 1) * row_bytes:
        raise IndexError(f"ids must be 0 or more, and no row may end beyond 2**63, but ids are {low} to {high}")
    check_count("gap_bytes", gap_bytes, 0)
    ids, places, into = ids.contiguous(), places.contiguous(), out.view(-1).view(torch.uint8).numpy()
    module, file = kernels("rows.read_rows", ids), np.array([descriptor, start, row_bytes, gap_bytes, BLOCK_BYTES])
    scratch = np.empty(2, np.int64), whole_blocks(max(SPAN_BYTES, row_bytes + 2 * BLOCK_BYTES))
    done = 0
    while (done := module.read_rows(file, ids, places, done, *scratch, into)) < len(ids):
        # Read a row here if the kernel couldn't read it in one call. This raises errors, which a kernel can't.
        target, first = int(places[done]) * row_bytes, start + int(ids[done]) * row_bytes
        into[target : target + row_bytes] = read_blocks(descriptor, first, row_bytes, scratch[-1])
        done += 1


def whole_blocks(size: int) -> Bytes:
    size = -(-size // BLOCK_BYTES) * BLOCK_BYTES
    memory = np.empty(size + BLOCK_BYTES, np.uint8)
    # Align the memory to blocks, as `os.O_DIRECT` requires.
    skipped = -memory.ctypes.data % BLOCK_BYTES
    return memory[skipped : skipped + size]


def read_blocks(descriptor: int, start: int, size: int, buffer: "Bytes | None" = None) -> Bytes:
    """Return a range of bytes of an open file, read in aligned blocks, into `buffer` if given; see `read_bytes`."""
    check_count("start", start, 0, LARGEST)
    skipped = start % BLOCK_BYTES
    blocks = -(-(skipped + size) // BLOCK_BYTES) * BLOCK_BYTES
    buffer = whole_blocks(blocks) if buffer is None else buffer
    done = 0
    while done < skipped + size:
        # A read may be short. The next one begins at a block again, as `os.O_DIRECT` requires; if it makes no progress,
        # the file ends there.
        begin = done // BLOCK_BYTES * BLOCK_BYTES
        end = begin + os.preadv(descriptor, [buffer[begin:blocks].data], start - skipped + begin)
        if end <= done:
            raise ends_early(start - skipped + done, skipped + size - done)
        done = end
    return buffer[skipped : skipped + size]


def read_bytes(descriptor: int, start: int, into: memoryview) -> None:
    """Fill a buffer from an offset in an open file, with as many reads as needed; an EOFError if the file ends."""
    check_count("start", start, 0, LARGEST)
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], start + done)
        if count == 0:
            raise ends_early(start + done, len(into) - done)
        done += count


def ends_early(end: int, missing: int) -> EOFError:
    return EOFError(f"the file ends at {end}, but {missing} bytes more are needed from there")
