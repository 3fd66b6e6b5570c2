"""Copies rows of one tensor to rows of another."""

import torch

from graphfeed.ops.arguments import bounds as bounds_of
from graphfeed.ops.arguments import check_bounds, check_ids, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory.buffers import flat_bytes


def copy_rows(
    source: torch.Tensor,
    from_rows: torch.Tensor,
    out: torch.Tensor,
    to_rows: torch.Tensor,
    *,
    distinct: bool = False,
) -> None:
    """Copy `out[to_rows[i]] = source[from_rows[i]]` for each `i` in order; of equal targets, the last one wins.

    Takes as long as `gather_rows`. Bytes are copied uninterpreted. Unless the targets are distinct, a GPU needs 8 bytes
    of scratch memory per row of `out`.

    Args:
        source: Shape (rows, ...).
        from_rows: int64, in `0 .. len(source) - 1` unless the row is skipped; a GPU, which would have to be waited for,
            does not check them.
        out: Written; contiguous, with rows of the same number of bytes.
        to_rows: int64, as long as `from_rows`, in `0 .. len(out) - 1`, or -1 to skip a row.
        distinct: Whether the caller knows that no two targets are equal.

    Raises:
        IndexError: A row lies outside of a tensor.
        TypeError: The rows are not int64.
        ValueError: The lengths or the sizes of rows differ, or `out` is not contiguous.

    Example:
        >>> out = torch.zeros(2, 1, dtype=torch.int64)
        >>> copy_rows(torch.tensor([[5], [7]]), torch.tensor([1, 0]), out, torch.tensor([0, -1]))
        >>> out.tolist()
        [[7], [0]]
    """
    check_vector("from_rows", from_rows, (torch.int64,))
    check_vector("to_rows", to_rows, (torch.int64,))
    if from_rows.numel() != to_rows.numel():
        raise ValueError(
            f"from_rows and to_rows must have the same length, but have {from_rows.numel()} and {to_rows.numel()}"
        )
    check_tensors(source=source, out=out)
    if not source.dim() or not out.dim():
        raise ValueError("source and out must have rows, but one is a scalar; give them 1 dimension or more")
    if not out.is_contiguous():
        raise ValueError(f"out must be contiguous, but has strides {out.stride()}; write to a copy")
    row_bytes = out[:1].nbytes
    if source.shape[0] and out.shape[0] and source[:1].nbytes != row_bytes:
        raise ValueError(
            f"rows of source and out must have the same number of bytes, but have {source[:1].nbytes} and {row_bytes}"
        )
    if from_rows.numel() == 0 or row_bytes == 0:
        return
    if out.is_cpu:
        low, high = bounds_of(from_rows)
        if low < 0 or high >= source.shape[0]:
            check_ids("from_rows", from_rows[to_rows >= 0], source.shape[0], IndexError)
        low, high = bounds_of(to_rows)
        check_bounds("to_rows", (max(low, 0) if low >= -1 else low, high), out.shape[0], IndexError)
    module = kernels("rows.copy_rows", out, source=source, from_rows=from_rows, to_rows=to_rows)
    index, targets = from_rows.contiguous(), to_rows.contiguous()
    module.copy_rows(flat_bytes(source), index, row_bytes, flat_bytes(out), targets, distinct)
