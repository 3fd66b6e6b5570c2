"""Finds the records of a TFRecord file in its bytes, and holds their checksums against them."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels

MOST_RECORD_BYTES = (1 << 31) - 1
"""The largest message that protobuf knows."""
PROBLEMS = (
    "",
    "the length has a wrong checksum",
    f"the length is above the {MOST_RECORD_BYTES} bytes that a message may have",
    "the content has a wrong checksum",
)


class Scanned(NamedTuple):
    """What a scan found."""

    records: int
    """Records written."""
    stop: int
    """Where the next record begins, which is not whole, is wrong, or has no room in the results."""
    problem: str
    """What is wrong with the next record; empty if nothing is."""


def scan_records(data: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor, begin: int, verify: bool) -> Scanned:
    """Find whole records until the results are full, the bytes end, or a record is wrong.

    Args:
        data: uint8, shape (bytes,).
        starts, sizes: int64; written: where the content of each record begins, and how long it is.
        begin: Where the first record begins.
        verify: Whether to hold both checksums of each record against its bytes.

    Raises:
        ValueError: The results differ in length, or the first record begins outside of the bytes.

    Example:
        >>> data = torch.tensor(list((3).to_bytes(8, "little")) + [0] * 4 + list(b"abc") + [0] * 4).byte()
        >>> starts, sizes = torch.zeros(2, 4, dtype=torch.int64)
        >>> scan_records(data, starts, sizes, 0, verify=False)
        Scanned(records=1, stop=19, problem='')
        >>> scan_records(data, starts, sizes, 0, verify=True).problem
        'the length has a wrong checksum'
    """
    check_vector("data", data, (torch.uint8,))
    check_vector("starts", starts, (torch.int64,))
    check_vector("sizes", sizes, (torch.int64,))
    if len(starts) != len(sizes):
        raise ValueError(f"starts and sizes must be equally long, but have {len(starts)} and {len(sizes)} values")
    if not 0 <= begin <= len(data):
        raise ValueError(f"begin must lie in 0 .. {len(data)}, but is {begin}")
    found = torch.zeros(3, dtype=torch.int64, device="cpu")
    scan = kernels("records.scan_records", data).scan_records
    scan(data.contiguous(), begin, MOST_RECORD_BYTES, bool(verify), starts, sizes, found)
    count, stop, code = found.tolist()
    return Scanned(count, stop, PROBLEMS[code])
