"""Columns that come in several parts, put together."""

from collections.abc import Sequence

import numpy as np
import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import TYPE_DTYPES


def merge_columns(
    places: Sequence[torch.Tensor],
    counts: Sequence[torch.Tensor],
    values: Sequence[Sequence[torch.Tensor]],
    dtypes: Sequence[torch.dtype],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Merge columns of edges, each at its position.

    It reads and writes each value once.

    Args:
        places: For each part, the places of its columns, int64; together these are `0 .. columns - 1`, each once.
        counts: For each part, the number of edges of its columns, int32 or int64.
        values: For each part, arrays of integers with one value per edge, column by column.
        dtypes: The dtypes of the result, for each array; those of the parts may have fewer bits.

    Returns:
        Where each column starts, int64, one longer than there are columns; and the arrays, column by column.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: The arrays don't fit together.

    Example:
        >>> places, counts = [torch.tensor([1]), torch.tensor([0, 2])], [torch.tensor([3]), torch.tensor([1, 0])]
        >>> offsets, [ids] = merge_columns(
        ...     places, counts, [[torch.tensor([5, 6, 7])], [torch.tensor([8])]], [torch.int64]
        ... )
        >>> offsets.tolist(), ids.tolist()
        ([0, 1, 4, 4], [8, 5, 6, 7])
    """
    check_parts(places, counts, values, dtypes)
    offsets = np.zeros(sum(map(len, places)) + 1, dtype=np.int64)
    sizes = [len(arrays[0]) for arrays in values]
    for own, numbers, size in zip(places, counts, sizes, strict=True):
        module = kernels("structure.merge_columns", own, counts=numbers)
        if not module.note_counts(own.contiguous(), as_int64(numbers, own), size, offsets):
            raise ValueError(
                f"counts must be 0 or more and add up to the {size} values of their part, and places must lie in 0 .. "
                f"{len(offsets) - 2}, but a part has others"
            )
    # The sizes of columns become their starts, in place.
    if int(np.cumsum(offsets, out=offsets)[-1]) != sum(sizes):
        raise ValueError("places must be all different, but one occurs twice")
    merged = [buffers.empty(sum(sizes), dtype) for dtype in dtypes]
    for own, arrays in zip(places, values, strict=True):
        for array, out in zip(arrays, merged, strict=True):
            module = kernels("structure.merge_columns", own, values=array)
            given = array.to(out.dtype).contiguous().view(torch.uint8)
            if not module.place_columns(own.contiguous(), offsets, given, out.itemsize, out.view(torch.uint8)):
                raise ValueError("places must be all different, but one occurs twice")
    return torch.from_numpy(offsets), merged


def check_parts(
    places: Sequence[torch.Tensor],
    counts: Sequence[torch.Tensor],
    values: Sequence[Sequence[torch.Tensor]],
    dtypes: Sequence[torch.dtype],
) -> None:
    """Raise unless each part has a count for each place, and arrays of equal length."""
    if not len(places) == len(counts) == len(values):
        raise ValueError(
            f"there must be places, counts and values for each part, but {len(places)}, {len(counts)} and "
            f"{len(values)} are given"
        )
    for own, numbers, arrays in zip(places, counts, values, strict=True):
        check_vector("places", own, (torch.int64,))
        check_vector("counts", numbers)
        if len(own) != len(numbers):
            raise ValueError(f"places and counts of a part must be equally long, but are {len(own)} and {len(numbers)}")
        if not len(arrays) == len(dtypes) > 0:
            raise ValueError(f"a part must have {len(dtypes)} arrays of values, at least one, but has {len(arrays)}")
        for array, dtype in zip(arrays, dtypes, strict=True):
            check_vector("values", array, TYPE_DTYPES)
            if dtype not in TYPE_DTYPES or array.itemsize > dtype.itemsize:
                raise TypeError(f"values of {array.dtype} can't be written as {dtype}")
        if len({len(array) for array in arrays}) > 1:
            raise ValueError(f"values of a part must be equally long, but are {[len(array) for array in arrays]}")
