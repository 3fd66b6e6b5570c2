"""Rules for windows: hops on other ranks, and rows on disk or on other ranks, are read for several mini-batches."""

from typing import Any, cast

from graphfeed.datapipes import Datapipe, FeatureFetcher, Shardable, Transform
from graphfeed.datapipes.pipeline import Placement, traverse
from graphfeed.loader.placement_rules import placement_of
from graphfeed.loader.rules import OUTER_WAIT_FACTOR, LoaderOptions, device_of, fetches_ahead
from graphfeed.loader.stages.in_windows import ReadAhead, Sources, fetch_and_copies, slow_sources
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.sample_together import SampleTogether
from graphfeed.storage.datasets import is_plain
from graphfeed.storage.features import RemoteFeature, bytes_of_rows

MOST_SAMPLED = 32
"""Maximum number of mini-batches sampled together."""
MOST_OF_ROWS = 2
"""Maximum memory of a window as a multiple of the size of all rows; more is useless, as all of them are in memory."""
SAMPLING = {"__call__", "sample_subgraphs", "sample_hops", "sample_window"}
"""Methods that sample. A sampler is sampled together if the first class to define one defines `sample_window`."""


def window_bytes_of(stage: Any) -> float | None:
    """Return the maximum size of the samples of a stage's windows; None if it or its graph has no windows."""
    owner = next((cls for cls in type(stage).__mro__ if SAMPLING & vars(cls).keys()), object)
    if "sample_window" not in vars(owner) or device_of(stage) is not None:
        return None
    found: float | None = stage.graph.way(stage.request).window_bytes
    return found


def may_run_ahead(pipe: Datapipe) -> bool:
    """Return whether a stage and those before it may run ahead of a loop, even without workers.

    They run no function of the user, and a class of the user only if it says that it isn't seeded. They fetch no rows
    that the loop may update, and each mini-batch is known by its index, so that none is awaited.
    """
    traits = pipe.traits
    if traits.seeded or traits.awaits_steps or traits.runs_in is not Placement.AUTO or isinstance(pipe, FeatureFetcher):
        return False
    if isinstance(pipe, Shardable):
        items, make = getattr(pipe, "item_set", None), getattr(pipe, "minibatcher", None)
        return make is getattr(type(pipe), "minibatcher", None) and (items is None or is_plain(items))
    return not traits.own_loop and all(map(may_run_ahead, pipe.inputs))


def sample_together(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Several mini-batches are sampled together: one request to a rank, or one call in memory, serves all of them."""
    # Worker processes and servers sample one mini-batch at a time.
    in_processes = options.num_workers > 0 and not options.in_threads
    if options.window in (0, 1) or options.servers or in_processes:
        return pipe

    def wrap(stage: Datapipe) -> Datapipe:
        if isinstance(stage, InWorkers) and isinstance(stage.datapipe, Prefetch):
            return stage.datapipe  # no stage remains for workers
        window_bytes = window_bytes_of(stage)
        if window_bytes is None:
            return stage
        # In memory, it saves Python calls. Workers would have to be sent the mini-batches.
        in_memory = cast("Any", stage).graph.way(cast("Any", stage).request).at_once
        if in_memory and (options.num_workers > 0 or not may_run_ahead(stage)):
            return stage
        window = min(options.window or MOST_SAMPLED, MOST_SAMPLED)
        if options.memory.limit:
            window_bytes = min(window_bytes, options.memory.limit)
        together = SampleTogether(stage, window, window_bytes, options.num_workers, options.timeout_seconds)
        if options.num_workers == 0:
            return together
        # While a window is used, the next one is sampled.
        return Prefetch(together, window, OUTER_WAIT_FACTOR * options.timeout_seconds)

    return pipe.rewrite(wrap)


def bytes_of_caches(stage: Any, sources: Sources) -> int:
    features = stage.features()
    # Reading ahead replaces all caches except those on GPUs.
    caches = [features[key].in_place_of_source(source).list_caches() for key, source in sources.items()]
    return sum({id(cache): cache.max_size_in_bytes for listed in caches for _, cache in listed}.values())


def sources_ahead(stage: Datapipe, options: LoaderOptions) -> Sources:
    """Return the features whose rows are read ahead for a stage, by key."""
    if not isinstance(stage, Transform) or not (sources := slow_sources(stage, options.window)):
        return {}
    # After a copy to a GPU, the stages after it run ahead together with the reading.
    ahead = device_of(stage) is None or fetches_ahead(stage, options)
    waits_on_cpu = device_of(fetch_and_copies(stage)[0].datapipe) is None
    return sources if ahead and waits_on_cpu and placement_of(stage) is Placement.MAIN else {}


def fetch_in_windows(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Rows come from a disk or other ranks, so those of several mini-batches are read together, without duplicates."""
    readers = sum(bool(sources_ahead(stage, options)) for stage in traverse(pipe))
    if not readers:
        return pipe
    limit = options.memory.for_rows() / readers

    def wrap(stage: Datapipe) -> Datapipe:
        if not (sources := sources_ahead(stage, options)):
            return stage
        size = sum(map(bytes_of_rows, sources.values()))
        # Rows are read for all ids, even those that a GPU caches, so a cache larger than the limit needs fewer reads.
        # The page cache keeps the rows of a disk if all fit into memory, but not the rows of other ranks.
        kept = size <= limit and not any(isinstance(source, RemoteFeature) for source in sources.values())
        if options.window is None and (kept or bytes_of_caches(stage, sources) > limit):
            return stage
        memory = int(min(limit, MOST_OF_ROWS * size + (1 << 20)))
        ahead = ReadAhead(stage, sources, memory, options.window)
        return stage if options.window is None and not ahead.new_memory().has_room() else ahead

    return pipe.rewrite(wrap)
