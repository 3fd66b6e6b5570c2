"""Gathers rows of a tensor by index."""

from contextlib import suppress

import numpy as np
import torch

from graphfeed.ops.arguments import bounds, check_ids, check_tensors, check_vector
from graphfeed.ops.backend import as_int64, kernels, on_gpu
from graphfeed.ops.memory import buffers

WORDS = {4: np.uint32, 8: np.uint64}


def gather_rows(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return `values[index]` in a reused buffer.

    For random rows of some hundred bytes, it takes a bit less than twice the time of a memcpy, because the next rows
    are prefetched. Short rows cost one random read each. Bytes are copied uninterpreted, so any dtype works. With an
    index on a GPU, the GPU reads rows in its own memory, or in pinned memory over the bus. For the latter it uses no
    more threads than `set_max_uva_threads` allows.

    Args:
        values: Any dtype, shape (rows, ...).
        index: int32 or int64, 1-D, in `0 .. rows - 1`. Negative ids don't count from the end but are errors.

    Returns:
        Shape (len(index), ...), on the device of the index.

    Raises:
        IndexError: An id lies outside of the rows.
        TypeError: The index has another dtype.
        ValueError: The values lie on another device than the index and are not pinned, or require gradients where
            these are enabled: the rows would have none.

    Example:
        >>> gather_rows(torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 1, 0])).tolist()
        [[3, 4], [3, 4], [1, 2]]
    """
    return take_rows_at("values", values, index)


def take_rows_at(name: str, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return what `gather_rows` does of an argument of some name."""
    check_rows(name, values, index)
    if is_small(values, index):
        with suppress(IndexError):  # which is raised in our words below
            return take_rows(values, index)
    check_ids("index", index, values.shape[0], IndexError)
    return take_rows(values, index)


def gather_long_lived(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return what `gather_rows` does, in memory for what lives long, as the arrays of a graph do."""
    check_rows("values", values, index)
    check_ids("index", index, values.shape[0], IndexError)
    out = buffers.empty_long_lived((index.numel(), *values.shape[1:]), values.dtype, index.device)
    return take_rows(values, index, out)


def check_rows(name: str, values: torch.Tensor, index: torch.Tensor) -> None:
    """Raise unless there are rows, and an index, of which each has yet to be looked at."""
    check_tensors(**{name: values})
    if values.dim() == 0:
        raise ValueError(f"{name} must have 1 dimension or more, but is a scalar; there are no rows")
    if values.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "values requires gradients, and gathered rows have none; give .detach(), or index it: values[index]"
        )
    check_vector("index", index)


def take_rows(values: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gather rows without checking the index; contiguous `out` may take them."""
    if out is None and is_small(values, index):
        # In a third of the time, as the call of a kernel costs more than few rows.
        return values.detach().index_select(0, index)
    module = kernels("rows.gather", index, values=values)
    if out is None:
        out = buffers.empty((index.numel(), *values.shape[1:]), values.dtype, index.device)
    if out.numel() == 0:
        return out
    given, taken = buffers.flat_bytes(values), buffers.flat_bytes(out)
    row_bytes = given.numel() // values.shape[0]
    word = None if on_gpu(index) else WORDS.get(row_bytes)
    if word is not None:
        # Views of NumPy arrays, because those may start at any byte.
        module.gather_words(given.numpy().view(word), as_int64(index, index), taken.numpy().view(word))
    else:
        module.gather_rows(given, as_int64(index, index), row_bytes, taken)
    return out


def is_small(values: torch.Tensor, index: torch.Tensor) -> bool:
    """Tell whether rows in CPU memory are too few for a pooled buffer, and of a dtype of which torch selects rows."""
    on_cpu = values.is_cpu and index.is_cpu and values.dtype in buffers.NUMPY_DTYPES
    return on_cpu and values.nbytes * index.numel() < buffers.SMALL_BYTES * values.shape[0]


def take_small(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gather numbers without checking the index: int64 as int32 if all that are gathered are from 0 to 2**31 - 1.

    Example:
        >>> values = torch.tensor([7, 1 << 40])
        >>> take_small(values, torch.tensor([0])), take_small(values, torch.tensor([0, 1]))
        (tensor([7], dtype=torch.int32), tensor([            7, 1099511627776]))
    """
    taken = take_rows(values, index)
    low, high = bounds(taken) if taken.dtype == torch.int64 and taken.numel() else (0, 0)
    is_small = taken.dtype == torch.int64 and 0 <= low <= high < 1 << 31
    return taken.to(torch.int32) if is_small else taken


def index_select(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the rows of a tensor at the positions in `index`; the same as `gather_rows`.

    Raises:
        IndexError: A position lies outside of the rows. Negative positions don't count from the end.
        TypeError: The positions are neither int32 nor int64.

    Example:
        >>> index_select(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
        tensor([7, 5])
    """
    return take_rows_at("tensor", tensor, index)
