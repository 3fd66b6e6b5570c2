"""The rule about features on disk."""

from typing import Any
from weakref import WeakValueDictionary

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.datapipes.pipeline import Placement, traverse
from graphfeed.loader.placement_rules import placement_of
from graphfeed.loader.rules import LoaderOptions, device_of, runs_ahead
from graphfeed.loader.stages.in_windows import WINDOWS_IN_MEMORY, FetchesKnownRows, InWindows, fetch_and_copies
from graphfeed.storage import DiskBasedFeature, Feature, FeatureStore
from graphfeed.storage.features import RowMemory, file_bytes

MEMORIES: "WeakValueDictionary[tuple[Any, ...], RowMemory]" = WeakValueDictionary()
"""The memory for each set of features and limit, so that the plans for several numbers of workers share it."""
MOST_OF_FILES = 2
"""How many times the size of the files it takes at most, as all rows are in memory then."""
SAMPLES_PART = 4
"""Which part of what reading ahead may take is for the samples of the mini-batches that wait, rather than for rows."""


def files_of(stage: FetchesKnownRows) -> dict[tuple[str, str | None, str], DiskBasedFeature]:
    """Return the features on disk that a stage reads, by their keys."""
    features: dict[Any, object] = dict(stage.features())  # also what is no Feature, but reads like one
    files = {
        key: feature.file()
        for key, feature in features.items()
        if isinstance(feature, Feature) and reads_as_is(feature)
    }
    return {
        key: file
        for key, file in files.items()
        if isinstance(file, DiskBasedFeature) and reads_as_is(file) and file_bytes(file)
    }


def reads_as_is(feature: Feature) -> bool:
    """Tell whether a feature returns rows as they are stored; a class of a user's may change them in its `read`."""
    return type(feature).read.__module__.startswith("graphfeed.")


def bytes_of_caches(stage: FetchesKnownRows, files: dict[tuple[str, str | None, str], DiskBasedFeature]) -> int:
    """Return the size of the caches, on GPUs, that stay in front of files where rows are read ahead."""
    features = stage.features()
    caches = [features[key].in_place_of_file(file).list_caches() for key, file in files.items()]
    return sum({id(cache): cache.max_size_in_bytes for listed in caches for _, cache in listed}.values())


def reads_files(stage: Datapipe, options: LoaderOptions) -> bool:
    """Return whether a stage reads features on disk in the main process, at ids that were sampled on the CPU."""
    if not isinstance(stage, Transform) or not isinstance(stage, FetchesKnownRows):
        return False
    if type(stage.feature_store).read is not FeatureStore.read:
        return False  # it may do more than to ask the feature
    # Behind a copy to a GPU, the stages from there on run ahead with the reading.
    ahead = device_of(stage) is None or runs_ahead(stage, options.overlap_feature_fetch, default=True)
    waits_on_cpu = device_of(fetch_and_copies(stage)[0].datapipe) is None
    return placement_of(stage) is Placement.MAIN and ahead and waits_on_cpu and bool(files_of(stage))


def fetch_in_windows(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Features on disk exceed the memory, so the rows of several mini-batches are read at once, in the file's order."""
    readers = sum(reads_files(stage, options) for stage in traverse(pipe))
    if options.window == 0 or not readers:
        return pipe
    limit = options.memory.for_rows() / readers

    def wrap(stage: Datapipe) -> Datapipe:
        if not reads_files(stage, options):
            return stage
        assert isinstance(stage, FetchesKnownRows)
        files = files_of(stage)
        size = sum(map(file_bytes, files.values()))
        # Rows are read for all ids, also for those whose rows a GPU has: a larger cache there needs fewer reads.
        if options.window is None and (size <= limit or bytes_of_caches(stage, files) > limit):
            return stage
        memory = int(min(limit, MOST_OF_FILES * size + (1 << 20)))
        key = (options.memory, memory, stage.position, *files, *map(id, files.values()))
        rows = MEMORIES.get(key) or MEMORIES.setdefault(key, RowMemory(files, memory - memory // SAMPLES_PART))
        if options.window is None and not rows.has_room():
            return stage
        return InWindows(stage, rows, options.window, memory // SAMPLES_PART // WINDOWS_IN_MEMORY)

    return pipe.rewrite(wrap)
