"""How a graph is read whose arrays lie in mapped files and may not stay in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch

from graphfeed.ops import as_int64, as_types
from graphfeed.ops.arguments import ID_DTYPES
from graphfeed.ops.memory import ReadChoice, is_page_locked, read_at_random
from graphfeed.ops.rows import Each, gather_by_page, gather_each_by_page, take_rows
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.memory_limits import available_memory
from graphfeed.storage.memory.shared import file_of

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays


SHARE = 4
"""A graph in files is taken to be in memory up to this part of what is free."""
STARTS_SHARE = 8
"""Column starts up to this part of what is free are left in memory. Nearly every mini-batch reads all their pages."""


class FilesRead(NamedTuple):
    """What sampling reads of a graph in mapped files, and how: decided once in each process."""

    sources: torch.Tensor
    """Of the graph at that time; it may have been given other arrays since."""
    num_bytes: int
    """The size of the arrays in files."""
    starts_bytes: int
    """How much of that are column starts."""
    free: float
    """How much memory there was."""
    at_random: list[torch.Tensor]
    """The arrays of which the system reads single pages; the others it reads ahead and keeps, as it does by itself."""
    reads: ReadChoice | None
    """Whether pages are asked for ahead of the reads, in the order of the file; None: never."""

    @property
    def keeps_starts(self) -> bool:
        return self.starts_bytes <= self.free / STARTS_SHARE


@runtime_checkable
class HasFiles(Protocol):
    """A graph that may lie in mapped files."""

    def files_read(self) -> FilesRead:
        """Return what of it does, and how it is read."""


DECIDED: "WeakKeyDictionary[GraphArrays, FilesRead]" = WeakKeyDictionary()
"""By graph. A forked process has the mappings of its parent, and what the system was told of them. A graph that was
copied or unpickled is another one."""


def read_choice(graph: "GraphArrays") -> ReadChoice | None:
    """Return how a graph in mapped files is sampled; None: it is read as one in memory is."""
    files = DECIDED.get(graph)
    # The first look in this process, or the graph has other arrays by now.
    if files is None or files.sources is not graph.indices:
        files = files_read(graph)
        # If it is larger than a quarter of free memory, the system need not read around what is asked for, since that
        # lies anywhere; samplers ask for pages ahead of their reads.
        read_at_random(files.at_random, yes=True)
        DECIDED[graph] = files
    # Page-locked arrays stay in memory.
    return None if files.reads is None or is_page_locked(graph.indices) else files.reads


def is_by_page(graph: "GraphArrays") -> bool:
    # Only while pages are missing: where all are in memory, reading by page costs more.
    reads = read_choice(graph)
    return reads is not None and reads.from_disk


def take_edges(graph: "GraphArrays", values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return one of a graph's values per edge at some positions, which are not checked."""
    reads = read_choice(graph)
    if reads is None:
        return take_rows(values, positions)
    by_page = reads.from_disk and is_read_by_page(values)
    pages: list[int] = []
    with reads.count(pages):
        taken = (gather_by_page if by_page else take_rows)(values, positions)
    # How many pages were waited for decides how the next edges are read.
    reads.decide(pages[0], positions.numel())
    return taken


def take_edges_of_each(
    graph: "GraphArrays", values: torch.Tensor, positions: list[torch.Tensor], each: Each
) -> list[torch.Tensor]:
    """Return what `take_edges` does for several parts of the positions; a page is read once for all of them."""
    if is_by_page(graph) and is_read_by_page(values):
        return gather_each_by_page(values, positions, each)
    return list(each(lambda part: take_edges(graph, values, part), positions))


def is_read_by_page(values: torch.Tensor) -> bool:
    return values.dtype in ID_DTYPES and values.dim() == 1 and values.is_contiguous()


@contextmanager
def in_passes(graph: "GraphArrays") -> Iterator[None]:
    """Have the system read ahead while something is computed of the whole graph."""
    files = DECIDED.get(graph)
    arrays = [] if files is None else files.at_random
    read_at_random(arrays, yes=False)
    try:
        yield
    finally:
        read_at_random(arrays, yes=True)


def files_read(graph: "GraphArrays") -> FilesRead:
    """Return how a graph is read, or would be if it were sampled now; no page of it is touched."""
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
    # The system is likely to keep it in memory.
    if size <= free / SHARE:
        return files
    at_random = [array for array in arrays if array is not graph.csc_indptr or not files.keeps_starts]
    return files._replace(at_random=at_random, reads=ReadChoice())


def kernel_columns(graph: "GraphArrays") -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return column starts and edge types as the CPU's kernels take them: int64, and uint8 or int32.

    Those of other dtypes are copied at the first call: 8 bytes per node, and 4 per edge. A GPU's kernels take all. What
    sampling reads beside them is computed from them, too: then it is known to fit them, and not checked.
    """
    graph.ensure_checked(whole=False)
    starts, types = graph.csc_indptr, graph.type_per_edge
    # There are kernels for int64 starts, and uint8 or int32 types, so that they need no copy.
    narrow = starts.dtype != torch.int64 or (types is not None and types.dtype not in (torch.uint8, torch.int32))
    if not narrow or not starts.is_cpu:
        return starts, types

    def widen() -> tuple[torch.Tensor | None, ...]:
        copies = as_int64(starts, starts), None if types is None else as_types(types, types)
        # Copies of what was checked.
        graph.mark_for_sampling(*copies)
        return copies

    return graph.cached("columns for kernels", (starts, types), widen, whole=False)  # type: ignore[no-any-return]
