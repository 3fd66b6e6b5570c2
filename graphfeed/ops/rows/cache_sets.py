"""Which rows a cache in a GPU's memory keeps: a key may lie in few places, so that one warp looks at all of them."""

from dataclasses import dataclass
from math import prod

import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.checks import check_vector

WAYS = 32
"""Places that a key may lie in, at most: as many as a warp has lanes."""
BYTES_PER_PLACE = 16


@dataclass(frozen=True)
class CacheSets:
    """The places of a cache, in sets; a key's hash says in which set it may lie.

    Place `way` of set `number` is slot `number * ways + way`. Look-ups and replacements change the tensors, so only one
    may run at a time.
    """

    keys: torch.Tensor
    """int64, shape (sets, ways): the key of each place, -1 where there is none."""
    uses: torch.Tensor
    """int64, shape (sets, ways): the number of the request that each was last used by, -1 for none."""


def new_sets(capacity: int, device: torch.device | str = "cpu") -> CacheSets:
    """Return the empty places of a cache.

    Args:
        capacity: How many there are at most, 0 or more: sets are equally large, so that some few may be left out.
        device: Where the cache lies, and who works on it.

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
    """Return how many sets there are of how many places, so that no more than a few are left out.

    Example:
        >>> set_shape(70), set_shape(1000)
        ((3, 23), (31, 32))
    """
    if capacity < 0:
        raise ValueError(f"capacity must be 0 or more, but is {capacity}")
    full, some = capacity // WAYS, -(-capacity // WAYS)
    return max((full, WAYS), (some, capacity // max(1, some)), key=prod)


def clear_sets(sets: CacheSets) -> None:
    """Forget all keys."""
    sets.keys.fill_(-1)
    sets.uses.fill_(-1)


def find_in_sets(sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Look keys up, and note which request asked for them; costs one read of a set a key.

    Args:
        sets: Changed.
        keys: int64, 0 or more, which nobody checks; any number of times the same.
        request: A number above those of all calls before.

    Returns:
        int64: the slot of each key, -1 for those that are missing.
    """
    return find_slots("find_in_sets", sets, keys, request)


def replace_in_sets(sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Give keys a slot each; in each set those that were not used for longest make room, of several the first.

    A key that is there keeps its slot. What this request, or a later one, used or put in stays: a key for which there
    is no other place passes the cache by. So no two keys of a call get the same slot. Costs a sort of the keys by set.

    Args:
        sets: Changed.
        keys: int64, 0 or more, each once, which nobody checks.
        request: The number of the request whose keys these are.

    Returns:
        int64: where the values of each key go, or -1 for those that pass by.
    """
    return find_slots("replace_in_sets", sets, keys, request)


def find_slots(kernel: str, sets: CacheSets, keys: torch.Tensor, request: int) -> torch.Tensor:
    """Return the slots that a kernel finds for keys; none where there are no places."""
    check_vector("keys", keys, (torch.int64,))
    slots = buffers.empty(keys.numel(), torch.int64, keys.device)
    if sets.keys.numel() == 0 or keys.numel() == 0:
        return slots.fill_(-1)
    module = kernels("rows.cache_sets", keys, sets=sets.keys)
    run = getattr(module, kernel)
    run(*as_kernel_args(keys, sets.keys, sets.uses, keys.contiguous()), request, *as_kernel_args(keys, slots))
    return slots
