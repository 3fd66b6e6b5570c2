"""Slow, obvious answers about a stream of events."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.kinds.events import ITEMS, NUM_EVENTS, TIMES, USERS

BOTH = pd.DataFrame(
    {
        "node": np.concatenate([ITEMS, USERS]),
        "other": np.concatenate([USERS, ITEMS]),
        "time": np.tile(TIMES, 2),
        "edge": np.arange(2 * NUM_EVENTS),
    }
)
"""Each event from the view of both of its nodes."""


def seen(node: int, before: int, since: int | None = None) -> pd.DataFrame:
    """Return what a node sees strictly before a time, and strictly after another one, oldest first."""
    rows = BOTH[(BOTH.node == node) & (BOTH.time < before)]
    return (rows if since is None else rows[rows.time > since]).sort_values("time", kind="stable")


def last(node: int, before: int, count: int, since: int | None = None) -> NDArray[Any]:
    """Return the last neighbours, times and edges that a node sees, oldest first, shape (found, 3)."""
    return seen(node, before, since)[["other", "time", "edge"]].to_numpy()[-count:]
