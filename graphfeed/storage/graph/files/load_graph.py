"""Open a graph that exists already, in a file or in shared memory. A new format is an entry of `FORMATS`."""

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
    """A format of graph files: how they are known, read and verified."""

    name: str
    starts: tuple[bytes, ...]
    """What its files begin with."""
    read: Callable[[Path], Fields]
    """Returns the arguments of `FusedCSCSamplingGraph`, mapped where that is possible. They are checked afterwards."""
    verify: Callable[[Path], str] | None = None
    """Returns the checksum of a file, or raises a ValueError if it has changed; None where there are no checksums."""
    is_as_saved: Callable[[Path], bool] = lambda path: False  # noqa: ARG005
    """Tells whether a file is known, without reading it all, to hold a graph that was checked."""


FORMATS = (
    GraphFormat("graphfeed", (MAGIC,), map_fields, verify_graph_file, is_as_saved),
    GraphFormat("torch.save", (b"PK\x03\x04", b"\x80"), read_graphbolt_fields),  # zip files, and pickles before them
)


def format_of(path: Path) -> GraphFormat:
    """Return the format of a graph's file, which must exist; a ValueError if it begins like none."""
    with open(path, "rb", opener=regular_file) as file:
        start = file.read(max(len(start) for form in FORMATS for start in form.starts))
    for form in FORMATS:
        if start.startswith(form.starts):
            return form
    raise ValueError(f"{path} is no graph that graphfeed wrote; give a file made by save(), or one of GraphBolt's")


def verify_graph(path: Path) -> str:
    """Return the checksum of a graph's file, after a pass over it; one that has changed or has none is a ValueError."""
    form = format_of(path)
    if form.verify is None:
        raise ValueError(f"{path} has no checksum, as files of {form.name} don't; load_graph() it, and save() it")
    return form.verify(path)


@checked
def load_graph(path: str | os.PathLike[str]) -> FusedCSCSamplingGraph:
    """Map a graph from a file that its `save` wrote; pages are read on demand, and shared by all processes that map it.

    A file that is as `save` left it opens in milliseconds, whatever its size: its arrays were checked when they were
    saved. That is told by its size and its time of modification, which `mv`, `cp -p`, rsync and tar keep. After a plain
    `cp` or a `touch`, and in files of earlier releases, the arrays are checked, which takes a pass over the file and
    shows a progress bar: `load_graph(path).save(path)` writes it anew. Sampling reads no memory outside of the arrays,
    whatever the file holds: an edge that leads nowhere is a ValueError. `verify_graph` finds any other damage. Graphs
    that GraphBolt saved, or that `torch.save` wrote, are read into memory and checked. Nothing is unpickled.

    Writes to the graph's tensors stay in this process and never reach the file. Worker processes map the same file, so
    the graph may be larger than memory; a graph that was written to is copied to shared memory for them. Where the
    arrays that sampling reads exceed a quarter of free memory, hops are read in the order of the file, and the system
    is asked for pages ahead of that, until mini-batches find their pages in memory: `DataLoader.explain()` tells. By
    LABOR, whole columns are read. Column starts of up to an eighth of free memory stay there. Other operations read
    single pages, one after the other. Leave the file as it is while it is in use: the system ends a process that reads
    a mapped page which has been cut off (SIGBUS). To replace a graph, `save` to the same path, which makes another
    file.

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
        graph.take_as_saved() if is_as_saved else graph.check()
    except (TypeError, ValueError) as error:
        error.add_note(f"in {path}, which was changed after it was saved, or made of no valid graph")
        raise
    return graph


@checked
def load_from_shared_memory(name: str) -> FusedCSCSamplingGraph:
    """Map a graph that a process of the same user and machine put into shared memory; each call maps it anew.

    This takes a few system calls, whatever the size: `copy_to_shared_memory` wrote a valid graph, so only the header is
    checked. A write to the arrays is visible to all processes, and in all mappings.

    Raises:
        FileNotFoundError: There is no graph of that name.
        ValueError: The memory holds no graph of this version.

    Example:
        >>> from graphfeed import from_coo
        >>> shared = from_coo(([1, 2], [0, 0]), num_nodes=3).copy_to_shared_memory("doctest")
        >>> load_from_shared_memory("doctest")
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    return FusedCSCSamplingGraph.open_by_name(name)
