"""Counter-based keyed random numbers: what is drawn depends on what is sampled, never on who samples it or when.

Every draw is `hash(seed, epoch, mini-batch, stage, hop, node, draw number)`. The first five are folded into one
64-bit key here; a kernel folds the node into a state and counts its draws from there (`ops/cpu/random.py`). The
mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014). There are only integers, so that every back end computes the same bits.

The variate by which LABOR compares neighbours is drawn in two halves. The upper half decides alone unless two are
equal. It takes only 32-bit arithmetic, so that SIMD instructions mix eight or more nodes at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import torch

from graphfeed.ops.checks import check_seed

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
SWITCH = 0xA0761D6478BD642F
"""The key of a node's switch point: where, as the threshold grows, it goes over from one key to the next."""
UPPER = 0x9E3779B1
"""Odd multiplier that spreads the upper halves of node ids."""
LAST = 0xD35A2D97
"""Odd multiplier at the end of high bits, from Hash Prospector (Wellons, public domain)."""
UNNAMED_HOPS = 1 << 32
"""The first hop number of draws without a number of their own."""


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
        edge_type: Id of the edge type if each type has a fan-out of its own.
        time: The time of the query in temporal sampling.
    """
    state = mix(key ^ (node * NODE))
    if time is not None:
        state = mix(state ^ ((time * TIME) & MASK))
    if edge_type is not None:
        state = mix(state + (edge_type + 1) * EDGE_TYPE)
    return mix(state + (number + 1) * GOLDEN)


def high_bits(key: int, node: int) -> int:
    """Return the upper 32 bits of a node's variate, from two products of 32 bits; one to one for ids below 2**32.

    The lower half of the key is added without carries and the upper half is a factor, so that the bits of two nodes are
    as good as independent, however near their ids are. Keys must be mixed: similar keys give similar bits.
    """
    bits = ((node ^ key) & SHORT) + (node >> 32) * UPPER & SHORT
    bits = (bits ^ (bits >> 16)) * (key >> 32 | 1) & SHORT
    bits = (bits ^ (bits >> 15)) * LAST & SHORT
    return bits ^ (bits >> 15)


def variate(keys: tuple[int, int], switch_threshold: int, node: int) -> int:
    """Return the 64 random bits of a neighbour that all columns share; its further draws count from there.

    The upper half are its `high_bits`, the lower one those of the node's state.

    Args:
        keys: This key, and the one that comes after it.
        switch_threshold: Which part of the nodes draws by the second key, in units of 2**-64; its upper 32 bits count.
            As it grows, each node goes over once. So two near thresholds leave the bits of most nodes alone, while
            those of each node are uniform.
        node: Id in the graph's single id space.
    """
    key = keys[high_bits(SWITCH, node) < switch_threshold >> 32]
    return high_bits(mix(key), node) << 32 | mix(key ^ (node * NODE)) & SHORT


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
    """The generator of draws without a key, in this process."""

    generator: ClassVar[torch.Generator | None] = None
    """None is torch's default generator."""


def seed(val: int | None) -> None:
    """Seed, for this process, all randomness that has no seed of its own.

    That is the seed of a `DataLoader` if neither it nor the item sampler has one, and the draws of stages and graphs
    without a key: mini-batches made by hand, a graph's methods called directly. What has a seed keeps it. From then on
    torch's generators are neither set nor used.

    Args:
        val: Any whole number, of which 64 bits count. None goes back to torch's default generator, as at the start.

    Raises:
        TypeError: Something else.

    Example:
        >>> seed(7)
        >>> first = draw_key()
        >>> seed(7)
        >>> draw_key() == first
        True
        >>> seed(None)
    """
    Unkeyed.generator = None if val is None else torch.Generator().manual_seed(check_seed("val", val) & MASK)


def draw_unkeyed() -> int:
    """Return 62 random bits that depend on no mini-batch (see `seed`)."""
    return int(torch.randint(1 << 62, (), generator=Unkeyed.generator))


class Draws:
    """The keys of one stage for one mini-batch. A mini-batch without a key gets a random one at the first draw."""

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
        """Return the key of a hop; if None, of the next hop without a number."""
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
    """Return the key of the mini-batch that this thread is making; outside of a stage, a random key."""
    draws = CURRENT.get()
    return Key(draw_unkeyed(), 0, 0) if draws is None else draws.key


def draw_key(hop: int | None = None) -> int:
    """Return the key of a hop of the stage that this thread is running, for the mini-batch that it is making.

    A stage's hook, such as `SubgraphSampler.sample_subgraphs`, calls it where it draws. Keys differ by hop. Without a
    number, each call in a hook returns another key. Outside of a stage the key is random (see `seed`).
    """
    draws = CURRENT.get()
    return draw_unkeyed() if draws is None else draws.at(hop)
