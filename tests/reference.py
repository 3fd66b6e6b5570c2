"""Slow reference versions of all ops: plain Python, from lists to lists, one item at a time."""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import TypeVar

import torch

from graphfeed.ops import ALWAYS
from graphfeed.ops.random import GOLDEN, MASK, NODE, bounded, draw, fold, mix, variate
from graphfeed.ops.sampling.permute import SORTED_UP_TO

FEISTEL_ROUNDS = 6
UNITS = 2**31
"""Integer value of the largest weight of a column."""

Bits = Callable[[int], int]
"""Function from a draw's number to its 64 random bits."""

Ints = Sequence[int]
T = TypeVar("T")


def join(parts: Iterable[Iterable[T]]) -> list[T]:
    """Concatenate lists."""
    return list(chain.from_iterable(parts))


def running_sum(values: Iterable[int]) -> list[int]:
    """Return the starts of parts with these lengths, and the end of the last one."""
    return list(accumulate(values, initial=0))


def pick_uniform(low: int, high: int, count: int, bits: Bits) -> list[int]:
    """Choose distinct edges by Floyd's algorithm: one draw per edge, or the range's end if already drawn."""
    chosen: list[int] = []
    for number in range(count):
        last = high - count + number
        drawn = low + bounded(bits(number), last + 1 - low)
        chosen.append(last if drawn in chosen else drawn)
    return chosen


def find_by_weight(units: Ints, edges: Ints, bits: int) -> int:
    """Choose one of the edges in proportion to its units."""
    target = bounded(bits, sum(units[edge] for edge in edges))
    ends = accumulate(units[edge] for edge in edges)
    return next(edge for edge, end in zip(edges, ends, strict=True) if end > target)


def pick_by_weight(units: Ints, eligible: Ints, count: int, bits: Bits) -> list[int]:
    """Choose distinct edges one by one, each in proportion to its units among the remaining edges."""
    rest = list(eligible)
    for number in range(count):
        rest.remove(find_by_weight(units, rest, bits(number)))
    return [edge for edge in eligible if edge not in rest]


def pick(units: Ints | None, segment: range, fanout: int, replace: bool, bits: Bits) -> list[int]:
    """Choose edges of a segment, in the order that the kernels write them."""
    eligible = segment if units is None else [edge for edge in segment if units[edge] > 0]
    if fanout < 0 or not eligible or (fanout >= len(eligible) and not replace):
        return list(eligible)
    if units is None and replace:
        return [segment.start + bounded(bits(number), len(segment)) for number in range(fanout)]
    if units is None:
        return pick_uniform(segment.start, segment.stop, fanout, bits)
    if replace:
        return [find_by_weight(units, eligible, bits(number)) for number in range(fanout)]
    return pick_by_weight(units, eligible, fanout, bits)


def cut_by_type(types: Ints, column: range) -> dict[int, range]:
    """Cut a column into a segment for each type that it has."""
    kinds = [types[edge] for edge in column]
    starts = {kind: column.start + kinds.index(kind) for kind in kinds}
    return {kind: range(start, start + kinds.count(kind)) for kind, start in starts.items()}


def sample_neighbors(
    indptr: Ints,
    seeds: Ints,
    fanouts: Ints,
    key: int,
    replace: bool = False,
    units: Ints | None = None,
    types: Ints | None = None,
) -> list[list[int]]:
    """Return the positions of each seed's sampled edges; `units` are fixed-point weights, one per edge."""

    def bits_of(node: int, kind: int | None) -> Bits:
        return lambda number: draw(key, node, number, kind)

    picked = []
    for node in seeds:
        column = range(indptr[node], indptr[node + 1])
        if len(fanouts) == 1:
            picked.append(pick(units, column, fanouts[0], replace, bits_of(node, None)))
        else:
            assert types is not None
            segments = cut_by_type(types, column).items()
            picked.append(
                join(pick(units, part, fanouts[kind], replace, bits_of(node, kind)) for kind, part in segments)
            )
    return picked


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


def labor_sample_neighbors(
    graph: tuple[Ints, Ints],
    seeds: Ints,
    fanouts: Ints,
    draws: tuple[tuple[int, int], int],
    replace: bool = False,
    units: Ints | None = None,
    types: Ints | None = None,
) -> list[list[int]]:
    """Return the positions of each seed's edges to the neighbours of smallest variates; `draws` are keys and share."""
    indptr, indices = graph

    def unit(edge: int) -> int:
        return 1 if units is None else units[edge]

    def bits(edge: int) -> int:
        return variate(*draws, indices[edge])

    @cache  # of a neighbour: parallel edges, and other columns with the same neighbour, share its events
    def times(first: int, count: int) -> list[int]:
        later = (mix(first + number * GOLDEN) for number in range(1, count))
        return list(accumulate(map(waiting_time, [first, *later])))

    def events(edge: int, count: int) -> list[tuple[Fraction, int]]:
        return [(Fraction(time, unit(edge)), edge) for time in times(bits(edge), count)]

    def choose(segment: range, fanout: int) -> list[int]:
        eligible = [edge for edge in segment if unit(edge) > 0]
        if fanout < 0:
            return eligible
        if replace:
            return sorted(edge for _, edge in sorted(join(events(edge, fanout) for edge in eligible))[:fanout])
        return sorted(sorted(eligible, key=lambda edge: (Fraction(bits(edge), unit(edge)), edge))[:fanout])

    @cache
    def picked_for(node: int) -> list[int]:
        column = range(indptr[node], indptr[node + 1])
        parts = {0: column} if types is None or len(fanouts) == 1 else cut_by_type(types, column)
        return join(choose(part, fanouts[kind]) for kind, part in parts.items())

    return [picked_for(node) for node in seeds]


def admitted(stamps: Sequence[Ints], segment: range, period: tuple[int | None, int]) -> list[int]:
    """Return the edges whose times are all in the period [first, end), sorted by their last time."""
    first, end = period
    begun = [edge for edge in segment if all(t < end for t in stamps[edge])]
    # The time ALWAYS is in every period.
    inside = [edge for edge in begun if first is None or all(t in (ALWAYS, max(t, first)) for t in stamps[edge])]
    return sorted(inside, key=lambda edge: (max(stamps[edge], default=0), edge))


def temporal_sample_neighbors(
    graph: tuple[Ints, Sequence[Ints]],
    columns: Sequence[tuple[int, tuple[int | None, int]]],
    fanouts: Ints,
    key: int,
    method: str = "",
    units: Ints | None = None,
    types: Ints | None = None,
) -> list[list[int]]:
    """Return the positions of each column's sampled edges; a column is a node and a period, an edge has any times."""
    indptr, stamps = graph

    def choose(part: range, kind: int, node: int, period: tuple[int | None, int]) -> list[int]:
        ranks = admitted(stamps, part, period)
        if method == "latest":
            ranks = [edge for edge in ranks if units is None or units[edge] > 0]
            return ranks if fanouts[kind] < 0 else ranks[max(len(ranks) - fanouts[kind], 0) :]
        own = None if units is None else [units[edge] for edge in ranks]
        edge_type = kind if len(fanouts) > 1 else None
        chosen = pick(
            own, range(len(ranks)), fanouts[kind], method == "replace",
            lambda number: draw(key, node, number, edge_type, period[1]),
        )  # fmt: skip
        return [ranks[place] for place in chosen]

    picked = []
    for node, period in columns:
        column = range(indptr[node], indptr[node + 1])
        parts = {0: column} if types is None or len(fanouts) == 1 else cut_by_type(types, column)
        picked.append(join(choose(part, kind, node, period) for kind, part in parts.items()))
    return picked


def temporal_labor_sample_neighbors(
    graph: tuple[Ints, Ints, Sequence[Ints]],
    columns: Sequence[tuple[int, tuple[int | None, int]]],
    fanouts: Ints,
    draws: tuple[tuple[int, int], int],
    replace: bool = False,
    units: Ints | None = None,
    types: Ints | None = None,
) -> list[list[int]]:
    """Like `labor_sample_neighbors`, with only the admitted edges of each column."""
    indptr, indices, stamps = graph
    picked: list[list[int]] = []
    for node, period in columns:
        column = range(indptr[node], indptr[node + 1])
        parts = {0: column} if types is None or len(fanouts) == 1 else cut_by_type(types, column)
        picked.append([])
        for kind, part in parts.items():
            ranks = admitted(stamps, part, period)
            alone = ([0, len(ranks)], [indices[edge] for edge in ranks])
            own = None if units is None else [units[edge] for edge in ranks]
            (chosen,) = labor_sample_neighbors(alone, [0], [fanouts[kind]], draws, replace, own)
            picked[-1] += [ranks[place] for place in chosen]
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
