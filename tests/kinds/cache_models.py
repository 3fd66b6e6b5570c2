"""Slow reference versions of SIEVE and set-associative caches, with lists of keys; and a feature to cache."""

from collections.abc import Callable, Generator, Iterable, Sequence

import torch

from graphfeed.ops.random import bounded, mix
from graphfeed.storage import DeferredRead, TorchBasedFeature
from graphfeed.storage.features import RemoteFeature


class Sieve:
    """First in, first out, but a hand that moves from old to new keys skips those that were requested since."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.queue: list[int] = []
        self.visited: set[int] = set()
        self.hand: int | None = None

    def hit(self, key: int) -> bool:
        if key in self.queue:
            self.visited.add(key)
        return key in self.queue

    def insert(self, key: int) -> None:
        if len(self.queue) == self.capacity:
            self.evict()
        self.queue.insert(0, key)

    def evict(self) -> None:
        place = len(self.queue) - 1 if self.hand is None else self.queue.index(self.hand)
        while self.queue[place] in self.visited:
            self.visited.remove(self.queue[place])
            place = place - 1 if place > 0 else len(self.queue) - 1
        self.hand = self.queue[place - 1] if place > 0 else None
        self.queue.pop(place)


def ask(model: Sieve, capacity: int, batch: Sequence[int]) -> list[int]:
    """Return the positions in a batch that miss; then add the missing keys without duplicates, if there is space."""
    missing = [place for place, key in enumerate(batch) if not model.hit(key)]
    for key in distinct(batch[place] for place in missing)[:capacity]:
        model.insert(key)
    return missing


def distinct(keys: Iterable[int]) -> list[int]:
    """Return the distinct keys in order of first appearance."""
    return list(dict.fromkeys(keys))


class Sets:
    """Sets of slots, each a list of keys with the request that used them last."""

    def __init__(self, sets: int, ways: int) -> None:
        self.ways = ways
        self.places: list[list[tuple[int, int]]] = [[(-1, -1)] * ways for _ in range(sets)]

    def own(self, key: int) -> int:
        """Return the set of a key."""
        return bounded(mix(key), len(self.places))

    def find(self, key: int, request: int) -> int:
        """Return the slot of a key, or -1, and record the request."""
        for number, places in enumerate(self.places):
            for way, (held, _) in enumerate(places):
                if held == key:
                    places[way] = (key, request)
                    return number * self.ways + way
        return -1

    def insert(self, key: int, request: int) -> int:
        """Add a key and evict the least recently used one, unless this request used it; return the slot."""
        if not self.places:
            return -1
        places = self.places[self.own(key)]
        held = [known for known, _ in places]
        way = held.index(key) if key in held else min(range(self.ways), key=lambda way: places[way][1])
        if key not in held and places[way][1] >= request:
            return -1
        places[way] = (key, max(places[way][1], request))
        return self.own(key) * self.ways + way


class Staged(TorchBasedFeature):
    """Reads in three stages."""

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        for _ in range(2):
            yield DeferredRead(lambda: torch.empty(0))
        yield DeferredRead(lambda: self.read(ids))

    def read_async_num_stages(self, ids_device: torch.device) -> int:
        return 3


class OddRowsRemote(TorchBasedFeature, RemoteFeature):
    """Rows of which those with odd ids are remote; records the requested remote rows."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__(rows)
        self.asked: list[list[int]] = []

    def split_local(self, ids: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], None]]:
        is_local = ids % 2 == 0

        def write(out: torch.Tensor) -> None:
            out[is_local] = self.read()[ids[is_local]]

        return (~is_local).nonzero()[:, 0], write

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        self.asked.append(ids.tolist())
        yield DeferredRead(lambda: self.read(ids))
