"""Gather rows of a tensor by index, and copy rows between positions."""

from collections.abc import Sequence
from contextlib import suppress
from math import prod

import torch

from graphfeed.ops.arguments import ID_DTYPES, bounds, check_bounds, check_ids, check_tensors, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.cpu.jit import dtype_name
from graphfeed.ops.cpu.rows import gather as on_cpu
from graphfeed.ops.memory import buffers
from graphfeed.ops.memory.buffers import flat_bytes, is_plain_memory

TOGETHER_BYTES = 1 << 18
"""More rows than this get a block for each tensor: a program that keeps one, such as the labels, keeps its block."""
WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def gather_rows(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return `values[index]`, shape (len(index), ...), on the device of the index. The memory comes from a pool.

    Random rows of some hundred bytes take slightly less than twice the time of a memcpy, because the next rows are
    prefetched. Short rows cost one random read each. With an index on a GPU, the GPU reads rows from its own memory, or
    from pinned memory over the bus, using at most as many threads as `set_max_uva_threads` allows.

    Args:
        values: Any dtype, shape (rows, ...).
        index: int32 or int64, 1-D, in `0 .. rows - 1`. Other values, including negative ones, raise an IndexError.

    Raises:
        ValueError: The values are neither on the device of the index nor pinned; or they require gradients, which the
            rows would not have, while gradients are enabled.

    Example:
        >>> gather_rows(torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 1, 0])).tolist()
        [[3, 4], [3, 4], [1, 2]]
    """
    return take_rows_at("values", values, index)


def take_rows_at(name: str, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Like `gather_rows`; errors name the argument `name`."""
    check_rows(name, values, index)
    if not (values.is_cpu and index.is_cpu):
        check_ids("index", index, values.shape[0], IndexError)
    return gather_unchecked(values, index)


def gather_long_lived(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Like `gather_rows`, in memory for long-lived arrays such as those of a graph."""
    check_rows("values", values, index)
    check_ids("index", index, values.shape[0], IndexError)
    out = buffers.empty_long_lived((index.numel(), *values.shape[1:]), values.dtype, index.device)
    return gather_unchecked(values, index, out)


def check_rows(name: str, values: torch.Tensor, index: torch.Tensor) -> None:
    """Check the arguments of a gather, except the values of the index."""
    check_tensors(**{name: values})
    if values.dim() == 0:
        raise ValueError(f"{name} must have 1 dimension or more, but is a scalar; there are no rows")
    if values.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "values requires gradients, and gathered rows have none; give .detach(), or index it: values[index]"
        )
    check_vector("index", index)


def gather_unchecked(values: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gather rows without checking the index on a GPU, into `out` if given, which must be contiguous."""
    if values.is_cpu and index.is_cpu:
        return gather_on_cpu(values, index, out)
    module = kernels("rows.gather", index, values=values)
    if out is None:
        out = buffers.empty((index.numel(), *values.shape[1:]), values.dtype, index.device)
    if out.numel() == 0:
        return out
    # Pinned values may start at any address.
    given = values if is_plain_memory(values) and not values.is_cpu else flat_bytes(values)
    module.gather_rows(given, as_int64(index, index), given.nbytes // values.shape[0], out)
    return out


def gather_each(values: Sequence[torch.Tensor], index: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Call `gather_rows` for several tensors, with one block for few rows; None if they aren't alike and on the CPU.

    Example:
        >>> gather_each([torch.eye(2), torch.ones(2, 1)], [torch.tensor([1]), torch.tensor([0, 1])])
        [tensor([[0., 1.]]), tensor([[1.],
                [1.]])]
    """
    dtype, shapes = values[0].dtype, list[tuple[int, ...]]()
    for own, ids in zip(values, index, strict=True):
        is_plain = own.dtype is dtype and own.is_cpu and own.is_contiguous() and not (own.requires_grad or own.is_neg())
        if not (is_plain and ids.is_cpu and ids.dim() == 1 and ids.dtype in ID_DTYPES and ids.is_contiguous()):
            return None
        shapes.append((ids.numel(), *own.shape[1:]))
    if dtype not in buffers.NUMPY_DTYPES:
        return None
    size = sum(map(prod, shapes))
    if size * dtype.itemsize <= TOGETHER_BYTES:
        rows = buffers.parts_of(buffers.POOL.empty(size, buffers.NUMPY_DTYPES[dtype]), shapes)
    else:
        rows = [buffers.empty(shape, dtype) for shape in shapes]
    for own, ids, out in zip(values, index, rows, strict=True):
        if out.numel() == 0 or copy_into(own, ids, out):
            check_ids("index", ids, own.shape[0], IndexError)
    return rows


def gather_on_cpu(values: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Gather rows, into `out` if given; raise an IndexError if one is out of range."""
    if out is None and is_small(values, index):
        # Three times as fast: calling a kernel costs more than copying a few rows.
        with suppress(IndexError):  # raised below, with a clearer message
            return values.detach().index_select(0, index)
    if out is None:
        out = buffers.empty((index.numel(), *values.shape[1:]), values.dtype)
    plain = values if is_plain_memory(values) else flat_bytes(values)
    ids = index if index.dtype in ID_DTYPES and index.is_contiguous() else as_int64(index, index)
    if out.numel() == 0 or copy_into(plain, ids, out):
        check_ids("index", index, values.shape[0], IndexError)
    return out


def copy_into(values: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> int:
    """Gather rows; return 0, or 1 if an id is out of range, whose row is not written. All tensors are contiguous."""
    count, kind = index.numel(), dtype_name(index.dtype)
    row_bytes = out.nbytes // count
    # By addresses: for few rows, arrays would take as long as the copying.
    if (word := WORDS.get(row_bytes)) is not None:
        words = [values.data_ptr(), values.nbytes // row_bytes, index.data_ptr(), count, out.data_ptr(), count]
        return int(on_cpu.gather_words.call_words((word, kind), words))
    words = [values.data_ptr(), values.nbytes, index.data_ptr(), count, row_bytes, out.data_ptr(), out.nbytes]
    return int(on_cpu.gather_rows.call_words((kind,), words))


def is_small(values: torch.Tensor, index: torch.Tensor) -> bool:
    """Return whether CPU rows are too small for a pooled buffer, and have a dtype that torch can select."""
    on_cpu = values.is_cpu and index.is_cpu and values.dtype in buffers.NUMPY_DTYPES
    return on_cpu and values.nbytes > 0 and values.nbytes * index.numel() < buffers.SMALL_BYTES * values.shape[0]


def take_small(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather numbers without checking the index. Narrow int64 to int32 if all gathered values are in `0 .. 2**31 - 1`.

    Example:
        >>> values = torch.tensor([7, 1 << 40])
        >>> take_small(values, torch.tensor([0])), take_small(values, torch.tensor([0, 1]))
        (tensor([7], dtype=torch.int32), tensor([            7, 1099511627776]))
    """
    taken = gather_unchecked(values, index)
    low, high = bounds(taken) if taken.dtype == torch.int64 and taken.numel() else (0, 0)
    is_small = taken.dtype == torch.int64 and 0 <= low <= high < 1 << 31
    return taken.to(torch.int32) if is_small else taken


def index_select(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the rows of a tensor at the positions in `index`, like `gather_rows`.

    Raises:
        IndexError: A position is out of range.

    Example:
        >>> index_select(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
        tensor([7, 5])
    """
    return take_rows_at("tensor", tensor, index)


def copy_rows(
    source: torch.Tensor,
    from_rows: torch.Tensor,
    out: torch.Tensor,
    to_rows: torch.Tensor,
    *,
    distinct: bool = False,
) -> None:
    """Assign `out[to_rows[i]] = source[from_rows[i]]` for each `i` in order; for duplicate targets, the last one wins.

    This is as fast as `gather_rows`. A GPU needs 8 bytes per row of `out`, unless targets are declared `distinct`.

    Args:
        source: Shape (rows, ...).
        from_rows: int64, in `0 .. len(source) - 1` unless the row is skipped. Not checked on a GPU.
        out: The target, contiguous, with rows of the same number of bytes.
        to_rows: int64, as long as `from_rows`, in `0 .. len(out) - 1`, or -1 to skip a row.

    Raises:
        IndexError: A row is out of range.
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
        low, high = bounds(from_rows)
        if low < 0 or high >= source.shape[0]:
            check_ids("from_rows", from_rows[to_rows >= 0], source.shape[0], IndexError)
        low, high = bounds(to_rows)
        check_bounds("to_rows", (max(low, 0) if low >= -1 else low, high), out.shape[0], IndexError)
    module = kernels("rows.gather", out, source=source, from_rows=from_rows, to_rows=to_rows)
    index, targets = from_rows.contiguous(), to_rows.contiguous()
    module.copy_rows(flat_bytes(source), index, row_bytes, flat_bytes(out), targets, distinct)
