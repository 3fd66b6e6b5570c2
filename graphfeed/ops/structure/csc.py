"""Compressed sparse columns (CSC): conversion from an edge list, validation and expansion."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import (
    ID_DTYPES,
    MOST_VALUES,
    check_count,
    check_ids,
    check_length,
    check_tensors,
    check_vector,
    checked,
    kind_of,
)
from graphfeed.ops.backend import as_int64, as_types, kernels, on_gpu
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits, progress_bar
from graphfeed.ops.rows.gather import gather_long_lived

TYPE_DTYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)


class Columns(NamedTuple):
    """A graph in compressed sparse columns."""

    indptr: torch.Tensor
    """int64, shape (nodes + 1,): where the edges of each column begin."""
    indices: torch.Tensor
    """Source of each edge, ordered by column; edges of a column keep their order."""
    order: torch.Tensor
    """int64: position of each edge in the edge list."""


def coo_to_csc(sources: torch.Tensor, destinations: torch.Tensor, num_nodes: int) -> Columns:
    """Convert an edge list to CSC by a stable counting sort in two passes.

    Raises:
        ValueError: The lengths differ, or an id is not in `0 .. num_nodes - 1`.
    """
    check_count("num_nodes", num_nodes, 0, MOST_VALUES)
    for name, ids in (("sources", sources), ("destinations", destinations)):
        check_vector(name, ids)
        check_ids(name, ids, num_nodes)
    if sources.numel() != destinations.numel():
        raise ValueError(
            f"sources and destinations must be equally long, but have {sources.numel()} and {destinations.numel()} ids"
        )
    module = kernels("structure.csc", destinations, sources=sources)
    indptr = buffers.empty_long_lived(num_nodes + 1, torch.int64, destinations.device).zero_()
    order = buffers.empty_long_lived(sources.numel(), torch.int64, destinations.device)
    module.count_columns(destinations.contiguous(), indptr)
    # A copy of the starts: the kernel advances each as its column fills.
    module.fill_columns(destinations.contiguous(), indptr.clone(), order)
    return Columns(indptr, gather_long_lived(sources, order), order)


def cut_edges(task: str, edges: torch.Tensor) -> Iterator[torch.Tensor]:
    step = current_limits().checked_edges
    with progress_bar(task, edges.numel(), "edge", wanted=edges.numel() > step) as progress:
        # Parts are for the progress bar; a GPU processes all edges at once.
        for part in [edges] if on_gpu(edges) else torch.split(edges, step):
            yield part
            progress.update(part.numel())


def cut_columns(task: str, indptr: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the first column and the column starts of parts of about `checked_edges` edges. A GPU has only one part."""
    last, total, step = indptr.numel() - 1, int(indptr[-1]), current_limits().checked_edges
    bounds = [0, last]
    if total > step and not on_gpu(indptr):
        marks = torch.arange(step, total, step, dtype=indptr.dtype, device="cpu")
        bounds = sorted({0, *torch.searchsorted(indptr, marks).tolist(), last})
    with progress_bar(task, total, "edge", wanted=total > step) as progress:
        for low, high in pairwise(bounds):
            columns = indptr[low : high + 1]
            yield low, columns
            progress.update(int(columns[-1] - columns[0]))


def check_start_ends(name: str, indptr: torch.Tensor, num_edges: int | None = None) -> None:
    """Raise unless column starts begin with 0 and end with `num_edges`, if given. Only these two values are read."""
    check_vector(name, indptr)
    if indptr.numel() == 0 or int(indptr[0]) != 0:
        raise ValueError(f"{name} must start with 0, but is {indptr[:3].tolist()}...; is it CSC?")
    if num_edges is not None and int(indptr[-1]) != num_edges:
        raise ValueError(
            f"{name} must end with the number of edges, {num_edges} (the length of indices), "
            f"but ends with {int(indptr[-1])}"
        )


def check_columns(name: str, indptr: torch.Tensor, num_edges: int | None = None) -> None:
    """Raise unless column starts begin with 0, never decrease, and end with `num_edges`, if given."""
    check_start_ends(name, indptr, num_edges)
    column = int(kernels("structure.csc", indptr).find_falling(indptr))
    if column >= 0:
        raise ValueError(
            f"{name} must not decrease, but goes from {int(indptr[column])} to {int(indptr[column + 1])} at node "
            f"{column}; it must be the running sum of the in-degrees"
        )


def check_csc(indptr: torch.Tensor, indices: torch.Tensor) -> None:
    """Raise unless the arrays are a valid graph. This takes one pass over each.

    Raises:
        ValueError: `indptr` is empty, does not start at 0, decreases, or does not end at the number of edges; or a
            source is not a node.
    """
    check_vector("csc_indptr", indptr)
    if not isinstance(indices, torch.Tensor):
        raise TypeError(f"indices must be a torch.Tensor, but is {kind_of(indices)}")
    kernels("structure.csc", indptr, indices=indices)  # raises if the devices differ
    check_columns("csc_indptr", indptr, indices.numel())
    if indices.numel():
        check_vector("indices", indices)
        for part in cut_edges("checking edges", indices):
            check_ids("indices", part, indptr.numel() - 1)


def edited() -> ValueError:
    return ValueError(
        "the graph refers to an edge or a node that the graph does not have: csc_indptr, indices or type_per_edge were "
        "changed after the graph was checked, perhaps through a NumPy array that shares their memory; graph.check() "
        "reports the error, call it after edits in place"
    )


def check_edge_types(indptr: torch.Tensor, types: torch.Tensor, num_types: int) -> None:
    """Raise unless the type of each edge is valid and types ascend within each column. This takes one pass.

    Raises:
        TypeError: The types are neither uint8, int16, int32 nor int64.
        ValueError: A type is not in `0 .. num_types - 1`, or the types of a column decrease.
    """
    check_vector("type_per_edge", types, TYPE_DTYPES)
    check_count("num_types", num_types, 0)
    check_columns("csc_indptr", indptr)
    check_length("type_per_edge", types, int(indptr[-1]), "edge")
    for part in cut_edges("checking edge types", types):
        check_ids("type_per_edge", part, num_types)
    module, edge_types = kernels("structure.csc", types, indptr=indptr), as_types(types, types)
    for first, columns in cut_columns("checking the order of edge types", indptr):
        column = int(module.find_unsorted(as_int64(columns, types), edge_types))
        if column >= 0:
            raise ValueError(
                f"type_per_edge must ascend inside each column, but falls at {first + column}; sort each column's "
                "edges by type"
            )


def check_joined(
    indptr: torch.Tensor, indices: torch.Tensor, types: torch.Tensor, offsets: torch.Tensor, ends: torch.Tensor
) -> None:
    """Raise unless the endpoints of each edge have the node types of its edge type. This takes one pass.

    Args:
        indptr, indices, types: The edges.
        offsets: First id of each node type, followed by the number of nodes.
        ends: Source and destination node type of each edge type, shape (edge types, 2); on the CPU.

    Raises:
        IndexError: `ends` contains a node type that is not in `offsets`.
        ValueError: An edge joins nodes of other types, or the arrays are not consistent.
    """
    check_tensors(ends=ends)
    check_vector("offsets", offsets)
    if ends.dim() != 2 or ends.shape[1] != 2 or ends.dtype not in ID_DTYPES:
        raise ValueError(f"ends must hold ids in shape (edge types, 2), but has {tuple(ends.shape)} of {ends.dtype}")
    check_csc(indptr, indices)
    check_edge_types(indptr, types, ends.shape[0])
    check_ids("ends", ends, offsets.numel() - 1, IndexError)
    check_endpoints(indptr, indices, types, offsets, ends)


def check_endpoints(
    indptr: torch.Tensor, indices: torch.Tensor, types: torch.Tensor, offsets: torch.Tensor, ends: torch.Tensor
) -> None:
    """Like `check_joined`, for arrays that have passed all other checks."""
    bounds = offsets.to("cpu", torch.int64)
    module = kernels("structure.csc", types, indptr=indptr, indices=indices)
    arrays = indices.contiguous(), as_types(types, types)
    for first, columns in cut_columns("checking endpoint types", indptr):
        # The kernel numbers the columns of a part from 0, so shift the bounds of destinations.
        tables = ((bounds[own] - torch.tensor([0, first], device="cpu")).to(types.device) for own in (ends, ends + 1))
        edge = int(module.find_misjoined(as_int64(columns, types), *arrays, *tables))
        if edge >= 0:
            raise ValueError(
                f"type_per_edge is {int(types[edge])} for edge {edge}, but that type does not join its two nodes; "
                "check the types against node_type_offset and edge_type_to_id"
            )


def check_starts(indptr: torch.Tensor) -> None:
    """Raise unless column starts are valid. On a GPU, only dtype and shape are checked, without synchronizing."""
    check_vector("indptr", indptr)
    if indptr.is_cpu:
        check_columns("indptr", indptr)


def check_dtype(dtype: object) -> None:
    # None stands for the dtype of the ids.
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, but is {kind_of(dtype)}; give torch.int64")


def size_of(indptr: torch.Tensor, output_size: int | None) -> int:
    # If the caller knows the number, this doesn't synchronize with a GPU.
    size = output_size if output_size is not None and on_gpu(indptr) else int(indptr[-1])
    if output_size not in (None, size):
        raise ValueError(f"output_size must be {size}, the last of indptr, but is {output_size}")
    return size


@checked
def expand_indptr(
    indptr: torch.Tensor,
    dtype: torch.dtype | None = None,
    node_ids: torch.Tensor | None = None,
    output_size: int | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Convert CSC to COO: repeat the id of each column (`node_ids`, or else 0, 1, 2, ...) once per edge.

    Args:
        dtype: The dtype of the result. None: that of `node_ids`.
        output_size: The number of edges, if the caller knows it.
        out: Where to write the result. None: a new tensor.

    Raises:
        ValueError: `indptr` does not start at 0, decreases, or is inconsistent with the other arguments.

    Example:
        >>> expand_indptr(torch.tensor([0, 2, 2, 3]), dtype=torch.int64)
        tensor([0, 0, 2])
    """
    if dtype is None and node_ids is None:
        raise ValueError("expand_indptr needs dtype or node_ids; give the dtype of the ids that it should return")
    check_dtype(dtype)
    check_starts(indptr)
    columns = indptr.numel() - 1
    if out is not None:
        check_tensors(out=out)
    size = size_of(indptr, output_size)
    if node_ids is None:
        assert dtype is not None
        kind = buffers.NUMPY_DTYPES.get(dtype) if indptr.is_cpu else None
        # On the CPU, use NumPy: torch would wake a thread pool.
        node_ids = (
            torch.arange(columns, dtype=dtype, device=indptr.device)
            if kind is None
            else torch.from_numpy(np.arange(columns, dtype=kind))
        )
    check_tensors(node_ids=node_ids)
    if node_ids.numel() != columns:
        raise ValueError(f"node_ids must have {columns} ids, one per column, but has {node_ids.numel()}")
    wanted = dtype or node_ids.dtype
    if out is None:
        out = buffers.empty(size, wanted, indptr.device)
    elif out.shape != (size,) or out.dtype != wanted or not out.is_contiguous():
        raise ValueError(f"out must be {size} contiguous values of {wanted}, but is {tuple(out.shape)} of {out.dtype}")
    module = kernels("structure.csc", indptr, node_ids=node_ids, out=out)
    module.expand_indptr(indptr.contiguous(), node_ids.contiguous(), out)
    return out


@checked
def indptr_edge_ids(
    indptr: torch.Tensor,
    dtype: torch.dtype | None = None,
    offset: torch.Tensor | None = None,
    output_size: int | None = None,
) -> torch.Tensor:
    """Return the position of each edge in its column, plus the column's `offset`, if given.

    Args:
        dtype: The dtype of the result. None: that of `offset`, or else of `indptr`.
        output_size: The number of edges, if the caller knows it.

    Raises:
        ValueError: `indptr` does not start at 0, decreases, or is inconsistent with the other arguments.

    Example:
        >>> indptr_edge_ids(torch.tensor([0, 2, 2, 3]), offset=torch.tensor([10, 20, 30]))
        tensor([10, 11, 30])
    """
    check_dtype(dtype)
    check_starts(indptr)
    if offset is None:
        offset = torch.zeros(indptr.numel() - 1, dtype=dtype or indptr.dtype, device=indptr.device)
    check_vector("offset", offset)
    check_length("offset", offset, indptr.numel() - 1, "column of indptr")
    size = size_of(indptr, output_size)
    out = buffers.empty(size, dtype or offset.dtype, indptr.device)
    module = kernels("structure.csc", indptr, offset=offset)
    module.indptr_edge_ids(indptr.contiguous(), offset.contiguous(), out)
    return out
