"""Gather rows that are stored as codes, and decode them into float32."""

import torch

from graphfeed.ops.arguments import check_ids, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.jit import dtype_name
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows.gather import gather_rows

CODES = {8: "decode_bytes", 4: "decode_nibbles"}
"""Kernel for each size of codes."""
HALVES = (torch.float16, torch.bfloat16)


def decode_rows(
    codes: torch.Tensor, index: torch.Tensor, bits: int, scale: torch.Tensor, offset: torch.Tensor
) -> torch.Tensor:
    """Return `codes[index] * scale + offset`, float32, shape (len(index), columns), in memory from a pool.

    Both operations round to float32. Rows are decoded as they are gathered, and written once. With an index on a GPU,
    codes are gathered as by `gather_rows`, also from pinned memory, and decoded on the GPU.

    Args:
        codes: uint8, shape (rows, bytes): a code per byte, or two codes per byte, the low nibble first.
        index: int32 or int64, 1-D, in `0 .. rows - 1`. Other values raise an IndexError.
        bits: Size of a code: 8 or 4.
        scale: float32, shape (columns,).
        offset: float32, shape (columns,).

    Raises:
        ValueError: The shapes don't fit each other, `bits` is another number, or a tensor is on another device.

    Example:
        >>> codes, scale, offset = torch.tensor([[0, 255], [4, 2]]).byte(), torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> decode_rows(codes, torch.tensor([1, 0]), 8, scale, offset).tolist()
        [[3.0, 5.0], [1.0, 511.0]]
        >>> decode_rows(torch.tensor([[0x21]]).byte(), torch.tensor([0]), 4, scale, offset).tolist()
        [[1.5, 5.0]]
    """
    if bits not in CODES:
        raise ValueError(f"bits must be 8 or 4, but is {bits!r:.40}")
    check_vector("scale", scale, (torch.float32,))
    check_vector("offset", offset, (torch.float32,))
    check_matrix("codes", codes, (torch.uint8,), index)
    columns = scale.numel()
    if offset.numel() != columns:
        raise ValueError(f"scale and offset must have the same length, but have {columns} and {offset.numel()}")
    if codes.shape[1] != (columns * bits + 7) // 8:
        raise ValueError(
            f"codes must have {(columns * bits + 7) // 8} bytes per row for {columns} columns, but has {codes.shape[1]}"
        )
    scale, offset = scale.resolve_neg().contiguous(), offset.resolve_neg().contiguous()
    if not (codes.is_cpu and index.is_cpu):
        # By torch, because kernels that CuPy compiles count the smallest floats as 0.
        return unpacked(gather_rows(codes, index), bits, columns).mul_(scale).add_(offset)
    words = [scale.data_ptr(), columns, offset.data_ptr(), columns]
    return decode(CODES[bits], "codes", codes, index, words, columns)


def decode_own_scales(codes: torch.Tensor, index: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """Return rows of codes with a scale and an offset of each row, like `decode_rows`, in the format of FBGEMM.

    Args:
        codes: uint8, shape (rows, bytes). After its codes, a row has its scale and its offset, little-endian: float32
            for 8 bits, and float16 for 4 bits.
        index: As for `decode_rows`.
        bits: Size of a code: 8 or 4.
        columns: Numbers per row.

    Raises:
        ValueError: The shapes don't fit each other, `bits` is another number, or a tensor is on another device.

    Example:
        >>> scales = torch.tensor([0.5, 1.0]).view(torch.uint8)
        >>> codes = torch.cat([torch.tensor([0, 255]).byte(), scales])[None]
        >>> decode_own_scales(codes, torch.tensor([0]), 8, 2).tolist()
        [[1.0, 128.5]]
    """
    if bits not in CODES:
        raise ValueError(f"bits must be 8 or 4, but is {bits!r:.40}")
    check_matrix("codes", codes, (torch.uint8,), index)
    code_bytes = (columns * bits + 7) // 8
    if codes.shape[1] != code_bytes + bits:
        raise ValueError(
            f"codes must have {code_bytes + bits} bytes per row for {columns} columns with their scale and offset, but "
            f"has {codes.shape[1]}"
        )
    if codes.is_cpu and index.is_cpu:
        return decode("decode_own_scales", "codes", codes, index, [bits, columns], columns)
    taken = gather_rows(codes, index)
    factors = taken.narrow(1, code_bytes, bits).contiguous().view(torch.float32 if bits == 8 else torch.float16).float()
    scale, offset = factors.narrow(1, 0, 1), factors.narrow(1, 1, 1)
    return unpacked(taken.narrow(1, 0, code_bytes), bits, columns).mul_(scale).add_(offset)


def unpacked(codes: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """Return codes as float32, one per column."""
    if bits == 4:
        codes = torch.stack([codes & 15, codes // 16], 2).flatten(1).narrow(1, 0, columns)
    return codes.float()


def decode_halves(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return `values[index].float()`, shape (len(index), columns); on the CPU, in memory from a pool.

    Args:
        values: float16 or bfloat16, shape (rows, columns).
        index: int32 or int64, 1-D, in `0 .. rows - 1`. Other values raise an IndexError.

    Raises:
        ValueError: The tensors are on several devices.

    Example:
        >>> decode_halves(torch.tensor([[0.5], [-2.0]], dtype=torch.float16), torch.tensor([1, 0])).tolist()
        [[-2.0], [0.5]]
    """
    check_matrix("values", values, HALVES, index)
    if not (values.is_cpu and index.is_cpu):
        return gather_rows(values, index).float()
    words = [values.shape[1], values.dtype == torch.bfloat16]
    return decode("decode_halves", "values", values, index, words, values.shape[1])


def check_matrix(name: str, values: torch.Tensor, dtypes: tuple[torch.dtype, ...], index: torch.Tensor) -> None:
    check_tensors(**{name: values})
    check_vector("index", index)
    if values.dim() != 2:
        raise ValueError(f"{name} must have 2 dimensions, but has shape {tuple(values.shape)}")
    check_vector(name, values[:1].flatten(), dtypes)


def decode(
    kernel: str, name: str, values: torch.Tensor, index: torch.Tensor, words: list[int], columns: int
) -> torch.Tensor:
    """Call a kernel with checked tensors and the words of its arguments between the index and the result."""
    module = kernels("rows.decode", index, **{name: values})
    values, index = values.resolve_neg().contiguous(), index.contiguous()
    out = buffers.empty((index.numel(), columns), torch.float32)
    if out.numel() == 0 or getattr(module, kernel).call_words(
        (dtype_name(index.dtype),),
        (values.data_ptr(), values.numel(), index.data_ptr(), index.numel(), *words, out.data_ptr(), out.numel()),
    ):
        check_ids("index", index, values.shape[0], IndexError)
    return out
