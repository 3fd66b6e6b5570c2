"""Slow reference version of all hops of a mini-batch, hop by hop."""

from collections.abc import Sequence
from typing import NamedTuple

from graphfeed.ops import fold
from tests import reference
from tests.reference import Ints


class SampledHop(NamedTuple):
    """One hop, as `ops.SampledHop`."""

    columns: list[int]
    rows: list[int]
    indptr: list[int]
    indices: list[int]
    positions: list[int]


TREE = 1 << 40
"""Ids in trees: the id in the graph, plus this number for each tree."""
MANY_ROWS = 60
"""With more rows, no further hop is sampled: trees and rows of edges grow by the fan-out of each hop."""


def make_rows(
    columns: Sequence[Ints], found: Sequence[Ints], sources: Ints, kind: str
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the rows after a hop, one per node or one per edge, and the position of each edge's source in them."""
    if kind != "edge":
        return reference.compact(columns, found, sources)
    rows, local = [list(own) for own in columns], []
    for own, source in zip(found, sources, strict=True):
        local.append(list(range(len(rows[source]), len(rows[source]) + len(own))))
        rows[source] += own
    return rows, local


def sample_hops(
    graph: tuple[Ints, Ints],
    seeds: Ints,
    hops: Sequence[tuple[int, int | tuple[tuple[int, int], int]]],
    replace: bool = False,
    units: Ints | None = None,
    only_new: bool = False,
    kind: str = "node",
) -> list[SampledHop]:
    """Sample hop by hop, from all rows found so far or only the new ones, by LABOR if there are draws; and relabel.

    It stops at many rows.
    """
    indptr, indices = graph
    layers, known = [], 0
    columns = [node + TREE * place * (kind == "tree") for place, node in enumerate(seeds)]
    for fanout, key in hops:
        ids = [node % TREE for node in columns[known:]]
        if isinstance(key, int):
            in_tree = [fold(key, node // TREE) if kind == "tree" else key for node in columns[known:]]
            picked = [
                reference.sample_neighbors(indptr, [node], [fanout], own, replace, units)[0]
                for node, own in zip(ids, in_tree, strict=True)
            ]
        else:
            picked = reference.labor_sample_neighbors(graph, ids, [fanout], key, replace, units)
        found = [
            indices[edge] + column // TREE * TREE
            for column, own in zip(columns[known:], picked, strict=True)
            for edge in own
        ]
        (rows,), (local,) = make_rows([columns], [found], [0], kind)
        offsets = [0] * known + reference.running_sum(len(column) for column in picked)
        before, after = ([node % TREE for node in own] for own in (columns, rows))
        layers.append(SampledHop(before, after, offsets, local, reference.join(picked)))
        columns, known = rows, len(columns) if only_new else 0
        if len(rows) > MANY_ROWS:
            break
    return layers


class TypedHop(NamedTuple):
    """One hop of a graph with types: columns and rows by node type, the rest by edge type."""

    columns: list[list[int]]
    rows: list[list[int]]
    indptr: list[list[int]]
    indices: list[list[int]]
    positions: list[list[int]]


def typed_sample_hops(
    graph: tuple[Ints, Ints, Ints],
    kinds: tuple[Ints, Ints, Ints, Ints],
    seeds: Sequence[Ints],
    hops: Sequence[tuple[Ints, int | tuple[tuple[int, int], int]]],
    replace: bool = False,
    units: Ints | None = None,
    rows_of: tuple[bool, str] = (False, "node"),
) -> list[TypedHop]:
    """Sample hop by hop, by LABOR if a hop has draws instead of a key; split by edge type, and relabel.

    It stops at many rows.
    """
    only_new, kind_of_rows = rows_of
    (indptr, indices, types), (first_ids, sources, destinations, order) = graph, kinds
    counts, layers = reference.running_sum(map(len, seeds)), []
    in_trees = TREE * (kind_of_rows == "tree")
    columns = [
        [node + in_trees * (first + place) for place, node in enumerate(ids)]
        for first, ids in zip(counts, seeds, strict=False)
    ]
    known = [0] * len(columns)
    for fanouts, key in hops:
        owners = reference.join([kind] * len(ids) for kind, ids in enumerate(columns))
        ids = reference.join([first_ids[kind] + node % TREE for node in own] for kind, own in enumerate(columns))
        if isinstance(key, int):
            keys = [fold(key, node // TREE) if in_trees else key for node in reference.join(columns)]
            picked = [
                reference.sample_neighbors(indptr, [node], fanouts, own, replace, units, types)[0]
                for node, own in zip(ids, keys, strict=True)
            ]
        else:
            picked = reference.labor_sample_neighbors((indptr, indices), ids, fanouts, key, replace, units, types)
        is_known = reference.join(
            [place < first for place in range(len(own))] for own, first in zip(columns, known, strict=True)
        )
        picked = [[] if old else own for own, old in zip(picked, is_known, strict=True)]
        starts, positions = reference.group_by_type(picked, types, owners, destinations)
        trees = []
        for end, own in zip(destinations, starts, strict=True):
            of_columns = zip(columns[end], own, own[1:], strict=False)
            trees.append(reference.join([node // TREE * TREE] * (high - low) for node, low, high in of_columns))
        found = [
            [indices[edge] - first_ids[source] + tree for edge, tree in zip(own, of_edges, strict=True)]
            for own, of_edges, source in zip(positions, trees, sources, strict=True)
        ]
        rows, relabelled = make_rows(
            columns, [found[kind] for kind in order], [sources[kind] for kind in order], kind_of_rows
        )
        local = [relabelled[order.index(kind)] for kind in range(len(order))]
        before, after = ([[node % TREE for node in ids] for ids in own] for own in (columns, rows))
        layers.append(TypedHop(before, after, starts, local, positions))
        known = [len(own) if only_new else 0 for own in columns]
        columns = rows
        if sum(map(len, rows)) > MANY_ROWS:
            break
    return layers
