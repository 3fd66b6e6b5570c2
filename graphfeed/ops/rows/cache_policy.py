"""Eviction policies for caches, on arrays. A policy assigns slots to keys and knows nothing of the values."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import brief, check_count, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.rows.cache_policy import LISTS, Lists
from graphfeed.ops.memory import buffers

POLICIES = ("sieve", "s3-fifo", "lru", "clock")
"""The names of policies that are accepted; each gets SIEVE."""
MOST_SLOTS = 1 << 30


@dataclass(frozen=True)
class PolicyState:
    """The state of a policy. Queries and replacements change the arrays, so only one of them may run at a time."""

    lists: Lists


class Found(NamedTuple):
    """The slots of some keys."""

    hit_index: torch.Tensor
    """int64: the positions of the keys that were found."""
    hit_slots: torch.Tensor
    """int64: the slots of those keys."""
    missing_index: torch.Tensor
    """int64: the positions of the missing keys."""


def new_policy(policy: str, capacity: int) -> PolicyState:
    """Return the initial state of a policy.

    Args:
        policy: "sieve" (Zhang et al., NSDI 2024) has a queue, and a hand that spares queried slots. "s3-fifo", "lru"
            and "clock", which GraphBolt has, get SIEVE: it misses less than LRU, in half of the memory of S3-FIFO.
        capacity: The number of slots, 0 or more. They take `policy_bytes` of memory.

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
    """Return the memory that the state of a policy takes for a number of slots: 25 to 33 bytes each.

    Example:
        >>> policy_bytes(1 << 20) >> 20
        25
    """
    return sum(size * np.dtype(dtype).itemsize for size, dtype in count_parts(capacity))


def count_parts(capacity: int) -> list[tuple[int, type[np.generic]]]:
    """Return the length and dtype of each array of a state, in the order of its fields."""
    check_count("capacity", capacity, 0, MOST_SLOTS)
    capacity = int(capacity)
    # A hash table, of whose places at most half are in use.
    places, links = 1 << max(2 * capacity - 1, 1).bit_length(), capacity + LISTS
    return [
        (places, np.int32), (capacity, np.int64), (links, np.int32), (links, np.int32), (capacity, np.uint8),
        (1, np.int64),
    ]  # fmt: skip


def clear_policy(state: PolicyState) -> None:
    """Forget all keys."""
    kernels("rows.cache_policy", torch.empty(0, device="cpu")).clear(state.lists)


def find_keys(state: PolicyState, keys: torch.Tensor) -> Found:
    """Look keys up (int64, 0 or more; they may repeat), and mark them as queried in the state."""
    check_vector("keys", keys, (torch.int64,))
    module = kernels("rows.cache_policy", keys)
    places = buffers.empty(keys.numel(), torch.int64)
    slots = buffers.empty(keys.numel(), torch.int64)
    missing = buffers.empty(keys.numel(), torch.int64)
    hits = module.find_keys(state.lists, keys.contiguous(), places, slots, missing)
    return Found(places[:hits], slots[:hits], missing[: keys.numel() - hits])


def replace_keys(state: PolicyState, keys: torch.Tensor) -> torch.Tensor:
    """Assign a slot to each key (int64, 0 or more) in turn, and evict the keys that the policy picks, in the state.

    Return int64: the slot of each key, -1 for those that are not admitted: a call admits at most as many as there are
    slots. A key that has a slot keeps it, and its rank. A later key may get the slot of an earlier one, so write the
    values in order.
    """
    check_vector("keys", keys, (torch.int64,))
    slots = buffers.empty(keys.numel(), torch.int64)
    module = kernels("rows.cache_policy", keys)
    module.replace_keys(state.lists, keys.contiguous(), slots)
    return slots
