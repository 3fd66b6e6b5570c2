"""The kernel that gathers rows of codes and decodes them; all rows in order if the index is None."""

from math import gcd

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch
from graphfeed.ops.process import current_limits

WORD_BYTES = 4
"""Maximum number of bytes of codes that a thread reads at once."""


def decode_codes(codes, index, bits, scale, offset, out):
    _decode(codes, index, bits, out, scale, offset)


def decode_own_scales(codes, index, bits, size, out):  # noqa: ARG001 - those of the CPU
    _decode(codes, index, bits, out)


def decode_halves(values, index, size, bfloat16, out):  # noqa: ARG001 - those of the CPU
    _decode(values, index, 16, out, bfloat16=bfloat16)


def _decode(codes, index, bits, out, scale=None, offset=None, bfloat16=False):
    to_rows, columns = None, out.shape[1]
    if index is not None and codes.is_cpu and codes.nbytes >= current_limits().sorted_bytes:
        index, to_rows = torch.sort(index)
    row_bytes = codes.nbytes // codes.shape[0]
    lane_bits = (min(columns, WARP_SIZE) - 1).bit_length()
    launch(
        "decode_rows", out.shape[0] << lane_bits,
        codes, row_bytes, columns, bits, bfloat16, scale, offset,
        index, out.shape[0], gcd(WORD_BYTES, row_bytes, codes.data_ptr()), lane_bits, out, to_rows,
    )  # fmt: skip
