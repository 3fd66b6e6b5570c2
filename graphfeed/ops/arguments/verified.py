"""Remembers which tensors have passed a check, which would take a pass over all of a graph for each mini-batch.

What is written to them later is not seen: after that, call the check itself, such as `graph.check()`.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import torch

Tensors: TypeAlias = tuple[torch.Tensor | None, ...]

PASSED: dict[tuple[Hashable, ...], list["weakref.ref[torch.Tensor]"]] = {}
"""By the name of a check and the ids of its tensors: references that remove the entry when one of these is gone."""

BELOW: dict[int, tuple[int, "weakref.ref[torch.Tensor]"]] = {}
"""By the ids of tensors on a GPU: what all of their values lie below, and what removes this when the tensor is gone."""


def has_passed(what: Hashable, tensors: Tensors) -> bool:
    """Tell whether these very tensors have passed a check."""
    found = PASSED.get((what, *map(id, tensors)))
    # An interrupt may have kept a reference from removing the entry.
    return found is not None and all(reference() is not None for reference in found)


def mark_valid(what: Hashable, tensors: Tensors) -> None:
    """Note that tensors are right: they have just passed a check, or are made so."""
    key = (what, *map(id, tensors))
    # Once one of them is gone, another tensor may get its id, which has passed nothing.
    PASSED[key] = [weakref.ref(part, lambda _: PASSED.pop(key, None)) for part in tensors if part is not None]


def forget_valid(what: Hashable, tensors: Tensors) -> None:
    """Have a check run again at its next call."""
    PASSED.pop((what, *map(id, tensors)), None)


def check_once(what: Hashable, tensors: Tensors, check: Callable[[], None]) -> None:
    """Run a check of some name, unless the tensors passed it or lie on a GPU, which would have to be waited for."""
    if not has_passed(what, tensors) and all(getattr(tensor, "is_cpu", True) for tensor in tensors):
        check()
        mark_valid(what, tensors)


def passed_among(tensors: Sequence[torch.Tensor]) -> list[tuple[Hashable, tuple[int | None, ...]]]:
    """Return which checks some tensors have passed, with the tensors' positions, to note it of copies of them."""
    positions: dict[Hashable, int | None] = {id(tensor): position for position, tensor in enumerate(tensors)}
    positions[id(None)] = None
    # A copy in one step: the garbage collector may run while a list is made, and finalizers that it calls add checks.
    passed = [what for what in PASSED.copy() if all(part in positions for part in what[1:])]
    return [(what, tuple(positions[part] for part in parts)) for what, *parts in passed]


def mark_copies_valid(
    passed: Sequence[tuple[Hashable, tuple[int | None, ...]]], tensors: Sequence[torch.Tensor | None]
) -> None:
    """Note of copies what their originals have passed."""
    for what, positions in passed:
        mark_valid(what, tuple(None if position is None else tensors[position] for position in positions))


def mark_below(ids: torch.Tensor, bound: int) -> None:
    """Note that ids on a GPU lie in `0 .. bound - 1`, so that nobody waits for the GPU to check them."""
    key = id(ids)
    # Once it is gone, another tensor may get its id.
    BELOW[key] = bound, weakref.ref(ids, lambda _: BELOW.pop(key, None))


def are_below(ids: torch.Tensor, bound: int) -> bool:
    """Tell whether ids are noted as ids below a bound, as those that a GPU's sampler made are."""
    known = BELOW.get(id(ids))
    return known is not None and known[0] <= bound and known[1]() is ids
