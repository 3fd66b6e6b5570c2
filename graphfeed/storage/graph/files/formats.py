"""The formats of graph files. A new one is a module beside this one, and an entry of `FORMATS`.

`load_graph`, the graph of an `OnDiskDataset`, and the commands that take a saved graph read what is listed here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from graphfeed.ops.process import regular_file
from graphfeed.storage.graph.files.graph_file import MAGIC, Fields, is_as_saved, map_fields, verify_graph_file
from graphfeed.storage.graph.files.graphbolt_file import read_graphbolt_fields


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
    """Return the checksum of a graph's file, after a pass over it.

    Raises:
        ValueError: The file has changed since it was written, is no graph, or has no checksum.
    """
    form = format_of(path)
    if form.verify is None:
        raise ValueError(f"{path} has no checksum, as files of {form.name} don't; load_graph() it, and save() it")
    return form.verify(path)
