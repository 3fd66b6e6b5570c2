"""A set-associative cache for GPU memory. A key has few possible places, so that a single warp can compare all."""

from dataclasses import dataclass
from math import prod

import torch

from graphfeed.ops.arguments import LARGEST, MOST_VALUES, check_count, check_tensors, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers

WAYS = 32
"""Maximum number of places per set: the number of lanes of a warp."""
BYTES_PER_PLACE = 16


@dataclass(frozen=True)
class CacheSets:
    """The slots of a set-associative cache. The hash of a key selects its set.

    Place `way` of set `number` is slot `number * ways + way`. Lookups and replacements modify the tensors, so only one
    may run at a time. Their arguments are keys (int64, 0 or more, not checked) and an increasing request number.
    """

    keys: torch.Tensor
    """int64, shape (sets, ways): the key in each place, -1 if it is empty."""
    uses: torch.Tensor
    """int64, shape (sets, ways): the number of the last request that used each place, -1 for none."""


def new_sets(capacity: int, device: torch.device | str = "cpu") -> CacheSets:
    """Return an empty cache of at most `capacity` places; slightly fewer if sets of equal size need it.

    Example:
        >>> sets = new_sets(2)
        >>> replace_in_sets(sets, torch.tensor([5, 7]), request=0).tolist()
        [0, 1]
        >>> find_in_sets(sets, torch.tensor([7, 6]), request=1).tolist()
        [1, -1]
    """
    shape = set_shape(capacity)
    return CacheSets(*(torch.full(shape, -1, dtype=torch.int64, device=device) for _ in range(2)))


def set_shape(capacity: int) -> tuple[int, int]:
    """Return the number of sets and their size that use the most of a capacity.

    Example:
        >>> set_shape(70), set_shape(1000)
        ((3, 23), (31, 32))
    """
    check_count("capacity", capacity, 0, MOST_VALUES)
    full, some = capacity // WAYS, -(-capacity // WAYS)
    # Only full sets, or one more set with all sets smaller.
    return max((full, WAYS), (some, capacity // max(1, some)), key=prod)


def check_sets(sets: CacheSets) -> None:
    for name, part in (("keys", sets.keys), ("uses", sets.uses)):
        check_tensors(**{f"sets.{name}": part})
        if part.dtype != torch.int64 or part.dim() != 2 or not part.is_contiguous() or part.shape != sets.keys.shape:
            raise ValueError(
                f"sets.{name} must be a contiguous int64 tensor of shape {tuple(sets.keys.shape)}, but is {part.dtype} "
                f"of shape {tuple(part.shape)}; create both with new_sets"
            )


def clear_sets(sets: CacheSets) -> None:
    """Remove all keys."""
    sets.keys.fill_(-1)
    sets.uses.fill_(-1)


def find_in_sets(sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Return the slot of each key, int64, or -1 if it is missing, and record the request. Keys may repeat."""
    return cache_slots("find_in_sets", sets, keys, request)


def replace_in_sets(sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Assign a slot to each key, evicting the least recently used key of its set; of ties, the first.

    Returns the slot of each key, int64, or -1 if all places of its set have keys used or stored by this or a later
    request. A key that has a slot keeps it. Keys must be distinct; they are processed by set.
    """
    return cache_slots("replace_in_sets", sets, keys, request)


def cache_slots(kernel: str, sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Return the slots that a kernel finds for keys, or -1 for each if the cache has no places."""
    check_vector("keys", keys, (torch.int64,))
    check_sets(sets)
    check_count("request", request, -1, LARGEST)
    slots = buffers.empty(keys.numel(), torch.int64, keys.device)
    if sets.keys.numel() == 0 or keys.numel() == 0:
        return slots.fill_(-1)
    module = kernels("rows.cache_sets", keys, sets=sets.keys)
    run = getattr(module, kernel)
    run(sets.keys, sets.uses, keys.contiguous(), request, slots)
    return slots
