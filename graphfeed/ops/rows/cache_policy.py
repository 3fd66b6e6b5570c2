"""Eviction policies for caches, on arrays. A policy assigns slots to keys and knows nothing of the values."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops import buffers
from graphfeed.ops.arguments import brief
from graphfeed.ops.backend import kernels
from graphfeed.ops.checks import check_vector

POLICIES = ("sieve", "s3-fifo", "lru", "clock")
SIEVE, S3_FIFO, LRU, CLOCK = range(len(POLICIES))

NUMBERS = ("capacity", "small target", "main target", "ghosts", "small", "main", "remembered", "hand")
CAPACITY, SMALL_TARGET, MAIN_TARGET, GHOSTS, SMALL_SIZE, MAIN_SIZE, GHOST_SIZE, HAND = range(len(NUMBERS))
"""Positions in `PolicyState.numbers`."""

LISTS = ("main", "small", "ghost", "free", "spare")
MAIN, SMALL, GHOST, FREE, SPARE = range(len(LISTS))
"""The linked lists. Their sentinels follow all other nodes, in this order."""

MOST_SLOTS = 1 << 30
SMALL_SHARE = 10
"""S3-FIFO's small queue takes one slot in ten."""


@dataclass(frozen=True)
class PolicyState:
    """The state of a policy. Queries and replacements change the arrays, so only one of them may run at a time.

    Nodes below the capacity are slots of the cache. The others are S3-FIFO's ghosts: remembered keys without a slot.
    """

    policy: int
    table: NDArray[np.int32]
    """A hash table with open addressing: the node of a key, or -1."""
    keys: NDArray[np.int64]
    """The key of a node."""
    newer: NDArray[np.int32]
    """The next newer node in the list of a node; for a sentinel, the oldest node."""
    older: NDArray[np.int32]
    """The next older node; for a sentinel, the newest node."""
    marks: NDArray[np.uint8]
    """How often a slot was queried since the policy last looked at it, up to the policy's limit."""
    numbers: NDArray[np.int64]
    """Sizes and the hand, at the positions above."""


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
        policy: "sieve" (Zhang et al., NSDI 2024) has a queue, and a hand that spares queried slots. "s3-fifo" (Yang et
            al., SOSP 2023) has a small queue in front of the main queue, and remembers the keys that left it. The
            others are "lru" and "clock".
        capacity: The number of slots, 0 or more. They take `policy_bytes` of memory.

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
    """Return the memory that the state of a policy takes: 25 to 33 bytes per slot, nearly twice that for "s3-fifo".

    Args:
        policy: As for `new_policy`.
        capacity: As for `new_policy`.

    Example:
        >>> policy_bytes("sieve", 1 << 20) >> 20, policy_bytes("s3-fifo", 1 << 20) >> 20
        (25, 47)
    """
    return sum(size * np.dtype(dtype).itemsize for size, dtype in count_parts(policy, capacity))


def count_parts(policy: str, capacity: int) -> list[tuple[int, type[np.generic]]]:
    """Return the length and dtype of each array of a state, in the order of its fields."""
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, but is {brief(policy)}")
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
    """Look keys up, and mark them as queried.

    Args:
        state: Changed.
        keys: int64, 0 or more; keys may repeat.
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
    """Assign a slot to each key in turn, and evict the keys that the policy picks.

    A key that has a slot keeps it, and its rank. A call admits at most as many keys as there are slots. A later key may
    get the slot of an earlier one, so write the values in order.

    Args:
        state: Changed.
        keys: int64, 0 or more.

    Returns:
        int64: the slot of each key, -1 for keys that are not admitted.
    """
    check_vector("keys", keys, (torch.int64,))
    slots = buffers.empty(keys.numel(), torch.int64)
    kernels("rows.cache_policy", keys).replace_keys(
        state.policy, state.table, state.keys, state.newer, state.older, state.marks, state.numbers,
        keys.contiguous().numpy(), slots.numpy(),
    )  # fmt: skip
    return slots
