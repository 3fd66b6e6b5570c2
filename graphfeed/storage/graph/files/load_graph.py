"""Opens graphs in files or in shared memory. To add a file format, add an entry to `FORMATS`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from graphfeed.ops.arguments import checked
from graphfeed.ops.process import regular_file
from graphfeed.storage.graph.files.graph_file import MAGIC, Fields, is_as_saved, map_fields, verify_graph_file
from graphfeed.storage.graph.files.graphbolt_file import read_graphbolt_fields
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph


class GraphFormat(NamedTuple):
    """A format of graph files, with functions to read and verify files."""

    name: str
    starts: tuple[bytes, ...]
    """Possible first bytes of a file."""
    read: Callable[[Path], Fields]
    """Returns the arguments of `FusedCSCSamplingGraph`, mapped if possible. They are checked afterwards."""
    verify: Callable[[Path], str] | None = None
    """Returns the checksum of a file, or raises a ValueError if it has changed. None if the format has no checksums."""
    is_as_saved: Callable[[Path], bool] = lambda path: False  # noqa: ARG005
    """Returns whether a file is unchanged since a checked graph was saved to it, without reading it completely."""


FORMATS = (
    GraphFormat("graphfeed", (MAGIC,), map_fields, verify_graph_file, is_as_saved),
    GraphFormat("torch.save", (b"PK\x03\x04", b"\x80"), read_graphbolt_fields),  # zip files, and pickles before them
)


def format_of(path: Path) -> GraphFormat:
    """Return the format of an existing graph file. An unknown format raises a ValueError."""
    with open(path, "rb", opener=regular_file) as file:
        start = file.read(max(len(start) for form in FORMATS for start in form.starts))
    for form in FORMATS:
        if start.startswith(form.starts):
            return form
    raise ValueError(f"{path} is not a graph written by graphfeed; pass a file written by save() or by GraphBolt")


def verify_graph(path: Path) -> str:
    """Verify a graph's file with a pass over it; return its checksum. A wrong or missing one raises a ValueError."""
    form = format_of(path)
    if form.verify is None:
        raise ValueError(f"{path} has no checksum, as it was written by {form.name}; load_graph() it, and save() it")
    return form.verify(path)


@checked
def load_graph(path: str | os.PathLike[str]) -> FusedCSCSamplingGraph:
    """Map a graph from a file written by `save`. Pages are read on demand and shared by all processes that map it.

    A file that is unchanged since `save` opens in milliseconds, whatever its size, since its arrays were checked when
    it was saved. Changes are detected by the size and the modification time, which `mv`, `cp -p`, rsync and tar keep.
    After a plain `cp` or a `touch`, and in files of earlier releases, the arrays are checked, which takes a pass over
    the file and shows a progress bar; `load_graph(path).save(path)` rewrites the file. Sampling never reads outside the
    arrays, whatever the file contains: an edge with an invalid endpoint raises a ValueError. `verify_graph` finds all
    other damage. Graphs of GraphBolt or `torch.save` are read into memory and checked. No other objects are unpickled.

    Writes to the graph's tensors stay in this process and never reach the file. Worker processes map the same file, so
    the graph may be larger than memory; a graph that was modified is copied to shared memory for them. If the arrays
    that sampling reads exceed a quarter of free memory, hops are read in the order of the file with prefetching, until
    mini-batches find their pages in memory; `DataLoader.explain()` shows this. LABOR reads whole columns. Column starts
    of up to an eighth of free memory stay in memory. Other operations read single pages, one after another. Don't
    change the file while it is in use: the system kills a process that reads a mapped page of a truncated file
    (SIGBUS). To replace a graph, `save` to the same path, which creates a new file.

    Raises:
        FileNotFoundError: The file doesn't exist.
        ValueError: The file is not a graph, is incomplete, or has another version of the format.

    Example:
        >>> import tempfile
        >>> from graphfeed import from_coo
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     from_coo(([1, 2], [0, 0]), num_nodes=3).save(f"{folder}/graph")
        ...     load_graph(f"{folder}/graph")
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    path = Path(path)
    form = format_of(path)
    is_as_saved = form.is_as_saved(path)
    graph = FusedCSCSamplingGraph(**form.read(path))
    try:
        graph.trust_saved() if is_as_saved else graph.check()
    except (TypeError, ValueError) as error:
        error.add_note(f"in {path}, which was changed after it was saved, or written from an invalid graph")
        raise
    return graph


@checked
def load_from_shared_memory(name: str) -> FusedCSCSamplingGraph:
    """Map a graph that a process of the same user and machine put into shared memory. Each call creates a new mapping.

    This takes a few system calls, whatever the size: `copy_to_shared_memory` writes only valid graphs, so only the
    header is checked. Writes to the arrays are visible to all processes, and in all mappings.

    Raises:
        FileNotFoundError: There is no graph of that name.
        ValueError: The memory has no graph of this version.

    Example:
        >>> from graphfeed import from_coo
        >>> shared = from_coo(([1, 2], [0, 0]), num_nodes=3).copy_to_shared_memory("doctest")
        >>> load_from_shared_memory("doctest")
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    return FusedCSCSamplingGraph.open_by_name(name)
