"""Reading of graphs whose arrays are in mapped files and may not fit into memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch

from graphfeed.ops import as_int64, as_types
from graphfeed.ops.arguments import ID_DTYPES
from graphfeed.ops.memory import ReadChoice, is_page_locked, read_at_random
from graphfeed.ops.rows import gather_by_page, gather_unchecked
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.memory_limits import available_memory
from graphfeed.storage.memory.shared import file_of

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays


SHARE = 4
"""Divisor of free memory: a smaller graph in files is assumed to stay in memory."""
STARTS_SHARE = 8
"""Divisor of free memory: smaller column starts stay in memory, since nearly every mini-batch reads all their pages."""


class FilesRead(NamedTuple):
    """Arrays in mapped files that sampling reads, and how it reads them. Decided once per process."""

    sources: torch.Tensor
    """The `indices` of the graph at that time, to detect later changes."""
    num_bytes: int
    """Size of the arrays in files."""
    starts_bytes: int
    """Size of the column starts among them."""
    free: float
    """Free memory at that time, in bytes."""
    at_random: list[torch.Tensor]
    """Arrays for which the system reads single pages; it reads ahead and caches the others, as usual."""
    reads: ReadChoice | None
    """Decides whether pages are prefetched in the order of the file; None: never."""

    @property
    def keeps_starts(self) -> bool:
        return self.starts_bytes <= self.free / STARTS_SHARE


DECIDED: "WeakKeyDictionary[GraphArrays, FilesRead]" = WeakKeyDictionary()
"""Decisions by graph. A forked process inherits the mappings of its parent, including their read-ahead settings. A
copied or unpickled graph has its own decision."""


def read_choice(graph: "GraphArrays") -> ReadChoice | None:
    """Return the choice of reads of a graph in mapped files; None: it is read like a graph in memory."""
    files = DECIDED.get(graph)
    # The first call in this process, or the arrays were replaced.
    if files is None or files.sources is not graph.indices:
        files = files_read(graph)
        # If it is larger than a quarter of free memory, read-ahead is useless, since reads are random; samplers
        # prefetch pages themselves.
        read_at_random(files.at_random, yes=True)
        DECIDED[graph] = files
    # Page-locked arrays stay in memory.
    return None if files.reads is None or is_page_locked(graph.indices) else files.reads


def is_by_page(graph: "GraphArrays") -> bool:
    # Only while pages are missing: if all are in memory, reading by page is slower.
    reads = read_choice(graph)
    return reads is not None and reads.from_disk


def gather_edges(graph: "GraphArrays", values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Gather values per edge at positions, which are not checked."""
    reads = read_choice(graph)
    if reads is None:
        return gather_unchecked(values, positions)
    by_page = reads.from_disk and is_read_by_page(values)
    pages: list[int] = []
    with reads.count(pages):
        taken = (gather_by_page if by_page else gather_unchecked)(values, positions)
    # The number of pages waited for decides how the next edges are read.
    reads.decide(pages[0], positions.numel())
    return taken


def is_read_by_page(values: torch.Tensor) -> bool:
    return values.dtype in ID_DTYPES and values.dim() == 1 and values.is_contiguous()


@contextmanager
def in_passes(graph: "GraphArrays") -> Iterator[None]:
    """Enable the system's read-ahead during passes over the whole graph."""
    files = DECIDED.get(graph)
    arrays = [] if files is None else files.at_random
    read_at_random(arrays, yes=False)
    try:
        yield
    finally:
        read_at_random(arrays, yes=True)


def files_read(graph: "GraphArrays") -> FilesRead:
    """Return how the graph is read, or would be if it were sampled now. Reads none of its pages."""
    known = DECIDED.get(graph)
    if known is not None and known.sources is graph.indices:
        return known
    # The arrays that sampling reads at random.
    used = (graph.csc_indptr, graph.indices, graph.type_per_edge, graph.edge_attributes.get(ORIGINAL_EDGE_ID))
    arrays = [array for array in used if array is not None and array.is_cpu and file_of(array) is not None]
    free = available_memory()
    size = sum(array.nbytes for array in arrays)
    starts = sum(array.nbytes for array in arrays if array is graph.csc_indptr)
    files = FilesRead(graph.indices, size, starts, free, [], None)
    # The system will probably keep it in memory.
    if size <= free / SHARE:
        return files
    at_random = [array for array in arrays if array is not graph.csc_indptr or not files.keeps_starts]
    return files._replace(at_random=at_random, reads=ReadChoice())


def kernel_columns(graph: "GraphArrays") -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the column starts as int64 and the edge types as uint8 or int32, for CPU kernels.

    The first call copies other dtypes: 8 bytes per node, and 4 per edge. GPU kernels accept all dtypes. Other arrays
    for sampling are derived from these, so that they are known to match and need no checks.
    """
    graph.ensure_checked(whole=False)
    starts, types = graph.csc_indptr, graph.type_per_edge
    # Kernels exist for int64 starts and for uint8 or int32 types, so these need no copy.
    narrow = starts.dtype != torch.int64 or (types is not None and types.dtype not in (torch.uint8, torch.int32))
    if not narrow or not starts.is_cpu:
        return starts, types

    def widen() -> tuple[torch.Tensor | None, ...]:
        return as_int64(starts, starts), None if types is None else as_types(types, types)

    return graph.cached("columns for kernels", (starts, types), widen, whole=False)  # type: ignore[no-any-return]
