"""The rule about features on disk."""

from typing import Any
from weakref import WeakValueDictionary

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.datapipes.pipeline import Placement, traverse
from graphfeed.loader.placement_rules import placement_of
from graphfeed.loader.rules import LoaderOptions, device_of
from graphfeed.loader.stages.in_windows import FetchesKnownRows, InWindows
from graphfeed.storage import DiskBasedFeature, Feature
from graphfeed.storage.features import RowMemory, file_bytes
from graphfeed.storage.memory import available_memory

WINDOWS_SHARE = 1 / 3
"""The share of the memory that is left which reading ahead takes by default."""
MEMORIES: "WeakValueDictionary[tuple[Any, ...], RowMemory]" = WeakValueDictionary()
"""The memory for each set of features and limit, so that the plans for several numbers of workers share it."""
MOST_OF_FILES = 2
"""How many times the size of the files it takes at most, as all rows are in memory then."""
SAMPLES_PART = 4
"""Which part of that is for the samples of the mini-batches that wait, rather than for rows."""
WINDOWS_IN_MEMORY = 3
"""Whose samples wait: those of the window that is used, of that which is read, and of that which is sampled."""


def files_of(stage: FetchesKnownRows) -> dict[tuple[str, str | None, str], DiskBasedFeature]:
    """Return the features on disk that a stage reads, by their keys."""
    features: dict[Any, object] = dict(stage.features())  # also what is no Feature, but reads like one
    files = {key: feature.file() for key, feature in features.items() if isinstance(feature, Feature)}
    return {key: file for key, file in files.items() if isinstance(file, DiskBasedFeature) and file_bytes(file)}


def reads_files(stage: Datapipe) -> bool:
    """Return whether a stage reads features on disk in the main process, and not behind a copy to a GPU."""
    if not isinstance(stage, Transform) or not isinstance(stage, FetchesKnownRows):
        return False
    return placement_of(stage) is Placement.MAIN and device_of(stage) is None and bool(files_of(stage))


def fetch_in_windows(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Features on disk exceed the memory, so the rows of several mini-batches are read at once, in the file's order."""
    readers = sum(map(reads_files, traverse(pipe)))
    if options.window == 0 or not readers:
        return pipe
    limit = WINDOWS_SHARE * available_memory() if options.memory_limit is None else options.memory_limit
    limit = limit / readers / (2 if options.tunes else 1)

    def wrap(stage: Datapipe) -> Datapipe:
        if not reads_files(stage):
            return stage
        assert isinstance(stage, FetchesKnownRows)
        files = files_of(stage)
        size = sum(map(file_bytes, files.values()))
        if options.window is None and size <= limit:
            return stage
        memory = int(min(limit, MOST_OF_FILES * size + (1 << 20)))
        key = (options.memory_limit, options.tunes, stage.position, *files, *map(id, files.values()))
        rows = MEMORIES.get(key) or MEMORIES.setdefault(key, RowMemory(files, memory - memory // SAMPLES_PART))
        if options.window is None and not rows.has_room():
            return stage
        return InWindows(stage, rows, options.window, memory // SAMPLES_PART // WINDOWS_IN_MEMORY)

    return pipe.rewrite(wrap)
