"""Records facts about tensors, so that operations don't check them again, for which they would synchronize with a GPU.

Later writes to a tensor are not detected.
"""

import weakref
from functools import partial
from typing import Literal, TypeAlias

import torch

Fact: TypeAlias = Literal["below", "ends at", "ascend below", "rise to"]
KNOWN: dict[tuple[Fact, int], tuple[int, "weakref.ref[torch.Tensor]"]] = {}
"""By facts and the ids of tensors: the number of the fact, and a reference that removes the entry."""


def note(fact: Fact, values: torch.Tensor, number: int) -> None:
    """Record that values are below a number, ascend below it, end at it, or never fall and end at it ("rise to")."""
    key = fact, id(values)
    # When it is freed, another tensor may get its id. The reference that `pop` is called with is its default.
    KNOWN[key] = number, weakref.ref(values, partial(KNOWN.pop, key))


def noted(fact: Fact, values: torch.Tensor) -> int | None:
    """Return the number of a recorded fact, or None."""
    known = KNOWN.get((fact, id(values)))
    return known[0] if known is not None and known[1]() is values else None


def mark_below(ids: torch.Tensor, bound: int) -> None:
    """Record that ids are in `0 .. bound - 1`, so that checking them takes no time, and no synchronization on a GPU."""
    note("below", ids, bound)


def are_below(ids: torch.Tensor, bound: int) -> bool:
    """Return whether ids were recorded as being in `0 .. bound - 1`, like the results of a GPU sampler."""
    known = noted("below", ids)
    return known is not None and known <= bound
