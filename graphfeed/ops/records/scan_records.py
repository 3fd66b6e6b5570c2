"""Find the records of a TFRecord file in its bytes, and verify their checksums."""

from typing import NamedTuple

import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels

MOST_RECORD_BYTES = (1 << 31) - 1
"""Maximum size of a protobuf message."""
PROBLEMS = (
    "",
    "the length has a wrong checksum",
    f"the length is above the {MOST_RECORD_BYTES} bytes that a message may have",
    "the content has a wrong checksum",
)


class Scanned(NamedTuple):
    """The result of a scan."""

    records: int
    """Number of records found."""
    stop: int
    """Start of the next record, which is incomplete or invalid, or doesn't fit in the results."""
    problem: str
    """The error of the next record; empty if there is none."""


def scan_records(data: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor, begin: int, verify: bool) -> Scanned:
    """Find complete records until the results are full, the data ends, or a record is invalid.

    Args:
        data: uint8, shape (bytes,).
        starts, sizes: Results, int64: the start and size of the content of each record.
        begin: Start of the first record.
        verify: Whether to verify both checksums of each record.

    Raises:
        ValueError: The results differ in length, or `begin` is outside of the data.

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
        raise ValueError(f"begin must be in 0 .. {len(data)}, but is {begin}")
    found = torch.zeros(3, dtype=torch.int64, device="cpu")
    scan = kernels("records.scan_records", data).scan_records
    scan(data.contiguous(), begin, MOST_RECORD_BYTES, bool(verify), starts, sizes, found)
    count, stop, code = found.tolist()
    return Scanned(count, stop, PROBLEMS[code])
