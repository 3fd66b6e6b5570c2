"""The rule about graphs that are sampled for several mini-batches at once."""

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.loader.executors import available_cores
from graphfeed.loader.rules import OUTER_WAIT_FACTOR, LoaderOptions, device_of
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.sampled_together import SampledTogether, SamplesHops
from graphfeed.storage.graph import Together

MOST_MINIBATCHES = 32
"""How many mini-batches are sampled together at most. 32 of half a million edges each want 98 % of the pages of a graph
of 400 million edges in their last hop, and 61 % of them in the hop before."""


def together_in(stage: Datapipe) -> Together | None:
    """Return how a stage's graph samples several mini-batches at once; None if one of the two can't."""
    if not isinstance(stage, Transform) or not isinstance(stage, SamplesHops) or not stage.samples_hops:
        return None
    return stage.graph.together(stage.request) if device_of(stage) is None else None


def sample_together(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Several mini-batches are sampled at once: a page of a large file is read, or a rank asked, once for them."""
    # Worker processes and servers have mappings of their own, and sample there. Trials need mini-batches one by one.
    in_processes = options.num_workers > 0 and not options.in_threads
    if options.window == 0 or options.servers or in_processes or options.memory.tunes:
        return pipe

    def wrap(stage: Datapipe) -> Datapipe:
        if isinstance(stage, InWorkers) and isinstance(stage.datapipe, Prefetch):
            return stage.datapipe  # nothing is left for workers
        found = together_in(stage)
        if found is None:
            return stage
        window = min(options.window or MOST_MINIBATCHES, MOST_MINIBATCHES)
        if options.memory.limit:
            found = found._replace(sample_bytes=min(found.sample_bytes, options.memory.limit))
        if options.num_workers == 0:
            return SampledTogether(stage, window, found)
        threads = options.num_workers if found.by_thread else min(options.num_workers, available_cores())
        together = SampledTogether(stage, window, found, threads, options.timeout_seconds)
        # While a window is used, the next one is sampled.
        return Prefetch(together, window, OUTER_WAIT_FACTOR * options.timeout_seconds)

    return pipe.rewrite(wrap)
