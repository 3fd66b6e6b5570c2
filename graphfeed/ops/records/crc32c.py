"""CRC32C, the checksum of TFRecords."""

import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels


def crc32c(data: torch.Tensor) -> int:
    """Return the CRC32C of a 1-D uint8 tensor.

    Example:
        >>> hex(crc32c(torch.tensor(list(b"123456789"), dtype=torch.uint8)))
        '0xe3069283'
    """
    check_vector("data", data, (torch.uint8,))
    return int(kernels("records.crc32c", data).crc32c(data.contiguous()))
