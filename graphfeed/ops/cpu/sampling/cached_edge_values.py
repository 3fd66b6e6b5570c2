"""Reads values of edges from cached columns, or from the graph: by NumPy, as only a GPU has such a cache."""

from typing import Any

import numpy as np

NOT_CACHED = -(1 << 62)


def read_edges(values: Any, cached: Any, offsets: Any, positions: Any, cache_offsets: Any, out: Any) -> None:
    """Write the value of each pick."""
    shifts = np.repeat(cache_offsets.numpy(), np.diff(offsets.numpy()))
    places, is_cached = positions.numpy(), shifts != NOT_CACHED
    out.numpy()[:] = values.numpy()[places]
    out.numpy()[is_cached] = cached.numpy()[(places + shifts)[is_cached]]
