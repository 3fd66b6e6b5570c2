"""Slow, obvious answers about a stream of events."""

import numpy as np

from tests.kinds.events import ITEMS, NUM_EVENTS, TIMES, USERS

Row = tuple[int, int, int]

BOTH: list[tuple[int, Row]] = sorted(
    (
        (int(node), (int(other), int(time), edge))
        for edge, (node, other, time) in enumerate(
            zip(np.append(ITEMS, USERS), np.append(USERS, ITEMS), np.tile(TIMES, 2), strict=True)
        )
    ),
    key=lambda view: (view[1][1], view[1][2]),
)
"""Each event from the view of both of its nodes, by time: a node, and its neighbour, time and edge."""
assert len(BOTH) == 2 * NUM_EVENTS


def seen(node: int, before: int, since: int | None = None) -> list[Row]:
    """Return what a node sees strictly before a time, and strictly after another one, oldest first."""
    return [row for own, row in BOTH if own == node and row[1] < before and (since is None or row[1] > since)]


def last(node: int, before: int, count: int, since: int | None = None) -> list[Row]:
    """Return the last neighbours, times and edges that a node sees, oldest first."""
    return seen(node, before, since)[-count:]
