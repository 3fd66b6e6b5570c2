"""Fetching for several mini-batches at once, whose rows on disk are then read in the order of the file."""

import math
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch

from graphfeed.datapipes import Datapipe, Transform, call, length
from graphfeed.datapipes.pipeline import OBSERVER
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.stages.in_workers import with_failure
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.storage import Feature, FeatureStore
from graphfeed.storage.features import PlannedRows, RowMemory
from graphfeed.storage.memory import count_bytes

Key = tuple[str, str | None, str]

MOST_MINIBATCHES = 128
"""How many mini-batches a window has at most if there is memory for more. With 64, a pass over ogbn-papers100M's rows
reads 98 % of their pages already."""
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


class InWindows(Datapipe):
    """Runs the fetch before it on windows of mini-batches, and yields them in order.

    The rows that a window needs are read at once, in the order of the file, and each of them once. That happens while
    the mini-batches of the window before are used, and those of the window after are sampled. So the samples of three
    windows are in memory, and the rows of two.
    """

    datapipe: Datapipe
    memory: RowMemory = field(repr=False)
    window: int | None = None
    """The most mini-batches of a window; None takes as many as there is memory for."""
    sample_bytes: float = field(default=math.inf, repr=False)
    """What the samples of a window may take."""

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Read ahead, and fetch."""
        run = current_run(self)
        with self.memory.take() as rows:
            going = True

            def cancel() -> None:
                # Once this epoch is over, another one may read into the same memory.
                for own in rows.values() if going and run.is_here else ():
                    own.cancel()

            run.when_cancelled(cancel)
            try:
                yield from self._fetch(run, rows)
            finally:
                going = False

    def _fetch(self, run: RunContext, rows: dict[Key, PlannedRows]) -> Iterator[Any]:
        observer, fetch = OBSERVER.get(), self.datapipe
        assert isinstance(fetch, Transform)
        assert isinstance(fetch, FetchesKnownRows)
        planned: Transform[Any] = fetch.changed(feature_store=ReadAheadStore(fetch.feature_store, rows))
        new_window = partial(Window, fetch, rows, self.sample_bytes)
        with closing(with_failure(fetch.datapipe)) as source:
            ready = new_window().extend(source, 1).begin()
            run.wait(self, "reader", ready.wait)
            reading = new_window().extend(source, self.most_after(ready)).begin()
            while ready.minibatches:
                following = new_window()
                for minibatch in ready.minibatches:
                    if isinstance(minibatch, Failure):
                        raise minibatch.error
                    following.extend(source, min(self.most_after(reading), len(following.minibatches) + GROWTH))
                    yield call(planned, minibatch, observer)
                run.wait(self, "reader", reading.wait)
                ready, reading = reading, following.begin()

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)

    def most_after(self, before: "Window") -> int:
        """Return how many mini-batches the window after another one may have."""
        return min(GROWTH * len(before.minibatches), self.window or MOST_MINIBATCHES)


class Window:
    """Mini-batches whose rows are read together."""

    def __init__(self, fetch: FetchesKnownRows, rows: dict[Key, PlannedRows], sample_bytes: float) -> None:
        self.minibatches: list[Any] = []
        """As they are sampled; a `Failure` comes last."""
        self._fetch = fetch
        self._rows = rows
        self._room = sample_bytes

    def extend(self, source: Iterator[Any], most: int) -> "Window":
        """Take mini-batches until there are `most`, or no memory for another one; return this window."""
        while len(self.minibatches) < most and self._has_room() and (minibatch := next(source, None)) is not None:
            self.minibatches.append(minibatch)
            if not isinstance(minibatch, Failure):
                self._room -= count_bytes(minibatch)
                # What is wrong with its ids is raised in its place, by the fetch.
                with suppress(Exception):
                    self._note(minibatch)
        return self

    def _has_room(self) -> bool:
        # A window has a mini-batch, even if that takes more memory than there should be.
        return not self.minibatches or (self._room > 0 and all(rows.has_room() for rows in self._rows.values()))

    def _note(self, minibatch: Any) -> None:
        wanted: dict[Key, list[torch.Tensor]] = {}
        for key, ids in self._fetch.wanted_rows(minibatch):
            wanted.setdefault(key, []).append(ids)
        for key in wanted.keys() & self._rows.keys():
            self._rows[key].note(torch.cat(wanted[key]))

    def begin(self) -> "Window":
        """Begin to read its rows; return this window."""
        for rows in self._rows.values():
            rows.begin()
        return self

    def wait(self) -> None:
        """Wait until they are there."""
        for rows in self._rows.values():
            rows.wait()


class ReadAheadStore(FeatureStore):
    """A store of features, some of which have their rows in memory already."""

    def __init__(self, store: FeatureStore, rows: dict[Key, PlannedRows]) -> None:
        self._store = store
        self._rows = rows

    def __getitem__(self, feature_key: Key) -> Feature:
        """Return the feature of a key."""
        return self._store[feature_key]

    def __contains__(self, feature_key: Key) -> bool:
        """Tell whether the store has a feature of a key."""
        return feature_key in self._store

    def keys(self) -> Iterable[Key]:
        """Return all keys."""
        return self._store.keys()

    def read(
        self, domain: str, type_name: str | None, feature_name: str, ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the rows of a feature at `ids`, from memory if they were read ahead."""
        key = domain, type_name, feature_name
        rows = self._rows.get(key)
        # An update may have put others in the place of the file's rows.
        feature: object = self._store[key]
        if rows is None or ids is None or not isinstance(feature, Feature) or feature.file() is not rows.feature:
            return self._store.read(domain, type_name, feature_name, ids)
        return rows.read(ids)
