"""Remembers which tensors have passed a check, so that they are not checked at each call.

A kernel reads where the values of a graph's arrays tell it to, so wrong values would make it read anything. Checking
them takes a pass over the arrays, and a mini-batch reads only a small part of them. So a check is repeated only for
other tensors, or after somebody has written to these: PyTorch counts the writes. It doesn't see writes through NumPy,
or by another process; after those, call the check itself.
"""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import torch

Tensors: TypeAlias = tuple[torch.Tensor | None, ...]
Seen: TypeAlias = tuple[tuple["weakref.ref[torch.Tensor]", int] | None, ...]

PASSED: dict[tuple[Hashable, ...], Seen] = {}
"""By the name of the check and the ids of its tensors: the tensors themselves, and how often each was written to."""


def count_writes(tensor: torch.Tensor) -> int:
    """Return how often PyTorch has written to a tensor; it does not count for tensors made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


def has_passed(what: Hashable, tensors: Tensors) -> bool:
    """Tell whether tensors have passed a check, and nobody has written to them since."""
    seen = PASSED.get((what, *map(id, tensors)))
    return seen is not None and all(
        tensor is None or (entry is not None and entry[0]() is tensor and entry[1] == count_writes(tensor))
        for entry, tensor in zip(seen, tensors, strict=True)
    )


def trust(what: Hashable, tensors: Tensors) -> None:
    """Note that tensors are right: they have just passed a check, or are made so."""
    key = (what, *map(id, tensors))

    def forget(_: object) -> None:
        PASSED.pop(key, None)

    PASSED[key] = tuple(
        None if tensor is None else (weakref.ref(tensor, forget), count_writes(tensor)) for tensor in tensors
    )


def check_once(what: Hashable, tensors: Tensors, check: Callable[[], None]) -> None:
    """Run a check, unless the tensors have passed it and nobody has written to them since.

    A GPU's arrays are not checked, because that would wait for the GPU.

    Args:
        what: The name of the check, and whatever else it depends on.
        tensors: What it reads.
        check: Raises if the tensors are wrong.
    """
    if not has_passed(what, tensors) and all(tensor is None or tensor.is_cpu for tensor in tensors):
        check()
        trust(what, tensors)


def passed_among(tensors: Sequence[torch.Tensor]) -> list[tuple[Hashable, tuple[int | None, ...]]]:
    """Return which checks some tensors have passed, with the tensors' positions, to note it of copies of them."""
    positions = {id(tensor): position for position, tensor in enumerate(tensors)}
    found = []
    # A copy in one step: the garbage collector may run while a list is made, and finalizers that it calls add checks.
    for (what, *ids), seen in PASSED.copy().items():
        of_these = [entry is None or known in positions for known, entry in zip(ids, seen, strict=True)]
        places = tuple(positions.get(known) if entry else None for known, entry in zip(ids, seen, strict=True))  # type: ignore[call-overload]
        if all(of_these) and has_passed(what, tuple(None if place is None else tensors[place] for place in places)):
            found.append((what, places))
    return found


def trust_copies(
    passed: Sequence[tuple[Hashable, tuple[int | None, ...]]], tensors: Sequence[torch.Tensor | None]
) -> None:
    """Note of copies what their originals have passed."""
    for what, places in passed:
        trust(what, tuple(None if place is None else tensors[place] for place in places))
