"""Joins, merges and shifts compressed sparse columns."""

from collections.abc import Sequence

import numpy as np
import torch

from graphfeed.ops.arguments import check_length, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_columns, check_starts


def join_columns(
    indptrs: Sequence[torch.Tensor],
    indices: Sequence[torch.Tensor],
    ids: Sequence[torch.Tensor],
    marks: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Return row, column and id of each edge of some columns, one behind the other, int64, shape (3, edges).

    It reads and writes each edge once: on a mini-batch of WordNet, which has 38 edge types, each in three hops, it
    takes a third of the time of an operation for each of the three.

    Args:
        indptrs, indices, ids: Column starts of each, and the row and the id of each edge, int32 or int64.
        marks: For each, whether its first edges are kept, bool; all others are.

    Raises:
        ValueError: Columns that do not start at 0, or fall, or do not end at the number of edges; other numbers of
            arrays, or of ids; more marks than edges.

    Example:
        >>> join_columns([torch.tensor([0, 1, 2])], [torch.tensor([5, 6])], [torch.tensor([8, 9])]).tolist()
        [[5, 6], [0, 1], [8, 9]]
    """
    for name, parts in (("indptrs", indptrs), ("indices", indices), ("ids", ids)):
        for part in parts:
            check_vector(name, part)
    counts = [len(part) for part in indices]
    if not len(indptrs) == len(indices) == len(ids) or [len(part) for part in ids] != counts:
        raise ValueError("indptrs, indices and ids must be as many, and each have an id for each of its edges")
    if marks is None:
        marks = [torch.empty(0, dtype=torch.bool)] * len(counts)
    for part in marks:
        check_vector("marks", part, (torch.bool,))
    if len(marks) != len(counts) or any(len(part) > count for part, count in zip(marks, counts, strict=True)):
        raise ValueError(f"marks must be at most {counts}, one for each first edge, but are {list(map(len, marks))}")
    left_out = sum(len(part) - int(part.count_nonzero()) for part in marks if len(part))
    out = buffers.empty((3, sum(counts) - left_out), torch.int64, buffers.CPU)
    place = 0
    for own in zip(indptrs, indices, ids, marks, strict=True):
        module = kernels("structure.columns", own[0], indices=own[1], ids=own[2], marks=own[3])
        arrays = as_int64(own[0], out), own[1].contiguous(), as_int64(own[2], out)
        found = module.join_columns(*arrays, own[3].contiguous().view(torch.uint8), out, place)
        if found < 0:
            check_starts(own[0])
            raise ValueError(f"indptr must end at {len(own[1])}, the number of its indices, but is {own[0].tolist()}")
        place = found
    return out


def merge_columns(
    places: Sequence[torch.Tensor],
    counts: Sequence[torch.Tensor],
    values: Sequence[Sequence[torch.Tensor]],
    dtypes: Sequence[torch.dtype],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Merge columns of edges, each at its position; read and write each value once.

    Return where each column starts, int64, one longer than there are columns; and the arrays, column by column.

    Args:
        places: For each part, the places of its columns, int64; together these are `0 .. columns - 1`, each once.
        counts: For each part, the number of edges of its columns, int32 or int64.
        values: For each part, arrays of integers with one value per edge, column by column.
        dtypes: The dtypes of the result, for each array; those of the parts may have fewer bits.

    Raises:
        ValueError: The arrays don't fit together.

    Example:
        >>> places, counts = [torch.tensor([1]), torch.tensor([0, 2])], [torch.tensor([3]), torch.tensor([1, 0])]
        >>> merge_columns(places, counts, [[torch.tensor([5, 6, 7])], [torch.tensor([8])]], [torch.int64])
        (tensor([0, 1, 4, 4]), [tensor([8, 5, 6, 7])])
    """
    check_parts(places, counts, values, dtypes)
    offsets = np.zeros(sum(map(len, places)) + 1, dtype=np.int64)
    sizes = [len(arrays[0]) for arrays in values]
    for own, numbers, size in zip(places, counts, sizes, strict=True):
        module = kernels("structure.columns", own, counts=numbers)
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
            module = kernels("structure.columns", own, values=array)
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


def shift_columns(
    offsets: torch.Tensor, values: torch.Tensor, shifts: torch.Tensor, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Return values, int64, which lie column by column, each plus the shift of its column; read and write each once.

    Args:
        offsets: int64: where each column starts, one longer than there are columns.
        dtype: int64, or int32 if the caller knows that the sums fit.

    Raises:
        ValueError: The tensors don't fit together.

    Example:
        >>> shift_columns(torch.tensor([0, 2, 3]), torch.tensor([4, 5, 6]), torch.tensor([10, 20]))
        tensor([14, 15, 26])
    """
    for name, tensor in (("offsets", offsets), ("values", values), ("shifts", shifts)):
        check_vector(name, tensor, (torch.int64,))
    if dtype not in (torch.int32, torch.int64):
        raise TypeError(f"dtype must be int32 or int64, but is {dtype}")
    check_columns("offsets", offsets)
    check_length("shifts", shifts, offsets.numel() - 1, "column")
    check_length("values", values, int(offsets[-1]), "place up to the last offset")
    out = buffers.empty(values.numel(), dtype)
    module = kernels("structure.columns", values, offsets=offsets, shifts=shifts)
    module.shift_columns(offsets.contiguous(), shifts.contiguous(), values.contiguous(), out)
    return out
