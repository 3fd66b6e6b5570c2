"""Records the bounds of ids on a GPU, so that operations don't synchronize to check them again.

Later writes to a tensor are not detected.
"""

import weakref

import torch

BELOW: dict[int, tuple[int, "weakref.ref[torch.Tensor]"]] = {}
"""By the ids of tensors on a GPU: the bound of their values, and a reference that removes the entry."""


def mark_below(ids: torch.Tensor, bound: int) -> None:
    """Record that ids on a GPU are in `0 .. bound - 1`, so that checking them needs no synchronization."""
    key = id(ids)
    # When it is freed, another tensor may get its id.
    BELOW[key] = bound, weakref.ref(ids, lambda _: BELOW.pop(key, None))


def are_below(ids: torch.Tensor, bound: int) -> bool:
    """Return whether ids were recorded as being in `0 .. bound - 1`, like the results of a GPU sampler."""
    known = BELOW.get(id(ids))
    return known is not None and known[0] <= bound and known[1]() is ids
