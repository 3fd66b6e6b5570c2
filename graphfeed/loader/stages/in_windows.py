"""Windows of mini-batches, whose rows are read at once, which saves requests to other ranks and disk reads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import field
from functools import partial
from itertools import islice, takewhile
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes import Datapipe, FeatureFetcher, Transform, length
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.stages.in_workers import chain_of, detach, with_failure
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import Feature, FeatureStore
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
SAMPLES_PART = 4
"""One in this many bytes of the memory for reading ahead is for the samples of waiting mini-batches, not for rows."""


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
    least: Callable[[], int] = lambda: 0,
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
            del finish  # so that a mini-batch is freed once it is used
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
