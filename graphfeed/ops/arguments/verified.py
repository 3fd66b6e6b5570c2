"""Records which tensors have passed a check, so that a graph is not checked again for each mini-batch.

Later writes to a tensor are not detected: call the check itself after them, such as `graph.check()`.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import torch

Tensors: TypeAlias = tuple[torch.Tensor | None, ...]

PASSED: dict[tuple[Hashable, ...], list["weakref.ref[torch.Tensor]"]] = {}
"""By the name of a check and the ids of its tensors: references that remove the entry when a tensor is freed."""

BELOW: dict[int, tuple[int, "weakref.ref[torch.Tensor]"]] = {}
"""By the ids of tensors on a GPU: the bound of their values, and a reference that removes the entry."""


def is_verified(what: Hashable, tensors: Tensors) -> bool:
    """Return whether these tensor objects have passed a check."""
    found = PASSED.get((what, *map(id, tensors)))
    # An interrupt may have kept a reference from removing the entry.
    return found is not None and all(reference() is not None for reference in found)


def mark_valid(what: Hashable, tensors: Tensors) -> None:
    """Record that tensors have passed a check, or are valid by construction."""
    key = (what, *map(id, tensors))
    # When one is freed, its id may be reused by a tensor that has not passed.
    PASSED[key] = [weakref.ref(part, lambda _: PASSED.pop(key, None)) for part in tensors if part is not None]


def forget_valid(what: Hashable, tensors: Tensors) -> None:
    """Make the next `check_once` run the check again."""
    PASSED.pop((what, *map(id, tensors)), None)


def check_once(what: Hashable, tensors: Tensors, check: Callable[[], None]) -> None:
    """Run a check, unless the tensors have passed it or one is on a GPU, where checking would synchronize."""
    if not is_verified(what, tensors) and all(getattr(tensor, "is_cpu", True) for tensor in tensors):
        check()
        mark_valid(what, tensors)


def passed_among(tensors: Sequence[torch.Tensor]) -> list[tuple[Hashable, tuple[int | None, ...]]]:
    """Return the checks that tensors have passed, with their positions, as an argument of `mark_copies_valid`."""
    positions: dict[Hashable, int | None] = {id(tensor): position for position, tensor in enumerate(tensors)}
    positions[id(None)] = None
    # Copy atomically: the garbage collector may run while a list is built, and its finalizers may add checks.
    passed = [what for what in PASSED.copy() if all(part in positions for part in what[1:])]
    return [(what, tuple(positions[part] for part in parts)) for what, *parts in passed]


def mark_copies_valid(
    passed: Sequence[tuple[Hashable, tuple[int | None, ...]]], tensors: Sequence[torch.Tensor | None]
) -> None:
    """Record that copies have passed the checks of their originals."""
    for what, positions in passed:
        mark_valid(what, tuple(None if position is None else tensors[position] for position in positions))


def mark_below(ids: torch.Tensor, bound: int) -> None:
    """Record that ids on a GPU are in `0 .. bound - 1`, so that checking them needs no synchronization."""
    key = id(ids)
    # When it is freed, another tensor may get its id.
    BELOW[key] = bound, weakref.ref(ids, lambda _: BELOW.pop(key, None))


def are_below(ids: torch.Tensor, bound: int) -> bool:
    """Return whether ids were recorded as being in `0 .. bound - 1`, like the results of a GPU sampler."""
    known = BELOW.get(id(ids))
    return known is not None and known[0] <= bound and known[1]() is ids
