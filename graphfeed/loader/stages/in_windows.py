"""Sampling or reading rows for several mini-batches at once, which saves requests to other ranks and disk reads."""

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from dataclasses import field
from functools import partial
from itertools import chain, islice, takewhile
from time import perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple, TypeAlias, cast

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


class SampledItem(NamedTuple):
    """A mini-batch of a window, and the hops that were sampled for it."""

    minibatch: Any
    version: tuple[object, ...]
    """The versions of the graphs when the stages before the sampler returned it."""
    hops: Any = None
    """What `sample_window` returned for it; None if it is sampled alone."""
    wall: int = 0
    cpu: int = 0
    """Its share of the time of sampling, in nanoseconds."""


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
        run, observer, sampler = current_run(self), OBSERVER.get(), cast("Any", self.datapipe)
        source, before = transforms_before(sampler)
        graphs = self.graphs_in_memory()
        threads, largest, alone = ThreadExecutor(self.num_threads, "graphfeed-sample"), [1], 0

        def attach(minibatch: Any) -> Any:
            if run.record is not None and not self.num_threads:
                run.record.recorder.add_time(pending.wall, pending.cpu)
            return sampler.attach_hops(minibatch, pending.hops)

        try:
            with closing(self.windows_sampled(run, threads, graphs, largest)) as taken:
                for window in taken:
                    pending: SampledItem = window.take()
                    minibatch, stages = pending.minibatch, (sampler,)
                    # A loop without workers may have edited a graph since.
                    if not is_current(pending, versions_of(graphs)):
                        largest[0] = max(largest[0], int(self.window_bytes))  # so that fewer wait for the next edit
                        if isinstance(source, Shardable):
                            minibatch, stages = source.minibatch(minibatch.key.index), (*before, sampler)
                    elif pending.hops is not None:
                        yield apply_stages(stages, minibatch, observer, attach)
                        continue
                    result = apply_stages(stages, minibatch, observer)
                    if alone % MEASURED == 0:
                        largest[0] = count_bytes(getattr(result, "sampled_subgraphs", None))
                    alone += 1
                    yield result
        except CancelledError:
            if not run.cancelled:
                raise
        finally:
            threads.shutdown(cancel_futures=True)

    def graphs_in_memory(self) -> list[FusedCSCSamplingGraph]:
        """Return the graphs that a loop may edit while mini-batches wait; none with threads or on other ranks."""
        if self.num_threads or not isinstance(cast("Any", self.datapipe).graph, FusedCSCSamplingGraph):
            return []
        return [graph for graph in graphs_before(self) if isinstance(graph, FusedCSCSamplingGraph)]

    def windows_sampled(
        self, run: RunContext, threads: ThreadExecutor, graphs: list[FusedCSCSamplingGraph], largest: list[int]
    ) -> Generator[Window, None, None]:
        """Yield windows of mini-batches, each with what `sample_window` returned for it, or None if it is alone.

        `largest` holds the size of the largest mini-batch of the last window, or of the last one that was alone.
        """
        sampler, arrivals = cast("Any", self.datapipe), Arrivals(run)

        def submit(minibatches: list[Any]) -> Callable[[], Any]:
            future: Future[Any] = Future()
            future.add_done_callback(arrivals.record)
            threads.complete(future, sampler.sample_window, minibatches)
            return partial(run.wait, self, "reader", arrivals.result, future, self.timeout_seconds)

        def fits(window: Window) -> bool:
            return (len(window) + 1) * largest[0] * PARTS <= self.window_bytes

        def begin(window: Window) -> Callable[[], object]:
            items = [own for own in window if not isinstance(own, Failure)]
            minibatches, now = [own.minibatch for own in items], versions_of(graphs)
            current = all(is_current(own, now) for own in items)
            if not self.num_threads and (len(items) == 1 or not current):
                # The sampler needs less time for one alone; outdated ones are built again from their items.
                return partial(finish, window, lambda: [None] * len(items))
            sample = submit(minibatches) if self.num_threads else partial(sampler.sample_window, minibatches)
            return partial(finish, window, sample)

        def finish(window: Window, sample: Callable[[], Sequence[Any]]) -> None:
            wall, cpu = perf_counter_ns(), thread_time_ns()
            found = sample()
            if run.cancelled:
                raise CancelledError
            if not found:
                return
            wall, cpu = (perf_counter_ns() - wall) // len(found), (thread_time_ns() - cpu) // len(found)
            if found[-1] is not None:
                largest[0] = max(map(count_bytes, found[::MEASURED]))
            for number, hops in enumerate(found):
                window[number] = window[number]._replace(hops=hops, wall=wall, cpu=cpu)

        def collect() -> Generator[Any, None, None]:
            with closing(with_failure(sampler.inputs[0])) as minibatches:
                for own in minibatches:
                    yield own if isinstance(own, Failure) else SampledItem(own, versions_of(graphs))

        return windows(collect(), self.num_threads, fits, begin, self.window)

    def __len__(self) -> int:
        return length(self.datapipe)


def is_current(item: SampledItem, version: tuple[object, ...]) -> bool:
    return all(map(operator.is_, item.version, version))


def versions_of(graphs: Iterable[FusedCSCSamplingGraph]) -> tuple[object, ...]:
    return tuple(chain.from_iterable(graph.version for graph in graphs))
