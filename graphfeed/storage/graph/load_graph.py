"""Graphs that are there already: in a file, or in shared memory."""

import os
from pathlib import Path

from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.graph_file import map_fields


def load_graph(path: str | os.PathLike[str]) -> FusedCSCSamplingGraph:
    """Map a graph that its `save` wrote; pages are read when they are needed, and shared by all who map the file.

    The arrays are checked, which takes a pass over the file; nothing is unpickled. What is written into the graph's
    tensors stays in this process and never reaches the file. When it goes to a worker process it is copied to shared
    memory.

    Raises:
        FileNotFoundError: There is no file.
        ValueError: It is no graph, not all of one, or of another version of the format.

    Example:
        >>> import tempfile
        >>> from graphfeed import from_coo
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     from_coo(([1, 2], [0, 0]), num_nodes=3).save(f"{folder}/graph")
        ...     load_graph(f"{folder}/graph")
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    graph = FusedCSCSamplingGraph(**map_fields(Path(path)))
    try:
        graph.check()
    except (TypeError, ValueError) as error:
        error.add_note(f"in {path}, which was changed after it was saved")
        raise
    return graph


def load_from_shared_memory(name: str) -> FusedCSCSamplingGraph:
    """Map a graph that another process of this machine and user put into shared memory.

    Costs a few system calls, whatever the size: `copy_to_shared_memory` wrote what was checked, so only the header is
    checked here. What one process writes into the arrays, all see.

    Raises:
        FileNotFoundError: There is none of the name.
        ValueError: What lies there is no graph of this version.

    Example:
        >>> from graphfeed import from_coo
        >>> shared = from_coo(([1, 2], [0, 0]), num_nodes=3).copy_to_shared_memory("doctest")
        >>> load_from_shared_memory("doctest")
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    return FusedCSCSamplingGraph.open_by_name(name)
