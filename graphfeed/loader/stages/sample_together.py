"""Sampling several mini-batches at once, which saves requests to other ranks, and calls if they are small."""

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import Any, cast

from graphfeed.datapipes import Datapipe, Shardable, apply_stages, length
from graphfeed.datapipes.pipeline import OBSERVER, graphs_before
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.run import Arrivals, current_run
from graphfeed.loader.stages.in_windows import Window, windows
from graphfeed.loader.stages.in_workers import transforms_before, with_failure
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import FusedCSCSamplingGraph
from graphfeed.storage.memory import count_bytes

MEASURED = 8
"""One in this many mini-batches that were sampled together is measured, which takes as long as attaching its hops."""
PARTS = 3
"""Estimated memory of a mini-batch, until it is used, as a multiple of the size of its samples."""


@dataclass(eq=False, slots=True)
class SampledItem:
    """A mini-batch of a window, and the hops that were sampled for it."""

    minibatch: Any
    num_edits: int
    """`SamplingRun.num_edits` when the stages before the sampler returned it."""
    hops: Any = None
    """What `sample_window` returned for it; None if it is sampled alone."""
    spent: tuple[int, int] = 0, 0
    """Its share of the time of sampling, and of the CPU's time, in nanoseconds."""


class SampleTogether(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Samples windows of mini-batches, all mini-batches of a window at once, and yields them in order.

    A partitioned graph sends each other rank one request per hop. Each thread samples its own window. A graph in memory
    samples a window in one call. Mini-batches for which there is only memory for one at a time are sampled alone.
    """

    datapipe: Datapipe
    """The sampler, which has `sample_window` and `attach_hops` (see `NeighborSampler`)."""
    window: int
    """Maximum number of mini-batches in a window."""
    window_bytes: float = field(repr=False)
    """Maximum size of the samples of a window."""
    num_threads: int = field(default=0, repr=False)
    """Number of sampling threads, in addition to the thread that iterates."""
    timeout_seconds: float = field(default=600.0, repr=False)

    def __iter__(self) -> Iterator[Any]:
        return SamplingRun(self).minibatches()

    def __len__(self) -> int:
        return length(self.datapipe)


class SamplingRun:
    """One iteration of a `SampleTogether`."""

    def __init__(self, stage: SampleTogether) -> None:
        self.stage, self.sampler, self.run = stage, cast("Any", stage.datapipe), current_run(stage)
        self.observer, self.arrivals = OBSERVER.get(), Arrivals(self.run)
        self.threads = ThreadExecutor(stage.num_threads, "graphfeed-sample") if stage.num_threads else None
        in_memory = self.threads is None and isinstance(self.sampler.graph, FusedCSCSamplingGraph)
        before = graphs_before(stage) if in_memory else []
        self.graphs = [graph for graph in before if isinstance(graph, FusedCSCSamplingGraph)]
        """The graphs that the loop may edit while mini-batches wait; none with threads or on other ranks."""
        self.version, self.num_edits = self.read_version(), 0
        """The version of the graphs, and the number of changes that were found when the loop continued."""
        self.largest = 1
        """Size of the largest mini-batch that was measured in the latest window, or of the latest one sampled alone."""
        self.num_alone = 0
        """Number of mini-batches that were sampled alone."""

    def read_version(self) -> list[object]:
        """Return objects that are others if a graph was edited."""
        return [own for graph in self.graphs for own in graph.version]

    def minibatches(self) -> Generator[Any, None, None]:
        """Yield the mini-batches with their hops."""
        window, depth = self.stage.window, self.stage.num_threads
        try:
            with closing(windows(self.collect(), depth, self.fits, self.begin, window)) as taken:
                for ready in taken:
                    yield self.with_hops(ready.take())
                    version = self.read_version()
                    if not all(map(operator.is_, version, self.version)):
                        self.version, self.num_edits = version, self.num_edits + 1
        except CancelledError:
            if not self.run.cancelled:
                raise
        finally:
            if self.threads is not None:
                self.threads.shutdown(cancel_futures=True)

    def collect(self) -> Generator[Any, None, None]:
        """Yield the mini-batches to sample; a `Failure` comes last."""
        with closing(with_failure(self.sampler.datapipe)) as minibatches:
            for own in minibatches:
                yield own if isinstance(own, Failure) else SampledItem(own, self.num_edits)

    def fits(self, window: Window) -> bool:
        """Return whether there is memory for one more mini-batch in a window."""
        return (len(window) + 1) * self.largest * PARTS <= self.stage.window_bytes

    def begin(self, window: Window) -> Callable[[], object]:
        """Begin to sample a window, and return a function that waits until it is sampled."""
        items = [own for own in window if not isinstance(own, Failure)]
        # The sampler needs less time for one alone; outdated ones are built again from their items.
        is_alone = len(items) == 1 and self.threads is None
        if not items or is_alone or items[0].num_edits < self.num_edits:
            return lambda: None
        minibatches = [item.minibatch for item in items]
        sample: Callable[[], Sequence[Any]] = partial(self.sampler.sample_window, minibatches)
        if self.threads is not None:
            future: Future[Any] = Future()
            future.add_done_callback(self.arrivals.record)
            self.threads.complete(future, sample)
            result = partial(self.arrivals.result, future, self.stage.timeout_seconds)
            sample = partial(self.run.wait, self.stage, "reader", result)
        return partial(self.finish, items, sample)

    def finish(self, items: Sequence[SampledItem], sample: Callable[[], Sequence[Any]]) -> None:
        """Store the hops of the mini-batches of a window, which `sample` returns."""
        wall, cpu = perf_counter_ns(), thread_time_ns()
        found = sample()
        if self.run.cancelled:
            raise CancelledError
        spent = (perf_counter_ns() - wall) // len(items), (thread_time_ns() - cpu) // len(items)
        for item, hops in zip(items, found, strict=True):
            item.hops, item.spent = hops, spent
        self.largest = max(map(count_bytes, found[::MEASURED]))

    def with_hops(self, item: SampledItem) -> Any:
        """Return a mini-batch with its hops, which are sampled now unless they were with those of its window."""
        minibatch, stages = item.minibatch, (self.sampler,)
        if item.num_edits < self.num_edits:
            # It may depend on a graph that was edited since.
            self.largest = max(self.largest, int(self.stage.window_bytes))  # so that fewer wait for the next edit
            source, before = transforms_before(self.sampler)
            if isinstance(source, Shardable):
                minibatch, stages = source.minibatch(minibatch.key.index), (*before, self.sampler)
        elif item.hops is not None:
            return apply_stages(stages, minibatch, self.observer, partial(self.attach, item))
        result = apply_stages(stages, minibatch, self.observer)
        if self.num_alone % MEASURED == 0:
            self.largest = count_bytes(getattr(result, "sampled_subgraphs", None))
        self.num_alone += 1
        return result

    def attach(self, item: SampledItem, minibatch: Any) -> Any:
        if self.run.record is not None and self.threads is None:
            self.run.record.recorder.add_time(*item.spent)
        return self.sampler.attach_hops(minibatch, item.hops)
