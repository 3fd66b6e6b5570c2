"""Cache eviction policies on arrays. A policy assigns slots to keys; the values are stored elsewhere."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import brief, check_count, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.rows.cache_policy import LISTS, Lists
from graphfeed.ops.memory import buffers

POLICIES = ("sieve", "s3-fifo", "lru", "clock")
"""Accepted names of policies. All of them are implemented by SIEVE."""
MOST_SLOTS = 1 << 30


@dataclass(frozen=True)
class PolicyState:
    """The state of a policy. Queries and replacements modify the arrays, so only one may run at a time."""

    lists: Lists


class SlotLookup(NamedTuple):
    """The result of a lookup of keys."""

    hit_index: torch.Tensor
    """int64: the positions of the keys that were found."""
    hit_slots: torch.Tensor
    """int64: the slots of those keys."""
    missing_index: torch.Tensor
    """int64: the positions of the missing keys."""


def new_policy(policy: str, capacity: int) -> PolicyState:
    """Return the initial state of a policy.

    Args:
        policy: "sieve" (Zhang et al., NSDI 2024) is a queue with a hand that spares queried slots. GraphBolt's names
            "s3-fifo", "lru" and "clock" also select SIEVE: it misses less than LRU, in half the memory of S3-FIFO.
        capacity: The number of slots, 0 or more. See `policy_bytes` for the memory.

    Example:
        >>> state = new_policy("sieve", 2)
        >>> replace_keys(state, torch.tensor([5, 7])).tolist()
        [0, 1]
        >>> find_keys(state, torch.tensor([5, 6])).missing_index.tolist()
        [1]
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, but is {brief(policy)}")
    state = PolicyState(Lists(*(np.empty(size, dtype) for size, dtype in count_parts(capacity))))
    clear_policy(state)
    return state


def policy_bytes(capacity: int) -> int:
    """Return the size of a policy's state in bytes: 25 to 33 per slot.

    Example:
        >>> policy_bytes(1 << 20) >> 20
        25
    """
    return sum(size * np.dtype(dtype).itemsize for size, dtype in count_parts(capacity))


def count_parts(capacity: int) -> list[tuple[int, type[np.generic]]]:
    """Return the length and dtype of each array of a state, in the order of its fields."""
    check_count("capacity", capacity, 0, MOST_SLOTS)
    capacity = int(capacity)
    # A hash table with at most half of its places in use.
    places, links = 1 << max(2 * capacity - 1, 1).bit_length(), capacity + LISTS
    return [
        (places, np.int32), (capacity, np.int64), (links, np.int32), (links, np.int32), (capacity, np.uint8),
        (1, np.int64),
    ]  # fmt: skip


def clear_policy(state: PolicyState) -> None:
    """Remove all keys."""
    kernels("rows.cache_policy", torch.empty(0, device="cpu")).clear_state(state.lists)


def find_keys(state: PolicyState, keys: torch.Tensor) -> SlotLookup:
    """Look up keys (int64, 0 or more; duplicates are allowed), and mark them as queried."""
    check_vector("keys", keys, (torch.int64,))
    module = kernels("rows.cache_policy", keys)
    places = buffers.empty(keys.numel(), torch.int64)
    slots = buffers.empty(keys.numel(), torch.int64)
    missing = buffers.empty(keys.numel(), torch.int64)
    hits = module.find_keys(state.lists, keys.contiguous(), places, slots, missing)
    return SlotLookup(places[:hits], slots[:hits], missing[: keys.numel() - hits])


def replace_keys(state: PolicyState, keys: torch.Tensor) -> torch.Tensor:
    """Assign a slot to each key (int64, 0 or more) in order, evicting other keys as needed.

    Returns the slot of each key, int64, or -1 for keys that are not admitted: a call admits at most as many keys as
    there are slots. A key that has a slot keeps it, and its rank. A later key may get the slot of an earlier one, so
    write the values in order.
    """
    check_vector("keys", keys, (torch.int64,))
    slots = buffers.empty(keys.numel(), torch.int64)
    module = kernels("rows.cache_policy", keys)
    module.replace_keys(state.lists, keys.contiguous(), slots)
    return slots
