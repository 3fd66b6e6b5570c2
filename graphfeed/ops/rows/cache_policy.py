"""Which rows a cache keeps: eviction policies on arrays, which know keys and slots and nothing of values."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import check_vector

POLICIES = ("sieve", "s3-fifo", "lru", "clock")
SIEVE, S3_FIFO, LRU, CLOCK = range(len(POLICIES))

NUMBERS = ("capacity", "small target", "main target", "ghosts", "small", "main", "remembered", "hand")
CAPACITY, SMALL_TARGET, MAIN_TARGET, GHOSTS, SMALL_SIZE, MAIN_SIZE, GHOST_SIZE, HAND = range(len(NUMBERS))
"""Places in `PolicyState.numbers`."""

LISTS = ("main", "small", "ghost", "free", "spare")
MAIN, SMALL, GHOST, FREE, SPARE = range(len(LISTS))
"""Each list has a sentinel after all nodes, in this order."""

MOST_SLOTS = 1 << 30
SMALL_SHARE = 10
"""S3-FIFO's small queue takes one slot in so many."""


@dataclass(frozen=True)
class PolicyState:
    """What a policy remembers; queries and replacements change the arrays, so only one may run at a time.

    Nodes below the capacity are slots of the cache; those from there on are S3-FIFO's ghosts, keys without a slot.
    """

    policy: int
    table: NDArray[np.int32]
    """Open addressing: the node of a key, or -1."""
    keys: NDArray[np.int64]
    """The key of a node."""
    newer: NDArray[np.int32]
    """The next node towards the newest in its list; a sentinel's is the oldest."""
    older: NDArray[np.int32]
    """The next node towards the oldest; a sentinel's is the newest."""
    marks: NDArray[np.uint8]
    """How often a slot was asked for since it was last looked at, as far as the policy counts."""
    numbers: NDArray[np.int64]
    """Sizes and the hand, at the places above."""


class Found(NamedTuple):
    """The slots of some keys."""

    hit_index: torch.Tensor
    """int64: positions of the keys that are there."""
    hit_slots: torch.Tensor
    """int64: their slots."""
    missing_index: torch.Tensor
    """int64: positions of the keys that aren't."""


def new_policy(policy: str, capacity: int) -> PolicyState:
    """Return the state of a policy that has seen nothing.

    Args:
        policy: "sieve" (Zhang et al., NSDI 2024): a queue and a hand that spares what was asked for. "s3-fifo" (Yang
            et al., SOSP 2023): a small queue in front of the main one, and a memory of what left it. "lru". "clock".
        capacity: Number of slots, 0 or more; what they cost in memory is `policy_bytes`.

    Example:
        >>> state = new_policy("lru", 2)
        >>> replace_keys(state, torch.tensor([5, 7])).tolist()
        [0, 1]
        >>> find_keys(state, torch.tensor([5, 6])).missing_index.tolist()
        [1]
    """
    sizes = count_parts(policy, capacity)
    state = PolicyState(POLICIES.index(policy), *(np.empty(size, dtype) for size, dtype in sizes))
    small = max(1, capacity // SMALL_SHARE)
    state.numbers[:GHOSTS] = capacity, small, max(0, capacity - small)
    state.numbers[GHOSTS] = state.keys.size - capacity
    clear_policy(state)
    return state


def policy_bytes(policy: str, capacity: int) -> int:
    """Return what the state of a policy takes in memory: some 25 to 33 bytes a slot, twice that for "s3-fifo".

    Args:
        policy: As for `new_policy`.
        capacity: As for `new_policy`.

    Example:
        >>> policy_bytes("sieve", 1 << 20) >> 20, policy_bytes("s3-fifo", 1 << 20) >> 20
        (25, 47)
    """
    return sum(size * np.dtype(dtype).itemsize for size, dtype in count_parts(policy, capacity))


def count_parts(policy: str, capacity: int) -> list[tuple[int, type[np.generic]]]:
    """Return length and dtype of each array of a state, in the order of its fields."""
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, but is {policy!r}")
    if not 0 <= capacity <= MOST_SLOTS:
        raise ValueError(f"capacity must lie in 0 .. {MOST_SLOTS}, but is {capacity}")
    ghosts = max(0, capacity - max(1, capacity // SMALL_SHARE)) if policy == POLICIES[S3_FIFO] else 0
    nodes = capacity + ghosts
    links = nodes + len(LISTS)
    places = 1 << max(2 * nodes - 1, 1).bit_length()
    return [
        (places, np.int32),
        (nodes, np.int64),
        (links, np.int32),
        (links, np.int32),
        (capacity, np.uint8),
        (len(NUMBERS), np.int64),
    ]


def clear_policy(state: PolicyState) -> None:
    """Forget all keys."""
    module = kernels("rows.cache_policy", torch.empty(0))
    module.clear(state.table, state.newer, state.older, state.marks, state.numbers)


def find_keys(state: PolicyState, keys: torch.Tensor) -> Found:
    """Look keys up, and note that they were asked for.

    Args:
        state: Changed.
        keys: int64, 0 or more; any number of times the same.
    """
    check_vector("keys", keys, (torch.int64,))
    module = kernels("rows.cache_policy", keys)
    places = buffers.empty(keys.numel(), torch.int64)
    slots = buffers.empty(keys.numel(), torch.int64)
    missing = buffers.empty(keys.numel(), torch.int64)
    hits = module.find_keys(
        state.policy, state.table, state.keys, state.newer, state.older, state.marks, state.numbers,
        keys.contiguous().numpy(), places.numpy(), slots.numpy(), missing.numpy(),
    )  # fmt: skip
    return Found(places[:hits], slots[:hits], missing[: keys.numel() - hits])


def replace_keys(state: PolicyState, keys: torch.Tensor) -> torch.Tensor:
    """Give keys a slot each, one after the other, and evict what the policy picks.

    A key that is there keeps its slot and its standing. At most as many keys as there are slots are let in; the rest
    of a larger call passes the cache by. A later key may take the slot of an earlier one, so write values in order.

    Args:
        state: Changed.
        keys: int64, 0 or more.

    Returns:
        int64: where the values of each key go, or -1 for those that pass by.
    """
    check_vector("keys", keys, (torch.int64,))
    slots = buffers.empty(keys.numel(), torch.int64)
    kernels("rows.cache_policy", keys).replace_keys(
        state.policy, state.table, state.keys, state.newer, state.older, state.marks, state.numbers,
        keys.contiguous().numpy(), slots.numpy(),
    )  # fmt: skip
    return slots
