"""The rule about graphs on disk."""

import math

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.loader.executors import available_cores
from graphfeed.loader.rules import OUTER_WAIT_FACTOR, LoaderOptions, device_of
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.sampled_together import SampledTogether, SamplesHops
from graphfeed.storage.graph import HasFiles

SAMPLES_SHARE = 4
"""Which part of free memory is for mini-batches that are sampled together, rather than for pages."""
MOST_MINIBATCHES = 32
"""How many mini-batches are sampled together at most. 32 of half a million edges each want 98 % of the pages of a graph
of 400 million edges in their last hop, and 61 % of them in the hop before."""


def room_for(stage: Datapipe) -> float:
    """Return how many bytes of samples there is memory for, to sample several together; 0 for a stage that can't."""
    if not isinstance(stage, Transform) or not isinstance(stage, SamplesHops) or not stage.samples_hops:
        return 0
    graph, request = stage.graph, stage.request
    is_merged = request.deduplicate and not request.only_new and not graph.edge_types
    if not is_merged or device_of(stage) is not None or not isinstance(graph, HasFiles):
        return 0
    files = graph.files_read()
    return files.free / SAMPLES_SHARE if files.num_bytes > files.free else 0


def sample_together(pipe: Datapipe, options: LoaderOptions) -> Datapipe:
    """Graphs on disk exceed the memory, so several mini-batches are sampled at once: a page is read once for them."""
    # Worker processes and servers have mappings of their own, and sample there. Trials need mini-batches one by one.
    in_processes = options.num_workers > 0 and not options.in_threads
    if options.window == 0 or options.servers or in_processes or options.memory.tunes:
        return pipe

    def wrap(stage: Datapipe) -> Datapipe:
        if isinstance(stage, InWorkers) and isinstance(stage.datapipe, Prefetch):
            return stage.datapipe  # nothing is left for workers
        room = min(room_for(stage), options.memory.limit or math.inf)
        if not room:
            return stage
        window = min(options.window or MOST_MINIBATCHES, MOST_MINIBATCHES)
        if options.num_workers == 0:
            return SampledTogether(stage, window, room)
        threads = min(options.num_workers, available_cores())
        together = SampledTogether(stage, window, room, threads, options.timeout_seconds)
        # While a window is used, the next one is sampled.
        return Prefetch(together, window, OUTER_WAIT_FACTOR * options.timeout_seconds)

    return pipe.rewrite(wrap)
