"""Slow reference versions of all ops: plain Python, from lists to lists, one item at a time."""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeVar

import torch

from graphfeed.ops import ALWAYS, MASK, fold
from graphfeed.ops.random import GOLDEN, NODE, bounded, draw, mix, variate
from graphfeed.ops.sampling.permute import SORTED_UP_TO

FEISTEL_ROUNDS = 6
UNITS = 2**31
"""Integer value of the largest weight of a column."""

LAST = 2**63 - 1
MANY_ROWS = 60
"""With more rows, no further hop is sampled: trees and rows of edges grow by the fan-out of each hop."""

Bits = Callable[[int], int]
"""Function from a draw's number to its 64 random bits."""

Ints = Sequence[int]
Period = tuple[int | None, int]
"""The first time, or None for all times before, and the time after the last one."""
Draws = tuple[tuple[int, int], int]
"""Two keys, and the share of the nodes that draw with the second one (LABOR)."""
T = TypeVar("T")


def join(parts: Iterable[Iterable[T]]) -> list[T]:
    """Concatenate lists."""
    return list(chain.from_iterable(parts))


def running_sum(values: Iterable[int]) -> list[int]:
    """Return the starts of parts with these lengths, and the end of the last one."""
    return list(accumulate(values, initial=0))


def pick_uniform(size: int, count: int, bits: Bits) -> list[int]:
    """Choose distinct numbers below a size by Floyd's algorithm: a draw each, or the last one if already drawn."""
    chosen: list[int] = []
    for number in range(count):
        last = size - count + number
        drawn = bounded(bits(number), last + 1)
        chosen.append(last if drawn in chosen else drawn)
    return chosen


def find_by_weight(units: Ints, places: Ints, bits: int) -> int:
    """Choose one of the places in proportion to its units."""
    target = bounded(bits, sum(units[place] for place in places))
    ends = accumulate(units[place] for place in places)
    return next(place for place, end in zip(places, ends, strict=True) if end > target)


def pick(size: int, units: Ints | None, count: int, replace: bool, bits: Bits) -> list[int]:
    """Choose numbers below a size, perhaps in proportion to their units, in the order that the kernels write them."""
    places = range(size)
    if replace and units is None:
        return [bounded(bits(number), size) for number in range(count)]
    if replace:
        return [find_by_weight(units or [], places, bits(number)) for number in range(count)]
    if units is None:
        return pick_uniform(size, count, bits)
    rest = list(places)
    for number in range(count):  # one by one, each among those that remain
        rest.remove(find_by_weight(units, rest, bits(number)))
    return [place for place in places if place not in rest]


def cut_by_type(types: Ints, column: range) -> dict[int, range]:
    """Cut a column into a segment for each type that it has."""
    kinds = [types[edge] for edge in column]
    starts = {kind: column.start + kinds.index(kind) for kind in kinds}
    return {kind: range(start, start + kinds.count(kind)) for kind, start in starts.items()}


def waiting_time(bits: int) -> int:
    """Return -log2(1 - bits / 2**64) in units of 2**-48, by repeated squaring of 64 bits."""
    rest = (MASK - bits) | 1
    whole = 64 - rest.bit_length()
    rest <<= whole
    digits = 0
    for _ in range(48):
        rest = rest * rest >> 64
        carry = 64 - rest.bit_length()
        rest <<= carry
        digits = 2 * digits + carry
    return whole * 2**48 + digits


@lru_cache(maxsize=1 << 14)
def arrivals(first: int, count: int) -> list[int]:
    """Return the times of a neighbour's first events, which all its edges share."""
    later = (mix(first + number * GOLDEN) for number in range(1, count))
    return list(accumulate(map(waiting_time, [first, *later])))


def pick_jointly(bits: Ints, units: Ints, count: int, replace: bool) -> list[int]:
    """Choose the places with the smallest variates of LABOR, or those of the first events."""
    places = range(len(bits))
    if not replace:
        return sorted(sorted(places, key=lambda place: (Fraction(bits[place], units[place]), place))[:count])
    events = [(Fraction(time, units[place]), place) for place in places for time in arrivals(bits[place], count)]
    return sorted(place for _, place in sorted(events)[:count])


def admitted(stamps: Sequence[Ints], segment: range, period: Period) -> list[int]:
    """Return the edges whose times are all in the period [first, end), sorted by their last time."""
    first, end = period
    begun = [edge for edge in segment if all(t < end for t in stamps[edge])]
    # The time ALWAYS is in every period.
    inside = [edge for edge in begun if first is None or all(t in (ALWAYS, max(t, first)) for t in stamps[edge])]
    return sorted(inside, key=lambda edge: (max(stamps[edge], default=0), edge))


class Graph(NamedTuple):
    """The columns of a graph. Times are needed if columns have periods, and types if there are several fan-outs."""

    indptr: Ints
    indices: Ints
    types: Ints | None = None
    units: Ints | None = None
    """The weights as integers."""
    stamps: Sequence[Ints] | None = None
    """Any number of times per edge."""


def pick_edges(
    graph: Graph,
    columns: Iterable[int | tuple[int, Period]],
    fanouts: Ints,
    draws: int | Draws,
    method: str = "uniform",
    replace: bool = False,
) -> list[list[int]]:
    """Return the positions of the sampled edges of each column: a node, perhaps with a period."""
    keys, share = ((draws, draws), 0) if isinstance(draws, int) else draws
    units = graph.units

    def choose(part: range, node: int, kind: int | None, period: Period | None) -> Ints:
        fanout, eligible = fanouts[kind or 0], part if period is None else admitted(graph.stamps or [], part, period)
        if units is not None:
            eligible = [edge for edge in eligible if units[edge] > 0]
        if fanout < 0 or not eligible or (fanout >= len(eligible) and not replace):
            return eligible
        if method == "latest":
            return eligible[len(eligible) - fanout :]
        own = None if units is None else [units[edge] for edge in eligible]
        if method == "labor":
            bits = [variate(keys, share, graph.indices[edge]) for edge in eligible]
            places = pick_jointly(bits, own or [1] * len(bits), fanout, replace)
        else:
            time = None if period is None else period[1]
            places = pick(len(eligible), own, fanout, replace, lambda number: draw(keys[0], node, number, kind, time))
        return [eligible[place] for place in places]

    picked = []
    for column in columns:
        node, period = (column, None) if isinstance(column, int) else column
        whole = range(graph.indptr[node], graph.indptr[node + 1])
        if len(fanouts) == 1:
            picked.append(list(choose(whole, node, None, period)))
        else:
            assert graph.types is not None
            parts = cut_by_type(graph.types, whole).items()
            picked.append(join(choose(part, node, kind, period) for kind, part in parts))
    return picked


def group_by_type(
    picked: list[list[int]], types: Ints, column_types: Ints, destinations: Ints
) -> tuple[list[list[int]], list[list[int]]]:
    """Return by edge type the column starts and the positions; `column_types` is the node type of each column."""
    indptrs, positions = [], []
    for kind, destination in enumerate(destinations):
        columns = [column for column, own in zip(picked, column_types, strict=True) if own == destination]
        chosen = [[edge for edge in sorted(column) if types[edge] == kind] for column in columns]
        indptrs.append(running_sum(len(column) for column in chosen))
        positions.append(join(chosen))
    return indptrs, positions


class Row(NamedTuple):
    """A row of a mini-batch: a node, by its id within its type."""

    node: int
    tree: int = 0
    time: int | None = None
    window: int | None = None

    def period(self, inclusive: bool) -> Period | None:
        """Return when edges must be to be sampled from this row; None without times."""
        if self.time is None:
            return None
        time, window = self.time, self.window
        if inclusive:
            time, window = min(time, LAST - 1) + 1, None if window is None else min(window, LAST - 2) + 2
        return None if window is None else time - max(window, 1) + 1, time


class Kinds(NamedTuple):
    """The node types by their first ids, the ends of the edge types, and the order in which these add rows."""

    first_ids: Ints
    sources: Ints
    destinations: Ints
    order: Ints


class How(NamedTuple):
    """How all hops are sampled."""

    method: str = "uniform"
    replace: bool = False
    only_new: bool = False
    """Whether a hop is sampled only from the rows that the previous one added."""
    rows: str = "node"
    """The unit of a row: a "node", a node of a "tree", or an "edge"."""
    edge_times: Ints | None = None
    """The times at which the sources of edges are sampled by the next hop, instead of the time of the seed."""
    inclusive: bool = False
    """Whether a time window includes its limits."""


class SampledHop(NamedTuple):
    """One hop: ids of columns and of rows by node type, the rest by edge type."""

    columns: list[list[int]]
    rows: list[list[int]]
    indptr: list[list[int]]
    indices: list[list[int]]
    positions: list[list[int]]


def sample_hops(
    graph: Graph, kinds: Kinds, seeds: Sequence[Sequence[Row]], hops: Iterable[tuple[Ints, Draws]], how: How
) -> list[SampledHop]:
    """Sample hop by hop, from all rows found so far or only from new ones. It stops at many rows."""
    rows, known, found = [list(own) for own in seeds], [0] * len(seeds), list[SampledHop]()
    for fanouts, ((key, second), share) in hops:
        columns = [list(own) for own in rows]
        picked = [[list[int]() for _ in own[:first]] for own, first in zip(columns, known, strict=True)]
        for kind, own in enumerate(columns):
            for row in own[known[kind] :]:
                node, period = kinds.first_ids[kind] + row.node, row.period(how.inclusive)
                # LABOR draws by neighbours, also in trees.
                own_key = fold(key, row.tree) if how.rows == "tree" and how.method != "labor" else key
                column: Any = node if period is None else (node, period)
                picked[kind] += pick_edges(
                    graph, [column], fanouts, ((own_key, second), share), how.method, how.replace
                )
        local = [list[int]() for _ in kinds.order]
        by_type = [
            [
                [edge for edge in (own if graph.types is None else sorted(own)) if kind == type_of(graph, edge)]
                for own in picked[end]
            ]
            for kind, end in enumerate(kinds.destinations)
        ]
        places = [{(row.node, row.tree): place for place, row in reversed([*enumerate(own)])} for own in rows]
        for kind in kinds.order:
            source = kinds.sources[kind]
            for parent, edges in zip(columns[kinds.destinations[kind]], by_type[kind], strict=True):
                for edge in edges:
                    time = ALWAYS if how.edge_times is None else how.edge_times[edge]
                    row = parent._replace(
                        node=graph.indices[edge] - kinds.first_ids[source], time=parent.time if time == ALWAYS else time
                    )
                    place = len(rows[source])
                    if how.rows != "edge":
                        place = places[source].setdefault((row.node, row.tree), place)
                    if place == len(rows[source]):
                        rows[source].append(row)
                    local[kind].append(place)
        starts, positions = [running_sum(map(len, own)) for own in by_type], [join(own) for own in by_type]
        before, after = ([[row.node for row in own] for own in part] for part in (columns, rows))
        found.append(SampledHop(before, after, starts, local, positions))
        known = [len(own) if how.only_new else 0 for own in columns]
        if sum(map(len, rows)) > MANY_ROWS:
            break
    return found


def type_of(graph: Graph, edge: int) -> int:
    return 0 if graph.types is None else graph.types[edge]


def compact(seeds: Sequence[Ints], neighbors: Sequence[Ints], sources: Ints) -> tuple[list[list[int]], list[list[int]]]:
    """Return the row ids by node type, and the neighbours by edge type as positions in the rows."""
    rows = [list(ids) for ids in seeds]
    places = [{node: ids.index(node) for node in ids} for ids in rows]
    local = []
    for ids, kind in zip(neighbors, sources, strict=True):
        for node in ids:
            if node not in places[kind]:
                places[kind][node] = len(rows[kind])
                rows[kind].append(node)
        local.append([places[kind][node] for node in ids])
    return rows, local


def gather_rows(values: torch.Tensor, index: Ints) -> torch.Tensor:
    """Return the rows, copied one at a time."""
    out = torch.empty(len(index), *values.shape[1:], dtype=values.dtype)
    for place, row in enumerate(index):
        out[place] = values[row]
    return out


def permute(start: int, stop: int, size: int, key: int) -> list[int]:
    """Return places `start .. stop - 1`: of the items sorted by hash, or each by a walk through a Feistel network."""
    if size <= SORTED_UP_TO:
        return sorted(range(size), key=lambda item: mix(key ^ (item * NODE & MASK)))[start:stop]
    half = math.ceil((size - 1).bit_length() / 2)
    return [walk(place, size, half, key) for place in range(start, stop)]


def walk(value: int, size: int, half: int, key: int) -> int:
    """Encrypt a value of two halves with `bits` bits each, repeatedly until it is below the size."""
    while True:
        left, right = divmod(value, 2**half)
        for number in range(FEISTEL_ROUNDS):
            left, right = right, left ^ (mix(fold(key, number) ^ right) % 2**half)
        value = left * 2**half + right
        if value < size:
            return value


def weights_to_units(indptr: Ints, weights: Sequence[float]) -> list[int]:
    """Return the weights as integers, the largest of each column as `UNITS` and no positive one as 0."""
    units = []
    for low, high in pairwise(indptr):
        largest = max(weights[low:high], default=0)
        units += [
            max(1, math.floor(weight / largest * UNITS + 0.5)) if weight > 0 else 0 for weight in weights[low:high]
        ]
    return units


def cumulate_weights(indptr: Ints, weights: Sequence[float]) -> list[int]:
    """Return each column's running sum of units."""
    units = weights_to_units(indptr, weights)
    return join(accumulate(units[low:high]) for low, high in pairwise(indptr))


def coo_to_csc(sources: Ints, destinations: Ints, num_nodes: int) -> tuple[list[int], list[int], list[int]]:
    """Return column starts, source of each edge, and place of each edge in the list."""
    columns = [[edge for edge, end in enumerate(destinations) if end == node] for node in range(num_nodes)]
    order = join(columns)
    return running_sum(len(column) for column in columns), [sources[edge] for edge in order], order


def expand_indptr(indptr: Ints, node_ids: Ints) -> list[int]:
    """Repeat each column's id once for each of its edges."""
    return join([node] * (high - low) for node, (low, high) in zip(node_ids, pairwise(indptr), strict=True))


def indptr_edge_ids(indptr: Ints, offset: Ints) -> list[int]:
    """Count each column's edges from its offset."""
    return join(range(start, start + high - low) for start, (low, high) in zip(offset, pairwise(indptr), strict=True))


def unique_and_compact(lists: Sequence[Ints]) -> tuple[list[int], list[list[int]]]:
    """Return the distinct ids, and each list as positions in them."""
    unique = list(dict.fromkeys(join(lists)))
    return unique, [[unique.index(node) for node in ids] for ids in lists]


def sample_negatives(
    pairs: Sequence[tuple[int, int]], negative_ratio: int, num_destinations: int, key: int
) -> list[tuple[int, int]]:
    """Return the pairs, then each `negative_ratio` times with a destination drawn by the place of the copy."""
    sources = join([source] * negative_ratio for source, _ in pairs)
    drawn = [bounded(draw(key, place, 0), num_destinations) for place in range(len(sources))]
    return [*pairs, *zip(sources, drawn, strict=True)]
