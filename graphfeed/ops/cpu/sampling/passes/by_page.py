"""Passes that read a graph in a mapped file page by page, instead of at random (see `graphfeed.ops.cpu.pages`)."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, kernel
from graphfeed.ops.cpu.pages import BLOCK, CHUNK, NUMBER, PAGE, Order, ask_ahead, page_key, sort_positions, touch_pages
from graphfeed.ops.cpu.sampling.passes.candidates import Buckets
from graphfeed.ops.cpu.sampling.passes.state import (
    COUNT,
    EDITED,
    Indptr,
    NodeIds,
    PickBlock,
    Relations,
    RowBlock,
    Runs,
    Sources,
    TypePerEdge,
)


@kernel
def touch_columns(hop: int, page_bits: int, graph: Indptr, rows: RowBlock, nodes: NodeIds, order: Order) -> None:
    """Prefault the starts of a hop's new columns, which `open_columns` reads next."""
    for kind in range(rows.firsts.size - 1):
        own, first_id = nodes.rows[rows.firsts[kind] :], rows.first_ids[kind]
        begin = rows.known[hop - 1, kind] if hop > 0 else np.int64(0)
        for chunk in range(begin, rows.known[hop, kind], CHUNK):
            count = min(rows.known[hop, kind] - chunk, CHUNK)
            for number in range(count):
                node = first_id + np.int64(own[np.uintp(chunk + number)])
                order.keys[np.uintp(number)] = page_key(graph.indptr, node, 0, page_bits)
            touch_pages(order, graph.indptr, count, page_bits)


@kernel
def touch_types(page_bits: int, graph: TypePerEdge, columns: Runs, order: Order) -> None:
    """Prefault the first edge type of each column, which `split_columns` reads first."""
    for chunk in range(0, columns.sizes[COUNT], CHUNK):
        count = 0
        for column in range(chunk, min(chunk + CHUNK, columns.sizes[COUNT])):
            if columns.degrees[np.uintp(column)] > 0:
                order.keys[np.uintp(count)] = page_key(graph.types, columns.starts[np.uintp(column)], 0, page_bits)
                count += 1
        touch_pages(order, graph.types, count, page_bits)


@kernel
def touch_runs(page_bits: int, graph: Sources, columns: Runs, buckets: Buckets, order: Order) -> None:
    """Prefault the sources of all runs that LABOR reads next."""
    count = 0
    for number in range(columns.sizes[COUNT]):
        run = np.uintp(number)
        picks, degree = columns.offsets[run + np.uintp(1)] - columns.offsets[run], columns.degrees[run]
        # LABOR does not read runs whose edges are all picked, nor runs with a bucket.
        if picks > 0 and picks != degree and (buckets.of_runs.size == 0 or buckets.of_runs[run] < 0):
            low = page_key(graph.indices, columns.starts[run], 0, page_bits) >> PAGE
            high = page_key(graph.indices, columns.starts[run] + degree - 1, 0, page_bits) >> PAGE
            for page in range(np.int64(low), np.int64(high) + 1):
                if count == CHUNK:
                    touch_pages(order, graph.indices, count, page_bits)
                    count = 0
                order.keys[np.uintp(count)] = np.uint64(page) << PAGE
                count += 1
    touch_pages(order, graph.indices, count, page_bits)


@kernel
def read_neighbors_by_page(
    hop: int,
    page_bits: int,
    graph: Sources,
    rows: RowBlock,
    kinds: Relations,
    edges: PickBlock,
    nodes: NodeIds,
    order: Order,
) -> int:
    """Read the source of each sampled edge, as `read_neighbors` does, but in file order."""
    outside = np.int64(0)
    for edge_type in range(kinds.sources.size):
        kind, end = kinds.sources[edge_type], kinds.edge_starts[hop, edge_type + 1]
        first_id = rows.first_ids[kind]
        last_node = rows.first_ids[kind + 1] - first_id - 1
        for chunk in range(kinds.edge_starts[hop, edge_type], end, CHUNK):
            count = min(end - chunk, CHUNK)
            sort_positions(order, graph.indices, edges.positions, chunk, count, page_bits)
            for block in range(0, count, BLOCK):
                ask_ahead(graph.indices, order.keys, block, count, page_bits)
                for at in range(block, min(block + BLOCK, count)):
                    edge = chunk + np.int64(order.keys[np.uintp(at)] & NUMBER)
                    node = np.int64(graph.indices[np.uintp(edges.positions[np.uintp(edge)])]) - first_id
                    nodes.neighbors[np.uintp(edge)] = node
                    outside |= node | (last_node - node)
    return EDITED if outside < 0 else 0


@kernel
def read_types_by_page(
    page_bits: int, graph: TypePerEdge, columns: Runs, picks: PickBlock, counts: Int64s, order: Order
) -> int:
    """Read the edge type of each pick and count the picks per type, as `read_types` does, but in file order."""
    end = columns.offsets[columns.sizes[COUNT]]
    counts[:] = 0
    for chunk in range(0, end, CHUNK):
        count = min(end - chunk, CHUNK)
        sort_positions(order, graph.types, picks.positions, chunk, count, page_bits)
        for block in range(0, count, BLOCK):
            ask_ahead(graph.types, order.keys, block, count, page_bits)
            for at in range(block, min(block + BLOCK, count)):
                place = np.uintp(chunk + np.int64(order.keys[np.uintp(at)] & NUMBER))
                edge_type = graph.types[np.uintp(picks.positions[place])]
                if not 0 <= edge_type < counts.size:
                    return EDITED
                picks.types[place] = edge_type
                counts[np.uintp(edge_type)] += 1
    return 0
