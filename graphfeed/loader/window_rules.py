"""The rules about windows: hops of graphs, and rows of features, on a disk or of other ranks, for several at once."""

from typing import Any
from weakref import WeakValueDictionary

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.datapipes.pipeline import Placement, traverse
from graphfeed.loader.executors import available_cores
from graphfeed.loader.placement_rules import placement_of
from graphfeed.loader.rules import OUTER_WAIT_FACTOR, LoaderOptions, device_of, runs_ahead
from graphfeed.loader.stages.in_windows import (
    WINDOWS_IN_MEMORY,
    BeginsTogether,
    FetchesKnownRows,
    InWindows,
    Sources,
    fetch_and_copies,
    slow_sources,
)
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.storage.features import RemoteFeature, RowMemory, bytes_of_rows
from graphfeed.storage.graph import Together

MOST_SAMPLED = 32
"""How many mini-batches are sampled together at most. 32 of half a million edges each want 98 % of the pages of a graph
of 400 million edges in their last hop, and 61 % of them in the hop before."""

MEMORIES: "WeakValueDictionary[tuple[Any, ...], RowMemory]" = WeakValueDictionary()
"""The memory for each set of features and limit, so that a pipeline that is planned again shares it."""
MOST_OF_ROWS = 2
"""How many times the size of all rows it takes at most, as these are in memory then."""
SAMPLES_PART = 4
"""Which part of what reading ahead may take is for the samples of the mini-batches that wait, rather than for rows."""


def together_in(stage: Datapipe) -> Together | None:
    """Return how a stage's graph samples several mini-batches at once; None if one of the two can't."""
    if not isinstance(stage, Transform) or not isinstance(stage, BeginsTogether):
        return None
    return stage.graph.together(stage.request) if device_of(stage) is None else None


def sample_together(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Several mini-batches are sampled at once: a page of a large file is read, or a rank asked, once for them."""
    # Worker processes and servers have mappings of their own, and sample there.
    in_processes = options.num_workers > 0 and not options.in_threads
    if options.window == 0 or options.servers or in_processes:
        return pipe

    def wrap(stage: Datapipe) -> Datapipe:
        if isinstance(stage, InWorkers) and isinstance(stage.datapipe, Prefetch):
            return stage.datapipe  # nothing is left for workers
        found = together_in(stage)
        if found is None:
            return stage
        window = min(options.window or MOST_SAMPLED, MOST_SAMPLED)
        if options.memory.limit:
            found = found._replace(sample_bytes=min(found.sample_bytes, options.memory.limit))
        threads = options.num_workers if found.by_thread else min(options.num_workers, available_cores())
        together = InWindows(stage, found, window, num_threads=threads, timeout_seconds=options.timeout_seconds)
        if options.num_workers == 0:
            return together
        # While a window is used, the next one is sampled.
        return Prefetch(together, window, OUTER_WAIT_FACTOR * options.timeout_seconds)

    return pipe.rewrite(wrap)


def bytes_of_caches(stage: FetchesKnownRows, sources: Sources) -> int:
    features = stage.features()
    # What stays in front of the sources where rows are read ahead: caches on GPUs.
    caches = [features[key].in_place_of_source(source).list_caches() for key, source in sources.items()]
    return sum({id(cache): cache.max_size_in_bytes for listed in caches for _, cache in listed}.values())


def reads_ahead(stage: Datapipe, options: LoaderOptions) -> bool:
    if not isinstance(stage, Transform) or not isinstance(stage, FetchesKnownRows):
        return False
    # Behind a copy to a GPU, the stages from there on run ahead with the reading.
    ahead = device_of(stage) is None or runs_ahead(stage, options.overlap_feature_fetch, default=True)
    waits_on_cpu = device_of(fetch_and_copies(stage)[0].datapipe) is None
    in_main = placement_of(stage) is Placement.MAIN
    return in_main and ahead and waits_on_cpu and bool(slow_sources(stage, options.window))


def fetch_in_windows(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Rows come from a disk or other ranks, so those of several mini-batches are read at once, each of them once."""
    readers = sum(reads_ahead(stage, options) for stage in traverse(pipe))
    if options.window == 0 or not readers:
        return pipe
    limit = options.memory.for_rows() / readers

    def wrap(stage: Datapipe) -> Datapipe:
        if not reads_ahead(stage, options):
            return stage
        assert isinstance(stage, FetchesKnownRows)
        sources = slow_sources(stage, options.window)
        size = sum(map(bytes_of_rows, sources.values()))
        # Rows are read for all ids, also for those whose rows a GPU has: a larger cache there needs fewer reads.
        # The rows of a disk are kept by the system where there is memory for all; nobody else keeps those of ranks.
        kept = size <= limit and not any(isinstance(source, RemoteFeature) for source in sources.values())
        if options.window is None and (kept or bytes_of_caches(stage, sources) > limit):
            return stage
        memory = int(min(limit, MOST_OF_ROWS * size + (1 << 20)))
        key = (options.memory, memory, stage.position, *sources, *map(id, sources.values()))
        rows = MEMORIES.get(key) or MEMORIES.setdefault(key, RowMemory(sources, memory - memory // SAMPLES_PART))
        if options.window is None and not rows.has_room():
            return stage
        return InWindows(stage, rows, options.window, memory // SAMPLES_PART // WINDOWS_IN_MEMORY)

    return pipe.rewrite(wrap)
