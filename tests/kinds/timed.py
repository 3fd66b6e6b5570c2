"""Random graphs with times."""

import random
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from hypothesis import strategies as st

from graphfeed import ops
from tests.kinds import reference
from tests.kinds.hops import record, sample_one

NUM_TYPES = 3
DEGREES = st.one_of(st.integers(0, 6), st.sampled_from([0, 15, 16, 17, 33, 49, 130, 700]))
EXTREMES = [-(2**63), 2**63 - 1]
Period = tuple[int | None, int]


@dataclass(frozen=True)
class TimedGraph:
    """Columns with several edges at one time, weights of 0, and types that a column lacks."""

    indptr: list[int]
    indices: list[int]
    stamps: list[tuple[int, ...]]
    """No, one or two times an edge."""
    weights: list[float]
    types: list[int]
    seeds: list[int]
    times: list[int]
    windows: list[int] | None

    def columns(
        self, dtype: torch.dtype, *, weighted: bool = False, by_type: bool = False, put: Any = lambda tensor: tensor
    ) -> ops.Graph:
        """Return the arrays that `put` makes for the ops."""
        indptr, types = torch.tensor(self.indptr, dtype=dtype), torch.tensor(self.types, dtype=torch.uint8)
        weights = torch.tensor(self.weights, dtype=torch.float64)
        indices = torch.tensor(self.indices, dtype=dtype)

        def in_order(**arrays: torch.Tensor | None) -> ops.Graph:
            ranked = ops.TimeOrder(**{name: None if own is None else put(own) for name, own in arrays.items()})
            return record(put(indptr), put(indices), types=put(types), num_types=NUM_TYPES, by_column=ranked)

        if self.stamps and not self.stamps[0]:
            return in_order(cumulative=ops.cumulate_weights(indptr, weights) if weighted else None)
        last = torch.tensor([max(own) for own in self.stamps], dtype=torch.int64)
        from_when = [[2**63 - 1 if time == ops.ALWAYS else time for time in own] for own in self.stamps]
        first = torch.tensor([min(own) for own in from_when], dtype=torch.int64)
        is_split = any(len(own) > 1 or ops.ALWAYS in own for own in self.stamps)
        found = ops.order_by_time(indptr, last, types if by_type else None)
        places = torch.arange(len(last)) if found.order is None else ops.places_in_order(indptr, found.order)
        earliest = first[places] if is_split else None
        cumulative = ops.cumulate_weights(indptr, weights[places]) if weighted else None
        return in_order(times=found.times, order=found.order, earliest=earliest, cumulative=cumulative)

    def periods(self) -> list[tuple[int, Period]]:
        """Return node and period of each seed."""
        firsts: list[int | None] = [None] * len(self.seeds)
        if self.windows is not None:
            firsts = [time - max(window, 1) + 1 for time, window in zip(self.times, self.windows, strict=True)]
        return list(zip(self.seeds, zip(firsts, self.times, strict=True), strict=True))

    def sample(
        self, dtype: torch.dtype, fanouts: list[int], *keys: int, put: Any = lambda tensor: tensor,
        weighted: bool = False, **drawing: Any,
    ) -> ops.Picks:  # fmt: skip
        """Sample one hop of the seeds by the arrays that `put` makes."""
        columns = self.columns(dtype, weighted=weighted, by_type=len(fanouts) > 1, put=put)
        seeds, times = put(torch.tensor(self.seeds, dtype=dtype)), put(torch.tensor(self.times, dtype=torch.int64))
        windows = None if self.windows is None else put(torch.tensor(self.windows, dtype=torch.int64))
        moments = {"times": times, "windows": windows}
        return sample_one(columns, seeds, torch.tensor(fanouts), *keys, **moments, **drawing)

    @property
    def units(self) -> list[int]:
        return reference.weights_to_units(self.indptr, self.weights)


class Moments:
    """Times of which some are equal, and some are the extremes; and windows before them, if there are any."""

    def __init__(self, draw: st.DrawFn, chance: random.Random) -> None:
        self.draw, self.chance = draw, chance
        self.spread, self.count = draw(st.sampled_from([3, 1000, 2**62])), draw(st.sampled_from([0, 1, 1, 2]))
        self.windowed = draw(st.booleans())

    def time(self) -> int:
        """Return a time."""
        if self.chance.random() < 0.03:
            return self.chance.choice(EXTREMES)
        return self.chance.randint(-self.spread, self.spread)

    def window(self) -> int:
        """Return the length of a window."""
        return self.chance.choice([0, 1, 2, self.spread, 2**63 - 1])

    def stamps(self, indptr: list[int]) -> list[tuple[int, ...]]:
        """Return no, one or two times of each edge, in the order of time or not."""
        stamps = [tuple(self.time() for _ in range(self.count)) for _ in range(indptr[-1])]
        if self.count and self.draw(st.booleans()):
            stamps = reference.join(sorted(stamps[low:high], key=max) for low, high in pairwise(indptr))
        return stamps


@st.composite
def timed_graphs(draw: st.DrawFn, most: int = 700) -> TimedGraph:
    """Make a graph of 1 to 8 nodes of `most` edges at most, in the order of time or not, and seeds in it."""
    degrees = draw(st.lists(DEGREES.filter(lambda degree: degree <= most), min_size=1, max_size=8))
    chance = random.Random(draw(st.integers(0, 2**32)))
    moments, indptr = Moments(draw, chance), list(accumulate(degrees, initial=0))
    seeds = draw(st.lists(st.integers(0, len(degrees) - 1), max_size=6))
    return TimedGraph(
        indptr=indptr,
        indices=[chance.randrange(len(degrees)) for _ in range(indptr[-1])],
        stamps=moments.stamps(indptr),
        weights=[chance.choice([0.0, 0.0, 1e-12, 0.5, 1.0, 3.0]) for _ in range(indptr[-1])],
        types=[kind for degree in degrees for kind in sorted(chance.choices(range(NUM_TYPES), k=degree))],
        seeds=seeds,
        times=[moments.time() for _ in seeds],
        windows=[moments.window() for _ in seeds] if moments.windowed else None,
    )
