"""Fixed negatives for link prediction: pairs of nodes that are not edges, drawn once per data set."""

from collections.abc import Mapping
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.query import Query
from graphfeed.ingest.queries import entries
from graphfeed.ingest.tables.engine import BATCH_ROWS, as_numpy
from graphfeed.ops import Key
from graphfeed.ops.process import current_limits
from graphfeed.storage.datasets import RowFiles

MOST_DRAWS = 200
"""Number of draws of a destination after which a source counts as connected to all nodes."""


def write_links(
    rows: Query, arrays: RowFiles, table: str, part: str, ratio: int, timestamp: Mapping[str, str], destinations: int
) -> None:
    """Write the edges of a part, each followed by `ratio` pairs of its source that are not edges of the type."""
    # A pair depends on the part, its position and the number of its draw, but not on threads or memory.
    engine, size, place = rows.engine, ratio + 1, 0
    key: Any = Key(crc32(f"{table} {part}".encode()), 0, 0)
    repeated = {**timestamp, **({"seed_edge_ids": "rowid"} if rows.spec.has_edge_features else {})}

    def draw(places: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        bits: NDArray[np.uint64] = key.at(number, places.astype(np.uint64))  # independent for each position
        return (bits % np.uint64(destinations)).astype(np.int64)

    width = 3 + len(repeated)
    engine.run(entries.create_rows("links", ["BIGINT"] * width))
    for batch in engine.stream(entries.select(["source", "destination", *repeated.values()], table, part)):
        step = max(min(BATCH_ROWS, current_limits().part_values) // size, 1)
        for some in (batch.slice(start, step) for start in range(0, len(batch), step)):
            source, destination, *more = (np.repeat(as_numpy(column), size) for column in some.columns)
            places = np.arange(place, place + len(source))
            engine.insert("links", 0, [places, source, np.where(places % size, draw(places, 0), destination), *more])
            place += len(source)
    engine.run(entries.create_again(table, size, redrawn=False))
    for number in range(1, MOST_DRAWS):
        places_again = [as_numpy(batch.column(0)) for batch in engine.stream(entries.select(["c0"], "again"))]
        if not places_again:
            break
        engine.run(entries.create_rows("drawn", ["BIGINT"] * 2))
        for places in places_again:
            engine.insert("drawn", 0, [places, draw(places, number)])
        engine.run(entries.TAKE_DRAWN)
        engine.run(entries.create_again(table, size, redrawn=True))
    else:
        ((source, count),) = engine.rows(entries.FIRST_AGAIN)
        raise ValueError(
            f"negatives: {count} pairs are edges after {MOST_DRAWS} draws, such as those of source number {source}, "
            f"which has edges to nearly all of the {destinations} nodes; leave negatives out"
        )
    none = np.zeros(0, dtype=np.int64)
    batches = (
        [as_numpy(column) for column in batch.columns[1:]] for batch in engine.stream(entries.select(["*"], "links"))
    )
    for places, source, destination, *more in chain([[none] * width], batches):  # a part may be empty
        own = dict(zip(repeated, more, strict=True))
        items = {"seeds": np.stack([source, destination], axis=1), **{name: own[name] for name in timestamp}}
        items |= {"labels": (places % size == 0).astype(np.float32), "indexes": places // size, **own}
        for name, values in items.items():
            arrays.append(f"{part}_{name}", values)
    engine.run(entries.DROP_PAIRS)
