"""Delete rows of a tensor by index."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_tensors, check_vector, noted
from graphfeed.ops.backend import kernels, on_gpu, package_for
from graphfeed.ops.memory import buffers


def check_row_places(places: torch.Tensor, bound: int) -> None:
    """Raise unless places are int64, strictly ascending, and in `0 .. bound - 1`."""
    check_vector("places", places, (torch.int64,))
    if places.numel() == 0:
        return
    if places.is_cpu:
        array = places.numpy()
        first, last, ascends = int(array[0]), int(array[-1]), bool((array[1:] > array[:-1]).all())
    elif noted("ascend below", places) == bound:
        return
    else:
        # One transfer for all numbers, because each transfer synchronizes.
        rises = (places[1:] > places[:-1]).all().to(torch.int64)
        first, last, ascends = torch.stack([places[0], places[-1], rises]).tolist()
    if first < 0 or last >= bound:
        raise IndexError(f"places must be in 0 .. {bound - 1}, but hold {first if first < 0 else last}")
    if not ascends:
        raise ValueError("places must ascend, without duplicates; sort them")


def delete_rows(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the rows at some positions, or the tensor itself if there are no positions.

    Args:
        values: Any dtype, shape (rows, ...).
        places: int64, ascending, without duplicates.

    Raises:
        IndexError: A place is out of range.
        ValueError: The places don't ascend, or contain duplicates.

    Example:
        >>> delete_rows(torch.tensor([5, 6, 7, 8]), torch.tensor([1, 3])).tolist()
        [5, 7]
    """
    check_vector("places", places, (torch.int64,))
    check_tensors(values=values)
    if places.numel() == 0:
        return values
    if values.dim() == 0:
        raise ValueError("values must have 1 dimension or more, but is a scalar; there are no rows")
    count = values.shape[0] - places.numel()
    if count <= 0 or values.numel() == 0 or on_gpu(values):
        check_row_places(places, values.shape[0])
    if on_gpu(values):
        package_for("rows.delete_rows", values, places=places)
        rows = torch.arange(count, device=values.device)
        # Count the rows that are kept before each place; a search for a result row finds the places before it.
        before = places - torch.arange(places.numel(), device=values.device)
        return values[rows + torch.searchsorted(before, rows, right=True)]
    out = buffers.empty((count, *values.shape[1:]), values.dtype)
    if out.numel():
        given = buffers.flat_bytes(values)
        row_bytes = given.numel() // values.shape[0]
        module = kernels("rows.delete_rows", values, places=places)
        if not module.delete_rows(given, places.contiguous(), row_bytes, buffers.flat_bytes(out)):
            check_row_places(places, values.shape[0])  # raises the error
    return out


def delete_from_columns(indptr: torch.Tensor, places: torch.Tensor, num_edges: int | None = None) -> torch.Tensor:
    """Return the column starts of a graph without the edges at some places (see `delete_rows`), with the same dtype.

    `num_edges` is the last value of `indptr`. If it is given, this doesn't synchronize with a GPU to read it.

    Raises:
        IndexError: A place is out of range. Other errors are those of `delete_rows`.

    Example:
        >>> delete_from_columns(torch.tensor([0, 2, 2, 4]), torch.tensor([1, 3])).tolist()
        [0, 1, 1, 2]
    """
    check_vector("indptr", indptr)
    if indptr.numel() == 0:
        raise ValueError("indptr must start with 0, but is empty; is it CSC?")
    check_row_places(places, int(indptr[-1]) if num_edges is None else num_edges)
    if places.numel() == 0:
        return indptr
    if package_for("rows.delete_rows", indptr, places=places) == "cuda":
        return indptr - torch.searchsorted(places, indptr.to(torch.int64)).to(indptr.dtype)
    starts = indptr.numpy()
    return torch.from_numpy(starts - np.searchsorted(places.numpy(), starts).astype(starts.dtype))
