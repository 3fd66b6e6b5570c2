"""Gather rows that are stored as codes, and decode them into float32 or bfloat16."""

from typing import Any

import torch

from graphfeed.ops.arguments import brief, check_count, check_ids, check_length, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.jit import Kernel, dtype_name
from graphfeed.ops.memory import buffers

HALVES = (torch.float16, torch.bfloat16)
DECODED = (torch.float32, torch.bfloat16)


def decode_rows(
    codes: torch.Tensor,
    index: torch.Tensor | None,
    bits: int,
    columns: int,
    scale: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return `codes[index] * scale + offset`, shape (len(index), columns), on the device of the index.

    Both operations round to float32, and the sum is rounded to `dtype`. Rows are decoded as they are gathered. A GPU
    reads codes in its own memory, or pinned ones over the bus, as in `gather_rows`. The memory comes from a pool.

    Args:
        codes: Shape (rows, any). For 8 bits, uint8; for 4 bits, uint8 with two codes per byte, the low nibble first;
            for 16 bits, float16 or bfloat16, which are numbers already. Without `scale` and `offset`, each row of uint8
            ends with its own, little-endian, in FBGEMM's format: float32 for 8 bits, and float16 for 4 bits.
        index: int32 or int64, 1-D, in `0 .. rows - 1`; None for all rows. Other values raise an IndexError.
        bits: Size of a code: 4, 8 or 16.
        columns: Numbers per row.
        scale: float32, shape (columns,).
        offset: Like `scale`.
        dtype: torch.float32 or torch.bfloat16.

    Raises:
        ValueError: The shapes don't fit each other, `bits` or `dtype` is another one, or a tensor is on another device.

    Example:
        >>> codes, scale, offset = torch.tensor([[0, 255], [4, 2]]).byte(), torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> decode_rows(codes, torch.tensor([1, 0]), 8, 2, scale, offset).tolist()
        [[3.0, 5.0], [1.0, 511.0]]
        >>> decode_rows(torch.tensor([[0x21]]).byte(), torch.tensor([0]), 4, 2, scale, offset).tolist()
        [[1.5, 5.0]]
        >>> own_scales = torch.cat([codes[:1], torch.tensor([0.5, 1.0]).view(torch.uint8)[None]], 1)
        >>> decode_rows(own_scales, None, 8, 2).tolist()
        [[1.0, 128.5]]
    """
    check_tensors(codes=codes)
    check_count("bits", bits, 4, 16)
    check_count("columns", columns, 0)
    bits, columns = int(bits), int(columns)  # integers of NumPy and torch, too
    if bits not in (4, 8, 16):
        raise ValueError(f"bits must be 4, 8 or 16, but is {brief(bits)}")
    if codes.dim() != 2:
        raise ValueError(f"codes must have 2 dimensions, but has shape {tuple(codes.shape)}")
    check_vector("codes", codes[:1].flatten(), HALVES if bits == 16 else (torch.uint8,))
    if index is not None:
        check_vector("index", index)
    if not any(dtype is own for own in DECODED):
        raise ValueError(f"dtype must be torch.float32 or torch.bfloat16, but is {brief(dtype)}")
    factors = {name: own for name, own in (("scale", scale), ("offset", offset)) if own is not None}
    if factors and (bits == 16 or len(factors) == 1):
        raise ValueError("scale and offset are for codes of 4 or 8 bits; give both of them or neither")
    for factor, own in factors.items():
        check_vector(factor, own, (torch.float32,))
        check_length(factor, own, columns, "column")
    has_own = bits < 16 and not factors
    row_bytes, found = (columns * bits + 7) // 8 + bits * has_own, codes.shape[1] * codes.itemsize
    if found != row_bytes:
        what = f"{columns} columns{' with their scale and offset' if has_own else ''}"
        raise ValueError(f"codes must have {row_bytes} bytes per row for {what}, but has {found}")
    place = codes if index is None else index
    module = kernels("rows.decode", place, codes=codes, **factors)
    codes, index = codes.resolve_neg().contiguous(), None if index is None else index.contiguous()
    given: list[Any]
    if bits == 16:
        kernel, given = module.decode_halves, [columns, codes.dtype == torch.bfloat16]
    elif has_own:
        kernel, given = module.decode_own_scales, [bits, columns]
    else:
        kernel, given = module.decode_codes, [bits, *(own.resolve_neg().contiguous() for own in factors.values())]
    out = buffers.empty((place.shape[0], columns), torch.float32 if place.is_cpu else dtype, place.device)
    if place.is_cpu:
        decode_on_cpu(kernel, codes, torch.arange(len(codes), device="cpu") if index is None else index, given, out)
        return out.to(dtype)
    if index is not None:
        check_ids("index", index, codes.shape[0], IndexError)
    if out.numel():
        kernel(codes, index, *given, out)
    return out


def decode_on_cpu(
    kernel: Kernel, codes: torch.Tensor, index: torch.Tensor, given: list[Any], out: torch.Tensor
) -> None:
    """Call a kernel by addresses, which is faster; raise an IndexError if a row is out of range."""
    words = list[int]()
    for own in (codes, index, *given, out):
        words += (own.data_ptr(), own.numel()) if isinstance(own, torch.Tensor) else (own,)
    if out.numel() == 0 or kernel.call_words((dtype_name(index.dtype),), words):
        check_ids("index", index, codes.shape[0], IndexError)
