"""Sampling and reading rows for several mini-batches at once, which saves disk reads and requests to other ranks."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from graphfeed.datapipes import Datapipe, Transform, apply_stages, length
from graphfeed.datapipes.pipeline import OBSERVER
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.run import Arrivals, RunContext, current_run
from graphfeed.loader.stages.in_workers import chain_of, detach, with_failure
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.ops.rows import Each
from graphfeed.storage import Feature, FeatureStore, SamplingGraph
from graphfeed.storage.features import PlannedRows, ReadsAhead, RemoteFeature, RowMemory, StoreKey, bytes_of_rows
from graphfeed.storage.graph import SamplingRequest, Together
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
PARTS = 3
"""Estimated memory of a mini-batch, until it is used, as a multiple of the size of its samples."""


@runtime_checkable
class WindowSampler(Protocol):
    """A sampler that samples several mini-batches together, and completes each of them separately."""

    datapipe: Datapipe
    graph: SamplingGraph
    request: SamplingRequest

    def sample_window(self, minibatches: Sequence[Any], each: Each = map) -> Sequence[Any]:
        """Sample mini-batches; return a result for each, from which `attach_hops` completes it or raises its error."""

    def attach_hops(self, minibatch: Any, pending: Any) -> Any:
        """Return a mini-batch with its samples."""


@runtime_checkable
class FetchesKnownRows(Protocol):
    """A transform that reads features, and knows in advance which rows a mini-batch needs."""

    datapipe: Datapipe
    feature_store: FeatureStore

    def features(self) -> dict[StoreKey, Feature]:
        """Return the features that the stage reads, by key."""

    def wanted_rows(self, minibatch: Any) -> Iterable[tuple[StoreKey, torch.Tensor]]:
        """Yield the key of each feature that a mini-batch gets, and the row ids."""

    def changed(self, **fields: Any) -> Any:
        """Return a copy with other values of some fields."""


def slow_sources(stage: FetchesKnownRows, window: int | None) -> Sources:
    """Return the slow features whose rows a stage may read ahead, by key."""
    if type(stage.feature_store).read is not FeatureStore.read:
        return {}  # a user-defined `read` may do more than read the feature
    features: dict[Any, object] = dict(stage.features())  # including objects that only have a Feature's methods
    sources = {
        key: feature.slow_source()
        for key, feature in features.items()
        if isinstance(feature, Feature) and feature.reads_plainly()
    }
    return {
        key: source
        for key, source in sources.items()
        if source is not None
        and source.reads_plainly()
        and bytes_of_rows(source)
        # If an owner may update remote rows, rows that were read ahead may be out of date, so `window` must be given.
        and (window is not None or not isinstance(source, RemoteFeature) or source.is_constant())
    }


@dataclass(eq=False)
class Window:
    """Mini-batches that are processed together; a `Failure` comes last."""

    minibatches: deque[Any] = field(default_factory=deque)
    num_bytes: int = 0
    """Size of the mini-batches before they are finished."""
    pending: "Future[Sequence[Any]]" = field(default_factory=Future)
    """Future of the sampled hops, one entry per mini-batch."""


class InWindows(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Runs the stage before it on windows of mini-batches, and yields them in order.

    A sampler's window is sampled hop by hop, all mini-batches at once. An on-disk graph reads each page once per hop:
    with 616 MB in 550 MB of memory, two threads produce mini-batches of 1,024 seeds and 170,000 edges 1.5 times as fast
    as separate sampling. Mini-batches of 128 seeds gain nothing, because a window must access most pages. A partitioned
    graph sends each other rank one request per hop, and further windows are sampled while it waits.

    The rows that a fetch needs for a window are read together, by ascending id and without duplicates, while the
    mini-batches of the previous window are used, and those of the next one are sampled. Samples and rows are released
    once they are used, so memory holds the samples of two windows, and the rows of little more than one.
    """

    datapipe: Datapipe
    memory: RowMemory | Together = field(repr=False)
    """For a fetch, the memory of its rows. For a sampler, its memory limit, and whether threads share a window."""
    window: int | None = None
    """Maximum number of mini-batches in a window; None allows as many as fit into memory."""
    sample_bytes: float = field(default=math.inf, repr=False)
    """Maximum size of the samples of a window that waits for its rows."""
    num_threads: int = field(default=0, repr=False)
    """Number of sampling threads, in addition to the thread that iterates."""
    timeout_seconds: float = field(default=600.0, repr=False)

    @property
    def max_size_in_bytes(self) -> float:
        """Maximum memory of rows and samples."""
        if isinstance(self.memory, Together):
            return self.memory.sample_bytes
        return self.memory.max_size_in_bytes + WINDOWS_IN_MEMORY * self.sample_bytes

    def may_run_in_threads(self) -> bool:
        """Return False, because rows are read by a single thread."""
        return False

    may_run_in_processes = may_run_in_threads

    def __iter__(self) -> Iterator[Any]:
        run = current_run(self)
        begin_epoch = open_hops if isinstance(self.memory, Together) else open_rows
        with begin_epoch(self, run) as work, closing(self._take_all(run, work)) as taken:
            yield from work.finish(taken)

    def _take_all(self, run: RunContext, work: "WindowRows | WindowHops") -> Generator[Any, None, None]:
        """Yield the mini-batches in the form that `work.finish` expects, as soon as their window is ready."""
        with closing(with_failure(work.source)) as source:

            def extend(window: Window, most: int) -> None:
                # A window has at least one mini-batch, even if that exceeds the memory limit.
                while len(window.minibatches) < most and (not window.minibatches or work.has_room(window)):
                    if (minibatch := next(source, None)) is None:
                        return
                    is_failure = isinstance(minibatch, Failure)
                    window.minibatches.append(minibatch if is_failure else work.add(window, minibatch))

            ready, begun, following = Window(), deque[Window](), Window()
            extend(ready, 1)
            work.submit(ready)
            while run.wait(self, "reader", work.wait, ready) and ready.minibatches:
                last = ready
                while len(begun) < work.depth:
                    extend(following, self._most_after(last))
                    work.submit(following)
                    begun.append(following)
                    last, following = following, Window()
                most = self._most_after(last, work.wanted)
                while ready.minibatches:
                    yield work.pop(ready)
                    work.mark_used()
                    # Collected evenly while this window is used, after the yield, so that no mini-batch waits for it.
                    lacking, left = max(0, most - len(following.minibatches)), len(ready.minibatches) + 1
                    extend(following, len(following.minibatches) + -(-lacking // left))
                if not begun:
                    work.submit(following)
                    begun.append(following)
                    following = Window()
                ready = begun.popleft()

    def _most_after(self, before: Window, wanted: int = 0) -> int:
        """Return the maximum size of the window after `before`: at least `wanted`, up to the limit."""
        return min(max(GROWTH * len(before.minibatches), wanted), self.window or MOST_MINIBATCHES)

    def __len__(self) -> int:
        return length(self.datapipe)


def next_minibatch(window: Window) -> Any:
    minibatch = window.minibatches.popleft()
    if isinstance(minibatch, Failure):
        raise minibatch.error
    return minibatch


@contextmanager
def open_rows(stage: InWindows, run: RunContext) -> "Iterator[WindowRows]":
    assert isinstance(stage.memory, RowMemory)
    with stage.memory.acquire() as rows:
        going = True

        def cancel() -> None:
            # After this epoch, another one may read into the same memory.
            for own in rows.values() if going and run.is_here else ():
                own.cancel()

        run.when_cancelled(cancel)
        try:
            yield WindowRows(stage, rows)
        finally:
            going = False


def fetch_and_copies(fetch: Datapipe) -> tuple[Transform, ...]:
    # If the stages before a fetch copy to a GPU, mini-batches wait for their rows on the CPU, before the copy.
    before = takewhile(lambda stage: stage.traits.keeps_values, islice(chain_of(fetch), 1, None))
    assert isinstance(fetch, Transform)
    return (*reversed(list(before)), fetch)


class WindowRows:
    """Reads the rows of one window for a fetch while another window is used."""

    depth = 1

    def __init__(self, stage: InWindows, rows: dict[StoreKey, PlannedRows]) -> None:
        self._fetch: Any = stage.datapipe
        self._stages = fetch_and_copies(stage.datapipe)
        self._rows, self._most = rows, stage.sample_bytes
        self._memory: Any = stage.memory
        self.source = self._stages[0].datapipe

    @property
    def wanted(self) -> int:
        return int(self._memory.late_window)

    def has_room(self, window: Window) -> bool:
        return window.num_bytes < self._most and all(rows.has_room() for rows in self._rows.values())

    def add(self, window: Window, minibatch: Any) -> tuple[Any, dict[StoreKey, list[torch.Tensor]]]:
        window.num_bytes += count_bytes(minibatch)
        wanted: dict[StoreKey, list[torch.Tensor]] = {key: [] for key in self._rows}
        # The fetch raises an error for invalid ids.
        with suppress(Exception):
            for key, ids in self._fetch.wanted_rows(minibatch):
                wanted.setdefault(key, []).append(ids)
        for key, rows in self._rows.items():
            with suppress(Exception):
                rows.add_minibatch(wanted[key])
        return minibatch, wanted

    def submit(self, _: Window) -> None:
        for rows in self._rows.values():
            rows.start_window_read()

    def wait(self, window: Window) -> bool:
        if not all(rows.is_read() for rows in self._rows.values()):
            # Larger windows are read faster, so the next ones have at least as many mini-batches.
            self._memory.late_window = max(self._memory.late_window, len(window.minibatches))
        for rows in self._rows.values():
            rows.wait()
        return True

    def pop(self, window: Window) -> Any:
        minibatch, wanted = next_minibatch(window)
        for key, rows in self._rows.items():
            # The rows of these ids stay in memory until the next mini-batch is taken.
            rows.expect(wanted[key])
        return minibatch

    def mark_used(self) -> None:
        for rows in self._rows.values():
            rows.mark_used()

    def finish(self, taken: Iterator[Any]) -> Iterable[Any]:
        # These stages process one mini-batch at a time, so that rows stay in memory until they are copied.
        fetch: Any = detach(self.source, self._stages, taken)[-1]
        finished: Iterable[Any] = fetch.changed(feature_store=ReadAheadStore(fetch.feature_store, self._rows))
        return finished


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


@contextmanager
def open_hops(stage: InWindows, run: RunContext) -> "Iterator[WindowHops]":
    threads = ThreadExecutor(stage.num_threads, "graphfeed-sample") if stage.num_threads else None
    try:
        yield WindowHops(stage, run, threads)
    finally:
        if threads is not None:
            threads.shutdown(cancel_futures=True)


class WindowHops:
    """Samples windows for a sampler: one window per thread, or one window at a time in all threads."""

    wanted = 0

    def __init__(self, stage: InWindows, run: RunContext, threads: ThreadExecutor | None) -> None:
        self._stage, self._run, self._threads, self._arrivals = stage, run, threads, Arrivals(run)
        self._sampler: Any = stage.datapipe
        assert isinstance(stage.memory, Together)
        self.depth = stage.num_threads if stage.memory.by_thread else 0
        (self.source,) = stage.datapipe.inputs
        self._most = stage.memory.sample_bytes / PARTS
        self._largest = 1

    def has_room(self, window: Window) -> bool:
        return (len(window.minibatches) + 1) * self._largest <= self._most

    def add(self, window: Window, minibatch: Any) -> Any:  # noqa: ARG002
        """Return the mini-batch; its size is known only after sampling."""
        return minibatch

    def submit(self, window: Window) -> None:
        minibatches = [own for own in window.minibatches if not isinstance(own, Failure)]
        window.pending.add_done_callback(self._arrivals.record)
        if self.depth and self._threads is not None:
            self._threads.complete(window.pending, self._sampler.sample_window, minibatches)
        else:
            window.pending.set_result(
                self._sampler.sample_window(minibatches, map if self._threads is None else self._each)
            )

    def _each(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        assert self._threads is not None
        futures: list[Future[Any]] = []
        for own in zip(*arguments, strict=True):
            futures.append(Future())
            futures[-1].add_done_callback(self._arrivals.record)
            self._threads.complete(futures[-1], function, *own)
        return [self._run.wait(self._stage, "reader", self._result, future) for future in futures]

    def _result(self, future: "Future[Any]") -> Any:
        seconds = self._stage.timeout_seconds
        if not self._arrivals.wait_for(future, seconds):
            raise CancelledError
        if future not in self._arrivals:
            raise TimeoutError(f"mini-batches were not sampled within {seconds:g} s (timeout)")
        self._arrivals.forget(future)
        return future.result(0)

    def wait(self, window: Window) -> bool:
        try:
            found = self._result(window.pending)
        except CancelledError:
            return False
        self._largest = max([1, *map(count_bytes, found)])
        failure = islice(window.minibatches, len(found), None)
        window.minibatches = deque([*zip(window.minibatches, found, strict=False), *failure])
        return True

    def pop(self, window: Window) -> Any:
        return next_minibatch(window)

    def mark_used(self) -> None:
        """Do nothing, because mini-batches that were taken use no memory of the window."""

    def finish(self, taken: Iterator[Any]) -> Iterable[Any]:
        observer = OBSERVER.get()
        for minibatch, pending in taken:
            yield apply_stages(
                [self._sampler], minibatch, observer, partial(self._sampler.attach_hops, pending=pending)
            )
