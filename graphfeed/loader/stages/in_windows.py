"""Sampling or reading rows for several mini-batches at once, which saves requests to other ranks and disk reads."""

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from time import perf_counter_ns, thread_time_ns
from typing import Any, TypeAlias, cast

import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, Shardable, Transform, apply_stages, length
from graphfeed.datapipes.pipeline import OBSERVER, graphs_before
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.run import Arrivals, RunContext, current_run
from graphfeed.loader.stages.in_workers import chain_of, detach, transforms_before, with_failure
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import Feature, FeatureStore, FusedCSCSamplingGraph
from graphfeed.storage.features import (
    PlannedRows,
    ReadsAhead,
    RemoteFeature,
    RowMemory,
    StoreKey,
    bytes_of_rows,
    cancel_reads,
)
from graphfeed.storage.memory import count_bytes

Sources: TypeAlias = dict[StoreKey, ReadsAhead]

MOST_MINIBATCHES = 128
"""Maximum number of mini-batches of a window, even if there is memory for more. With 64, a pass over the rows of
ogbn-papers100M already reads 98 % of their pages."""
WINDOWS_IN_MEMORY = 2
"""Number of windows whose samples are in memory: the one being read, and the ones before and after it. The latter is
sampled while the former is used."""
GROWTH = 2
"""Maximum size of a window as a multiple of the previous one. The first window has a single mini-batch, so that it is
ready soon."""
MEASURED = 8
"""One in this many mini-batches that were sampled together is measured, which takes as long as attaching its hops."""
SAMPLES_PART = 4
"""One in this many bytes of the memory for reading ahead is for the samples of waiting mini-batches, not for rows."""
PARTS = 3
"""Estimated memory of a mini-batch, until it is used, as a multiple of the size of its samples."""


def slow_sources(stage: Datapipe, window: int | None) -> Sources:
    """Return the slow features whose rows a stage may read ahead, by key; none if `window` is 0."""
    if not isinstance(stage, FeatureFetcher) or not stage.feature_store.reads_plainly():
        return {}
    features: dict[Any, object] = {} if window == 0 else dict(stage.features())  # or objects with a Feature's methods
    sources: Sources = {}
    for key, feature in features.items():
        source = feature.slow_source() if isinstance(feature, Feature) and feature.reads_plainly() else None
        # If an owner may update remote rows, rows that were read ahead may be out of date, so `window` must be given.
        may_change = window is None and isinstance(source, RemoteFeature) and not source.is_constant()
        if source is not None and source.reads_plainly() and bytes_of_rows(source) and not may_change:
            sources[key] = source
    return sources


class Window(deque[Any]):
    """Mini-batches that are read or sampled together; a `Failure` comes last."""

    def take(self) -> Any:
        """Remove and return the first mini-batch. A failure is raised in its place."""
        minibatch = self.popleft()
        if isinstance(minibatch, Failure):
            raise minibatch.error
        return minibatch


def windows(
    source: Generator[Any, None, None],
    depth: int,
    fits: Callable[[Window], bool],
    begin: Callable[[Window], Callable[[], object]],
    most: int,
    least: Callable[[], int] = int,
) -> Generator[Window, None, None]:
    """Yield the window in use, from which the caller takes a mini-batch each time, while others are prepared.

    ```text
    mini-batches   1 | 2 3 | 4 5 6 7 | ...       a window is at most twice as large as the one before
    window n - 1   is used, one by one
    window n       its rows are read, or its hops sampled
    window n + 1   is collected meanwhile
    ```

    Args:
        source: The mini-batches; a `Failure` comes last.
        depth: Number of windows, after the one in use, whose work has begun. With 0, the work for a window begins when
            the one before is used up.
        fits: Returns whether there is memory for one more mini-batch in a window. The first one is always taken.
        begin: Begins the work for a window, which may be empty, and returns a function that waits for it.
        most: Maximum number of mini-batches in a window.
        least: Returns the size up to which a window may be more than twice as large as the one before.
    """
    begun, following = deque[tuple[Window, Callable[[], object]]](), Window()

    def extend(size: int) -> None:
        while len(following) < size and (not following or fits(following)):
            if (minibatch := next(source, None)) is None:
                return
            following.append(minibatch)

    def begin_following() -> int:
        nonlocal following
        begun.append((following, begin(following)))
        following = Window()
        return len(begun[-1][0])

    with closing(source):
        extend(1)
        begin_following()
        while begun:
            ready, finish = begun.popleft()
            finish()
            if not ready:
                return
            last = len(ready)
            while len(begun) < depth:
                extend(min(GROWTH * last, most))
                last = begin_following()
            size = min(max(GROWTH * last, least()), most)
            while ready:
                yield ready
                # Collected evenly while this window is used, after the yield, so that no mini-batch waits for it.
                extend(len(following) + -(-max(0, size - len(following)) // (len(ready) + 1)))
            if not begun:
                begin_following()


class ReadAhead(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Reads the rows that a fetch needs for windows of mini-batches, and runs the fetch on them, one by one.

    The rows of a window are read together, by ascending id and without duplicates, while the mini-batches of the
    previous window are used, and those of the next one are sampled. Samples and rows are released once they are used,
    so memory holds the samples of two windows, and the rows of little more than one.
    """

    datapipe: Datapipe
    """The fetch."""
    sources: Sources = field(repr=False)
    """The features whose rows are read ahead, by key."""
    max_size_in_bytes: int = field(repr=False)
    """Maximum memory of the rows, and of the samples that wait for them."""
    window: int | None = None
    """Maximum number of mini-batches in a window; None allows as many as fit into memory."""

    def may_run_in_threads(self) -> bool:
        """Return False, because rows are read by a single thread."""
        return False

    may_run_in_processes = may_run_in_threads

    def new_memory(self) -> RowMemory:
        """Return memory for the rows, which is allocated when it is used."""
        return RowMemory(self.sources, self.max_size_in_bytes - self.max_size_in_bytes // SAMPLES_PART)

    def __iter__(self) -> Iterator[Any]:
        run, stages, key = current_run(self), fetch_and_copies(self.datapipe), (self.position, *self.sources)
        memory = run.memories.get(key)
        # Rows stay from run to run. Another plan of the same loader may have other features.
        if memory is None or memory.features != self.sources:
            memory = run.memories[key] = self.new_memory()
        with memory.acquire() as rows:
            run.when_cancelled(partial(cancel_reads, rows))
            source = add_rows(self.datapipe, rows, stages[0].datapipe)
            with closing(self.windows_read(source, run, memory, rows)) as taken:
                # These stages process one mini-batch at a time, so that rows stay in memory until they are copied.
                fetch: Any = detach(stages[0].datapipe, stages, with_rows(taken, rows))[-1]
                yield from fetch.changed(feature_store=ReadAheadStore(fetch.feature_store, rows))

    def windows_read(
        self, source: Generator[Any, None, None], run: RunContext, memory: RowMemory, rows: dict[StoreKey, PlannedRows]
    ) -> Generator[Window, None, None]:
        """Yield windows whose rows are in memory."""
        sample_bytes = self.max_size_in_bytes // SAMPLES_PART // WINDOWS_IN_MEMORY

        def fits(window: Window) -> bool:
            num_bytes = sum(own[-1] for own in window if not isinstance(own, Failure))
            return num_bytes < sample_bytes and all(own.has_room() for own in rows.values())

        def begin(window: Window) -> Callable[[], object]:
            for own in rows.values():
                own.start_window_read()
            return partial(run.wait, self, "reader", finish, len(window))

        def finish(size: int) -> None:
            if not all(own.is_read() for own in rows.values()):
                # Larger windows are read faster, so the next ones have at least as many mini-batches.
                memory.late_window = max(memory.late_window, size)
            for own in rows.values():
                own.wait()

        return windows(source, 1, fits, begin, self.window or MOST_MINIBATCHES, lambda: memory.late_window)

    def __len__(self) -> int:
        return length(self.datapipe)


def fetch_and_copies(fetch: Datapipe) -> tuple[Transform, ...]:
    # If the stages before a fetch copy to a GPU, mini-batches wait for their rows on the CPU, before the copy.
    before = takewhile(lambda stage: stage.traits.keeps_values, islice(chain_of(fetch), 1, None))
    assert isinstance(fetch, Transform)
    return (*reversed(list(before)), fetch)


def add_rows(fetch: Any, rows: dict[StoreKey, PlannedRows], source: Datapipe) -> Generator[Any, None, None]:
    """Add the rows of mini-batches to a window; yield each mini-batch with the ids that it needs, and its size."""
    with closing(with_failure(source)) as minibatches:
        for minibatch in minibatches:
            if isinstance(minibatch, Failure):
                yield minibatch
                return
            wanted: dict[StoreKey, list[torch.Tensor]] = {key: [] for key in rows}
            # The fetch raises an error for invalid ids.
            with suppress(Exception):
                for key, ids in fetch.wanted_rows(minibatch):
                    wanted.setdefault(key, []).append(ids)
            for key, own in rows.items():
                with suppress(Exception):
                    own.add_minibatch(wanted[key])
            yield minibatch, wanted, count_bytes(minibatch)


def with_rows(taken: Iterable[Window], rows: dict[StoreKey, PlannedRows]) -> Iterator[Any]:
    """Yield mini-batches whose rows stay in memory until the next one is taken."""
    for window in taken:
        minibatch, wanted, _ = window.take()
        for key, own in rows.items():
            own.expect(wanted[key])
        yield minibatch
        for own in rows.values():
            own.mark_used()


class ReadAheadStore(FeatureStore):
    """A feature store that reads the rows of some features from memory, where they were read ahead."""

    def __init__(self, store: FeatureStore, rows: dict[StoreKey, PlannedRows]) -> None:
        self._store = store
        self._rows = rows

    def __getitem__(self, feature_key: StoreKey) -> Feature:
        rows = self._rows.get(feature_key)
        feature: object = self._store[feature_key]
        # An update may have replaced the source.
        if rows is None or not isinstance(feature, Feature) or feature.slow_source() is not rows.feature:
            return self._store[feature_key]
        return feature.in_place_of_source(rows)

    def __contains__(self, feature_key: StoreKey) -> bool:
        return feature_key in self._store

    def keys(self) -> Iterable[StoreKey]:
        return self._store.keys()


@dataclass(eq=False, slots=True)
class SampledItem:
    """A mini-batch of a window, and the hops that were sampled for it."""

    minibatch: Any
    version: tuple[object, ...]
    """The versions of the graphs when the stages before the sampler returned it."""
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
        # The graphs that the loop may edit while mini-batches wait; none with threads or on other ranks.
        may_change = self.threads is None and isinstance(self.sampler.graph, FusedCSCSamplingGraph)
        before = graphs_before(stage) if may_change else []
        self.graphs = [graph for graph in before if isinstance(graph, FusedCSCSamplingGraph)]
        self.largest = 1
        """Size of the largest mini-batch that was measured in the latest window, or of the latest one sampled alone."""
        self.num_alone = 0
        """Number of mini-batches that were sampled alone."""

    def minibatches(self) -> Generator[Any, None, None]:
        """Yield the mini-batches with their hops."""
        window, depth = self.stage.window, self.stage.num_threads
        try:
            with closing(windows(self.collect(), depth, self.fits, self.begin, window)) as taken:
                for ready in taken:
                    yield self.with_hops(ready.take())
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
                yield own if isinstance(own, Failure) else SampledItem(own, versions_of(self.graphs))

    def fits(self, window: Window) -> bool:
        """Return whether there is memory for one more mini-batch in a window."""
        return (len(window) + 1) * self.largest * PARTS <= self.stage.window_bytes

    def begin(self, window: Window) -> Callable[[], object]:
        """Begin to sample a window, and return a function that waits until it is sampled."""
        items = [own for own in window if not isinstance(own, Failure)]
        minibatches, now = [item.minibatch for item in items], versions_of(self.graphs)
        if self.threads is not None:
            future: Future[Any] = Future()
            future.add_done_callback(self.arrivals.record)
            self.threads.complete(future, self.sampler.sample_window, minibatches)
            result = partial(self.arrivals.result, future, self.stage.timeout_seconds)
            return partial(self.finish, items, partial(self.run.wait, self.stage, "reader", result))
        # The sampler needs less time for one alone; outdated ones are built again from their items.
        if len(items) < 2 or not all(is_current(item, now) for item in items):
            return lambda: None
        return partial(self.finish, items, partial(self.sampler.sample_window, minibatches))

    def finish(self, items: Sequence[SampledItem], sample: Callable[[], Sequence[Any]]) -> None:
        """Keep what `sample` returns for the mini-batches of a window."""
        wall, cpu, count = perf_counter_ns(), thread_time_ns(), max(len(items), 1)
        found = sample()
        if self.run.cancelled:
            raise CancelledError
        spent = (perf_counter_ns() - wall) // count, (thread_time_ns() - cpu) // count
        for item, hops in zip(items, found, strict=True):
            item.hops, item.spent = hops, spent
        self.largest = max(map(count_bytes, found[::MEASURED]), default=self.largest)

    def with_hops(self, item: SampledItem) -> Any:
        """Return a mini-batch with its hops, which are sampled now unless they were with those of its window."""
        minibatch, stages = item.minibatch, (self.sampler,)
        # A loop without workers may have edited a graph since.
        if not is_current(item, versions_of(self.graphs)):
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


def is_current(item: SampledItem, version: tuple[object, ...]) -> bool:
    return all(map(operator.is_, item.version, version))


def versions_of(graphs: Iterable[FusedCSCSamplingGraph]) -> tuple[object, ...]:
    return tuple(chain.from_iterable(graph.version for graph in graphs))
