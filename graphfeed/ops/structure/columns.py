"""Joins, merges and reads compressed sparse columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import ID_DTYPES, check_ids, check_length, check_vector
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.memory import buffers
from graphfeed.ops.structure.csc import TYPE_DTYPES, check_columns, check_ends, check_starts

WORDS = {4: np.uint32, 8: np.uint64}


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
        marks = [torch.empty(0, dtype=torch.bool, device="cpu")] * len(counts)
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
        if not place_all(own.contiguous(), offsets, arrays, merged):
            raise ValueError("places must be all different, but one occurs twice")
    return torch.from_numpy(offsets), merged


def place_all(
    own: torch.Tensor, offsets: NDArray[np.int64], arrays: Sequence[torch.Tensor], merged: Sequence[torch.Tensor]
) -> bool:
    """Copy the arrays of a part to its columns; return False if they don't fit."""
    module = kernels("structure.columns", own, **{f"values_{number}": array for number, array in enumerate(arrays)})
    dtypes = [array.dtype for array in arrays[:2]]
    if len(dtypes) > 1 and {*dtypes, *(out.dtype for out in merged[:2])} <= set(ID_DTYPES):
        # The sources and the ids of edges, whose columns are short: one loop for both takes 0.7 of the time.
        sent = torch.int32 if torch.int64 not in dtypes else torch.int64
        pair = [array.to(sent).contiguous() for array in arrays[:2]]
        if not module.place_pairs(own, offsets, *pair, merged[0], as_words(merged[1])):
            return False
        arrays, merged = arrays[2:], merged[2:]
    for array, out in zip(arrays, merged, strict=True):
        given = array.to(out.dtype).contiguous().view(torch.uint8)
        if not module.place_columns(own, offsets, given, out.itemsize, out.view(torch.uint8)):
            return False
    return True


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


def read_columns(
    starts: torch.Tensor,
    first_edges: torch.Tensor,
    indices: torch.Tensor,
    nodes: torch.Tensor,
    offsets: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return how many edges were picked in each column of a part, their sources, and their ids in the whole graph.

    Each is int32, and sources and ids are int64 only where not all nodes or edges of the whole graph have such ids. All
    is read once: for columns of few edges, this takes 0.6 of the time of an operation for each.

    Args:
        starts, first_edges: Where each node's column begins in the part and in the whole graph, int64, one longer than
            there are nodes.
        indices, nodes: The source of each edge of the part, and the node of each column, both int32 or both int64.
        offsets, positions: int64: where each column's edges begin among the positions, and these in `indices`.

    Raises:
        ValueError: The tensors don't fit together.

    Example:
        >>> starts, first_edges = torch.tensor([0, 0, 2]), torch.tensor([0, 3, 5])
        >>> read_columns(starts, first_edges, torch.tensor([1, 0]), torch.tensor([1]), torch.tensor([0, 1]), starts[:1])
        (tensor([1], dtype=torch.int32), tensor([1], dtype=torch.int32), tensor([3], dtype=torch.int32))
    """
    given = {"starts": starts, "first_edges": first_edges, "offsets": offsets, "positions": positions}
    for name, tensor in given.items():
        check_vector(name, tensor, (torch.int64,))
    check_vector("indices", indices)
    check_vector("nodes", nodes, (indices.dtype,))
    check_length("first_edges", first_edges, starts.numel(), "column start")
    check_ends("starts", starts, indices.numel())
    check_columns("offsets", offsets, positions.numel())
    check_length("nodes", nodes, offsets.numel() - 1, "column")
    check_ids("nodes", nodes, starts.numel() - 1)
    check_ids("positions", positions, indices.numel())
    module = kernels("structure.columns", starts, indices=indices, nodes=nodes, **given)
    counts = buffers.empty(nodes.numel(), torch.int32)
    sources = buffers.empty(positions.numel(), smallest_ids(starts.numel() - 1))
    ids = buffers.empty(positions.numel(), smallest_ids(int(first_edges[-1])))
    module.read_columns(
        *(tensor.contiguous() for tensor in (nodes, starts, first_edges, indices, offsets, positions)),
        counts, sources, as_words(ids),
    )  # fmt: skip
    return counts, sources, ids


def smallest_ids(count: int) -> torch.dtype:
    return torch.int32 if count <= 1 << 31 else torch.int64


def as_words(ids: torch.Tensor) -> NDArray[Any]:
    """Return ids as words, which a kernel may have beside ids of another dtype."""
    words: NDArray[Any] = ids.numpy().view(WORDS[ids.itemsize])
    return words
