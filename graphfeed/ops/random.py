"""Counter-based keyed random numbers: what is drawn depends on what is sampled, never on who samples it or when.

Every draw is `hash(seed, epoch, mini-batch, stage, hop, node, draw number)`. The first five are folded into one
64-bit key here; a kernel folds the node into a state and counts its draws from there (`ops/cpu/random.py`). The
mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014). Integers only, so that every back end gives the same bits.

What neighbours are compared by in layer-neighbour sampling is drawn in two halves. The upper one, which decides alone
unless two are equal, takes 32-bit arithmetic only, so that a processor mixes eight or more nodes at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import torch

MASK = (1 << 64) - 1
SHORT = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""Odd increment between the draws of one state: 2**64 over the golden ratio."""
NODE = 0xD1B54A32D192ED03
"""Odd multiplier that spreads node ids."""
EDGE_TYPE = 0x8CB92BA72F3D8DD7
"""Odd multiplier that sets the edge types of one node apart."""
TIME = 0xE7037ED1A0B428DB
"""Odd multiplier that sets the times of one node apart."""
TURN = 0xA0761D6478BD642F
"""Sets the point at which a node goes from one key to the next apart from its draws."""
UPPER = 0x9E3779B1
"""Odd multiplier that spreads the upper halves of node ids."""
LAST = 0xD35A2D97
"""Odd multiplier at the end of short bits, from Hash Prospector (Wellons, public domain)."""
UNNAMED_HOPS = 1 << 32
"""The first hop number of draws that nobody has given a number."""


def mix(value: int) -> int:
    """Scramble 64 bits, one to one."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def fold(key: int, *values: int) -> int:
    """Fold integers into a key; other values or another order give an unrelated key."""
    for value in values:
        key = mix(key ^ mix(value + GOLDEN))
    return key


def draw(key: int, node: int, number: int, edge_type: int | None = None, time: int | None = None) -> int:
    """Return the 64 random bits that every kernel draws for a node.

    Args:
        key: The key of one hop, as `Key.at` gives it.
        node: Id in the graph's single id space.
        number: 0 for the first draw of the node, 1 for the next.
        edge_type: Id of the edge type where each type has a fan-out of its own.
        time: When the node is looked at, where that matters.
    """
    state = mix(key ^ (node * NODE))
    if time is not None:
        state = mix(state ^ ((time * TIME) & MASK))
    if edge_type is not None:
        state = mix(state + (edge_type + 1) * EDGE_TYPE)
    return mix(state + (number + 1) * GOLDEN)


def short_bits(key: int, node: int) -> int:
    """Return 32 random bits of a node, by two products of 32 bits; one to one for ids below 2**32.

    The lower half of the key is added without carries and the upper one is a factor, so that the bits of two nodes,
    however near, are as good as independent. Keys must be mixed: such as differ little give bits that do.
    """
    bits = ((node ^ key) & SHORT) + (node >> 32) * UPPER & SHORT
    bits = (bits ^ (bits >> 16)) * (key >> 32 | 1) & SHORT
    bits = (bits ^ (bits >> 15)) * LAST & SHORT
    return bits ^ (bits >> 15)


def shared_state(keys: tuple[int, int], share: int, node: int) -> int:
    """Return the 64 random bits of a neighbour that all columns share; its further draws count from there.

    The upper half are short bits, the lower one those of the node's state.

    Args:
        keys: This key, and the one that comes after it.
        share: Which part of the nodes, in units of 2**-64, has gone over to the second key, to 32 bits. As it grows,
            each goes over once, so that two shares leave the bits of most nodes alone, and those of each node are
            uniform.
        node: Id in the graph's single id space.
    """
    key = keys[short_bits(TURN, node) < share >> 32]
    return short_bits(mix(key), node) << 32 | mix(key ^ (node * NODE)) & SHORT


def bounded(bits: int, bound: int) -> int:
    """Map 64 random bits to `0 .. bound - 1` by the high half of the product (Lemire, 2019)."""
    return (bits * bound) >> 64


@dataclass(frozen=True, slots=True)
class Key:
    """Which mini-batch this is, and so all its randomness.

    Example:
        >>> Key(seed=0, epoch=1, index=2).at(stage=0, hop=1) == Key(0, 1, 2).at(0, 1)
        True
    """

    seed: int
    epoch: int
    index: int
    """Position of the mini-batch in its epoch."""

    def at(self, stage: int, hop: int = 0) -> int:
        """Return the 64-bit key of one hop of one stage."""
        return fold(self.seed, self.epoch, self.index, stage, hop)


class Unkeyed:
    """What draws without a key come from, in this process."""

    generator: ClassVar[torch.Generator | None] = None
    """None is torch's default generator."""


def seed(val: int | None) -> None:
    """Fix, for this process, the randomness that nobody has given a seed.

    That is the seed of a `DataLoader` where neither it nor the item sampler has one, and the draws of stages and graphs
    that get no key: mini-batches made by hand, a graph's methods called directly. What has a seed keeps it. torch's
    generators are neither set nor used any more.

    Args:
        val: Any whole number, of which 64 bits count; None goes back to torch's default generator, as at the start.

    Example:
        >>> seed(7)
        >>> first = draw_key()
        >>> seed(7)
        >>> draw_key() == first
        True
        >>> seed(None)
    """
    Unkeyed.generator = None if val is None else torch.Generator().manual_seed(val & MASK)


def draw_unkeyed() -> int:
    """Return 62 random bits that depend on no mini-batch (see `seed`)."""
    return int(torch.randint(1 << 62, (), generator=Unkeyed.generator))


class Draws:
    """The keys of one stage for one mini-batch, which gets a random key at the first draw if it has none."""

    def __init__(self, key: Key | None, stage: int) -> None:
        self.own = key
        self.stage = stage
        self.unnamed = UNNAMED_HOPS

    @property
    def key(self) -> Key:
        """The mini-batch's key."""
        if self.own is None:
            self.own = Key(draw_unkeyed(), 0, 0)
        return self.own

    def at(self, hop: int | None) -> int:
        """Return the key of a hop; of the next one that has no number if None."""
        if hop is None:
            hop = self.unnamed
            self.unnamed += 1
        return self.key.at(self.stage, hop)


CURRENT: ContextVar[Draws | None] = ContextVar("draws", default=None)


@contextmanager
def drawing(key: Key | None, stage: int) -> Iterator[None]:
    """Let `draw_key` draw from a mini-batch's key, in this thread; a mini-batch without one gets a random key."""
    before = CURRENT.set(Draws(key, stage))
    try:
        yield
    finally:
        CURRENT.reset(before)


def minibatch_key() -> Key:
    """Return the key of the mini-batch that this thread makes; outside of a stage a random one."""
    draws = CURRENT.get()
    return Key(draw_unkeyed(), 0, 0) if draws is None else draws.key


def draw_key(hop: int | None = None) -> int:
    """Return the key of a hop of the stage that this thread is at, for the mini-batch that it makes.

    A stage's hook, such as `SubgraphSampler.sample_subgraphs`, asks for it where it draws. Keys differ by hop; without
    a number the first call in a hook gets one key, the second another. Outside of a stage the key is a random one
    (`seed`).
    """
    draws = CURRENT.get()
    return draw_unkeyed() if draws is None else draws.at(hop)
