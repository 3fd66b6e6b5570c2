"""Fixed negatives for link prediction: pairs of nodes that are not edges, drawn once per data set."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.queries import entries
from graphfeed.ingest.tables.engine import BATCH_ROWS, Engine, as_numpy
from graphfeed.ops import Key
from graphfeed.ops.process import current_limits
from graphfeed.storage.datasets import RowFiles

Draw: TypeAlias = Callable[[NDArray[np.int64], int], NDArray[np.int64]]
"""Draws a node for each position, by the number of the draw."""
MOST_DRAWS = 200
"""Number of draws of a destination after which a source counts as connected to all nodes."""


def write_links(
    rows: Query, arrays: RowFiles, table: str, part: str, ratio: int, timestamp: Mapping[str, str], destinations: int
) -> None:
    """Write the edges of a part, each followed by `ratio` pairs of its source that are not edges of the type."""
    # A pair depends on the part, its position and the number of its draw, but not on threads or memory.
    draw = partial(draw_nodes, Key(crc32(f"{table} {part}".encode()), 0, 0), destinations)
    repeated = {**timestamp, **({"seed_edge_ids": "rowid"} if rows.spec.has_edge_features else {})}
    columns = ["source", "destination", *repeated.values()]
    insert_pairs(rows.engine, entries.select(columns, table, part), len(columns), ratio + 1, draw)
    redraw_edges(rows.engine, table, ratio + 1, draw, destinations)
    write_items(rows.engine, arrays, part, ratio + 1, list(repeated), timestamp)
    rows.engine.run(entries.DROP_PAIRS)


def draw_nodes(key: Any, count: int, places: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Return a node below `count` for each position, by the number of the draw, independently for each position."""
    bits: NDArray[np.uint64] = key.at(number, places.astype(np.uint64))
    return (bits % np.uint64(count)).astype(np.int64)


def insert_pairs(engine: Engine, edges: str, num_columns: int, size: int, draw: Draw) -> None:
    """Insert each edge of a query `size` times into the table `links`: itself, then with other destinations."""
    engine.run(entries.create_rows("links", ["BIGINT"] * (1 + num_columns)))
    place, step = 0, max(min(BATCH_ROWS, current_limits().part_values) // size, 1)
    for batch in engine.stream(edges):
        for some in (batch.slice(start, step) for start in range(0, len(batch), step)):
            source, destination, *more = (np.repeat(as_numpy(column), size) for column in some.columns)
            places = np.arange(place, place + len(source))
            engine.insert("links", 0, [places, source, np.where(places % size, draw(places, 0), destination), *more])
            place += len(source)


def redraw_edges(engine: Engine, edges: str, size: int, draw: Draw, destinations: int) -> None:
    """Draw new destinations for the negatives that are among the edges, a table, until none is."""
    engine.run(entries.create_again(edges, size, redrawn=False))
    for number in range(1, MOST_DRAWS):
        places_again = [as_numpy(batch.column(0)) for batch in engine.stream(entries.select(["c0"], "again"))]
        if not places_again:
            return
        engine.run(entries.create_rows("drawn", ["BIGINT"] * 2))
        for places in places_again:
            engine.insert("drawn", 0, [places, draw(places, number)])
        engine.run(entries.TAKE_DRAWN)
        engine.run(entries.create_again(edges, size, redrawn=True))
    ((source, count),) = engine.rows(entries.FIRST_AGAIN)
    raise ValueError(
        f"negatives: {count} pairs are edges after {MOST_DRAWS} draws, such as those of source number {source}, "
        f"which has edges to nearly all of the {destinations} nodes; leave negatives out"
    )


def write_items(
    engine: Engine, arrays: RowFiles, part: str, size: int, repeated: Sequence[str], timestamp: Collection[str]
) -> None:
    """Write the pairs as items, in the order of their positions. Further columns are those that edges repeat."""
    none = np.zeros(0, dtype=np.int64)
    batches = (
        [as_numpy(column) for column in batch.columns[1:]] for batch in engine.stream(entries.select(["*"], "links"))
    )
    for places, source, destination, *more in chain([[none] * (3 + len(repeated))], batches):  # a part may be empty
        own = dict(zip(repeated, more, strict=True))
        items = {"seeds": np.stack([source, destination], axis=1), **{name: own[name] for name in timestamp}}
        items |= {"labels": (places % size == 0).astype(np.float32), "indexes": places // size, **own}
        for name, values in items.items():
            arrays.append(f"{part}_{name}", values)
