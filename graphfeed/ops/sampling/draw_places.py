"""Draw positions with replacement, uniformly or by weight."""

import torch

from graphfeed.ops.arguments import (
    MOST_VALUES,
    NOTHING,
    check_count,
    check_length,
    check_seed,
    check_vector,
    note,
    noted,
)
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers


def draw_places(count: int, key: int, size: int, cumulative: torch.Tensor = NOTHING) -> torch.Tensor:
    """Draw `count` positions in `0 .. size - 1` with replacement, int64. Draw `i` depends only on the key and on `i`.

    Draws are uniform unless `cumulative` has the running sums of weights, as `cumulate_weights` returns for one column.

    Raises:
        ValueError: `size` is 0, `cumulative` has another length, or the running sums decrease or end at 0.

    Example:
        >>> bool((draw_places(100, 7, 10) < 10).all())
        True
        >>> draw_places(3, 7, 4, torch.tensor([0, 0, 5, 5])).tolist()
        [2, 2, 2]
    """
    check_count("count", count, 0, MOST_VALUES)
    check_seed("key", key)
    check_count("size", size, 1, MOST_VALUES)
    check_vector("cumulative", cumulative, (torch.int64,))
    if cumulative.numel():
        check_length("cumulative", cumulative, size, "place")
        check_sums("cumulative", cumulative)
    module = kernels("sampling.draw_places", cumulative)
    out = buffers.empty(count, torch.int64, cumulative.device)
    module.draw_places(size, cumulative.contiguous(), key, out)
    return out


def check_sums(name: str, cumulative: torch.Tensor) -> None:
    """Raise unless running sums never fall and end above 0. This takes a pass over them, at the first call alone."""
    if noted("rise to", cumulative) is not None:
        return
    if int(cumulative[0]) < 0 or int(cumulative[-1]) <= 0 or bool((cumulative[1:] < cumulative[:-1]).any()):
        raise ValueError(f"{name} must be running sums that never fall and end above 0; use cumulate_weights")
    note("rise to", cumulative, int(cumulative[-1]))
