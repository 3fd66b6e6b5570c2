"""Fetching for several mini-batches at once, whose rows a disk or other ranks then give together."""

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import field
from functools import partial
from itertools import islice, takewhile
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from graphfeed.datapipes import Datapipe, Transform, length
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.stages.in_workers import chain_of, with_failure
from graphfeed.loader.stages.upstream_placeholder import detach
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import Feature, FeatureStore
from graphfeed.storage.features import PlannedRows, ReadsAhead, RemoteFeature, RowMemory, bytes_of_rows
from graphfeed.storage.memory import count_bytes

Key = tuple[str, str | None, str]
Sources: TypeAlias = dict[Key, ReadsAhead]

MOST_MINIBATCHES = 128
"""How many mini-batches a window has at most if there is memory for more. With 64, a pass over ogbn-papers100M's rows
reads 98 % of their pages already."""
WINDOWS_IN_MEMORY = 2
"""Whose samples wait: those of the window that is read, and of the one before and the one after. The latter is sampled
as the former is used."""
GROWTH = 2
"""How many times as many mini-batches as the last window the next one may have. The first one has a single mini-batch,
so that the first one comes soon."""


@runtime_checkable
class FetchesKnownRows(Protocol):
    """A transform that reads features, and can tell beforehand which rows a mini-batch needs."""

    datapipe: Datapipe
    feature_store: FeatureStore

    def features(self) -> dict[Key, Feature]:
        """Return the features that it reads, by their keys."""

    def wanted_rows(self, minibatch: Any) -> Iterable[tuple[Key, torch.Tensor]]:
        """Yield the key of each feature that a mini-batch gets, and the ids of its rows."""

    def changed(self, **fields: Any) -> Any:
        """Return a copy with other values of some fields."""


def slow_sources(stage: FetchesKnownRows, window: int | None) -> Sources:
    """Return the sources of features whose rows a stage may read ahead, by their keys."""
    if type(stage.feature_store).read is not FeatureStore.read:
        return {}  # it may do more than to ask the feature
    features: dict[Any, object] = dict(stage.features())  # also what is no Feature, but reads like one
    sources = {
        key: feature.slow_source()
        for key, feature in features.items()
        if isinstance(feature, Feature) and reads_as_is(feature)
    }
    return {
        key: source
        for key, source in sources.items()
        if source is not None
        and reads_as_is(source)
        and bytes_of_rows(source)
        # Remote rows only if a window is asked for: an owner may update them, which those that were read ahead don't
        # see.
        and (window is not None or not isinstance(source, RemoteFeature))
    }


def reads_as_is(feature: Feature) -> bool:
    # A class of a user's may change rows in its `read`.
    return type(feature).read.__module__.startswith("graphfeed.")


class InWindows(Datapipe):
    """Runs the fetch before it on windows of mini-batches, and yields them in order.

    The rows that a window needs are read at once, in the order of their ids, and each of them once. That happens while
    the mini-batches of the window before are used, and those of the window after are sampled. Samples and rows leave as
    they are used. So the samples of two windows are in memory, and the rows of little more than one.
    """

    datapipe: Datapipe
    memory: RowMemory = field(repr=False)
    window: int | None = None
    """The most mini-batches of a window; None takes as many as there is memory for."""
    sample_bytes: float = field(default=math.inf, repr=False)
    """What the samples of a window may take."""

    one_to_one = True
    inserted = True

    @property
    def max_size_in_bytes(self) -> float:
        """What rows and samples take, at most."""
        return self.memory.max_size_in_bytes + WINDOWS_IN_MEMORY * self.sample_bytes

    def may_run_in_threads(self) -> bool:
        """Return False: it reads features, in one thread."""
        return False

    def __iter__(self) -> Iterator[Any]:
        run = current_run(self)
        with self.memory.take() as rows:
            going = True

            def cancel() -> None:
                # Once this epoch is over, another one may read into the same memory.
                for own in rows.values() if going and run.is_here else ():
                    own.cancel()

            run.when_cancelled(cancel)
            stages = fetch_and_copies(self.datapipe)
            source = stages[0].datapipe
            try:
                with closing(self._read_ahead(run, source, rows)) as minibatches:
                    # These stages take one mini-batch after the other, so that rows stay until they are copied.
                    fetch: Any = detach(source, stages, minibatches)[-1]
                    yield from fetch.changed(feature_store=ReadAheadStore(fetch.feature_store, rows))
            finally:
                going = False

    def _read_ahead(
        self, run: RunContext, source: Datapipe, rows: dict[Key, PlannedRows]
    ) -> Generator[Any, None, None]:
        """Yield the mini-batches of a source once their rows are there."""
        fetch = self.datapipe
        assert isinstance(fetch, FetchesKnownRows)
        new_window = partial(Window, fetch, rows, self.sample_bytes)
        with closing(sample(run, source)) as sampled:
            ready = new_window().extend(sampled, 1).begin()
            run.wait(self, "reader", ready.wait)
            reading = new_window().extend(sampled, self.most_after(ready)).begin()
            while ready.minibatches:
                following, most = new_window(), self.most_after(reading, self.memory.late_window)
                while ready.minibatches:
                    yield ready.take()
                    ready.mark_used()
                    # Sampled evenly while this window is used, and after its mini-batch, which need not wait for that.
                    lacking, left = max(0, most - len(following.minibatches)), len(ready.minibatches) + 1
                    following.extend(sampled, len(following.minibatches) + -(-lacking // left))
                if not reading.is_read():
                    # Larger windows are read faster, so the next ones have as many mini-batches at least.
                    self.memory.late_window = max(self.memory.late_window, len(reading.minibatches))
                run.wait(self, "reader", reading.wait)
                ready, reading = reading, following.begin()

    def __len__(self) -> int:
        return length(self.datapipe)

    def most_after(self, before: "Window", wanted: int = 0) -> int:
        """Return how many mini-batches the window after another one may have, where so many are wanted."""
        return min(max(GROWTH * len(before.minibatches), wanted), self.window or MOST_MINIBATCHES)


def fetch_and_copies(fetch: Datapipe) -> tuple[Transform, ...]:
    # Where the stages before a fetch copy to a GPU, mini-batches wait for their rows before that, on the CPU.
    before = takewhile(lambda stage: stage.passes_on, islice(chain_of(fetch), 1, None))
    assert isinstance(fetch, Transform)
    return (*reversed(list(before)), fetch)


def sample(run: RunContext, source: Datapipe) -> Generator[Any, None, None]:
    with closing(with_failure(source)) as minibatches:
        # Once a run is ending, mini-batches that workers have begun still come, and without workers no more.
        while not (run.executor is None and run.ending.is_set()) and (minibatch := next(minibatches, None)) is not None:
            yield minibatch


class Window:
    """Mini-batches whose rows are read together."""

    def __init__(self, fetch: FetchesKnownRows, rows: dict[Key, PlannedRows], sample_bytes: float) -> None:
        self.minibatches: deque[Any] = deque()
        """As they are sampled; a `Failure` comes last."""
        self._fetch = fetch
        self._rows = rows
        self._room = sample_bytes

    def extend(self, source: Iterator[Any], most: int) -> "Window":
        while len(self.minibatches) < most and self._has_room() and (minibatch := next(source, None)) is not None:
            self.minibatches.append(minibatch)
            if not isinstance(minibatch, Failure):
                self._room -= count_bytes(minibatch)
                self._note(minibatch)
        return self

    def _has_room(self) -> bool:
        # A window has a mini-batch, even if that takes more memory than there should be.
        return not self.minibatches or (self._room > 0 and all(rows.has_room() for rows in self._rows.values()))

    def _wanted(self, minibatch: Any) -> dict[Key, list[torch.Tensor]]:
        wanted: dict[Key, list[torch.Tensor]] = {key: [] for key in self._rows}
        # What is wrong with the ids is raised by the fetch.
        with suppress(Exception):
            for key, ids in self._fetch.wanted_rows(minibatch):
                wanted.setdefault(key, []).append(ids)
        return wanted

    def _note(self, minibatch: Any) -> None:
        wanted = self._wanted(minibatch)
        for key, rows in self._rows.items():
            with suppress(Exception):
                rows.note(wanted[key])

    def take(self) -> Any:
        minibatch = self.minibatches.popleft()
        if isinstance(minibatch, Failure):
            raise minibatch.error
        wanted = self._wanted(minibatch)
        for key, rows in self._rows.items():
            # The ids of its rows stay until the next mini-batch is taken.
            rows.expect(wanted[key])
        return minibatch

    def mark_used(self) -> None:
        for rows in self._rows.values():
            rows.mark_used()

    def begin(self) -> "Window":
        for rows in self._rows.values():
            rows.begin()
        return self

    def is_read(self) -> bool:
        return all(rows.is_read() for rows in self._rows.values())

    def wait(self) -> None:
        for rows in self._rows.values():
            rows.wait()


class ReadAheadStore(FeatureStore):
    """A store of features, some of which have their rows in memory already."""

    def __init__(self, store: FeatureStore, rows: dict[Key, PlannedRows]) -> None:
        self._store = store
        self._rows = rows

    def __getitem__(self, feature_key: Key) -> Feature:
        rows = self._rows.get(feature_key)
        feature: object = self._store[feature_key]
        # An update may have put other rows in the place of the source's.
        if rows is None or not isinstance(feature, Feature) or feature.slow_source() is not rows.feature:
            return self._store[feature_key]
        return feature.in_place_of_source(rows)

    def __contains__(self, feature_key: Key) -> bool:
        return feature_key in self._store

    def keys(self) -> Iterable[Key]:
        return self._store.keys()

    def read(
        self,
        domain: str,
        type_name: str | tuple[str, str, str] | None,
        feature_name: str,
        ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        key: Any = domain, type_name, feature_name
        if key in self._rows:
            return self[key].read(ids)
        return self._store.read(domain, type_name, feature_name, ids)
