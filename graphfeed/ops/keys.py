"""Keys of random numbers: which mini-batch is made, by which stage, and who draws outside of one."""

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from graphfeed.ops.arguments import check_seed
from graphfeed.ops.random import MASK, fold

UNNAMED_HOPS = 1 << 32
"""The first hop number of draws without a number of their own."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a mini-batch by its seed, epoch and index, which determine all its random numbers.

    Example:
        >>> Key(seed=0, epoch=1, index=2).at(stage=0, hop=1) == Key(0, 1, 2).at(0, 1)
        True
    """

    seed: int
    epoch: int
    index: int
    """Position of the mini-batch in its epoch."""

    def __post_init__(self) -> None:
        if not type(self.seed) is type(self.epoch) is type(self.index) is int:
            for name in ("seed", "epoch", "index"):
                check_seed(name, getattr(self, name))

    def at(self, stage: int, hop: int = 0) -> int:
        """Return the 64-bit key of one hop of one stage."""
        try:
            return fold(self.seed, self.epoch, self.index, stage, hop)
        except TypeError:
            check_seed("stage", stage)
            check_seed("hop", hop)
            raise


class Unkeyed:
    """The generator of draws without a key, in this process."""

    generator: ClassVar[torch.Generator | None] = None
    """None is torch's default generator."""


def seed(val: int | None) -> None:
    """Seed all random numbers of this process that have no seed of their own.

    That is the seed of a `DataLoader` if neither it nor the item sampler has one, and the draws of stages and graphs
    without a key: mini-batches made by hand, a graph's methods called directly. What has a seed keeps it. From then on
    torch's generators are neither set nor used.

    Args:
        val: Any whole number, of which 64 bits count. None goes back to torch's default generator, as at the start.

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
    return int(torch.randint(1 << 62, (), generator=Unkeyed.generator, device="cpu"))


@dataclass(eq=False)
class Draws:
    """Lets `draw_key` draw from a mini-batch's key, in this thread; one without gets a random key at the first draw."""

    key: Key | None
    stage: int
    unnamed: int = UNNAMED_HOPS
    before: "Token[Draws | None]" = field(init=False)

    def __enter__(self) -> None:
        self.before = CURRENT.set(self)

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self.before)

    def draw_own(self) -> Key:
        """Give the mini-batch, which has none, a random key."""
        self.key = Key(draw_unkeyed(), 0, 0)
        return self.key

    def at(self, hop: int | None) -> int:
        """Return the key of a hop; None is the next of those without a number."""
        if hop is None:
            hop = self.unnamed
            self.unnamed += 1
        return (self.key or self.draw_own()).at(self.stage, hop)


CURRENT: ContextVar[Draws | None] = ContextVar("draws", default=None)
drawing = Draws


RUNNING: ContextVar[Any] = ContextVar("running", default=None)
"""The stage whose `__call__` this thread runs."""
FOREIGN, NUMBERED, OUTSIDE = range(0x47454E52, 0x47454E55)
"""Keep the seeds of generators apart from the keys of hops."""


def generator_seed(key: Key | None) -> int:
    """Return the seed of a mini-batch's generator in the stage that this thread runs."""
    stage = RUNNING.get()
    if key is None:
        return draw_unkeyed()
    if stage is None:
        return key.at(0, OUTSIDE)
    if stage.foreign:
        return key.at(stage.foreign_number, FOREIGN)
    if stage.needs_key:
        return key.at(stage.number, NUMBERED)
    name = type(stage).__name__
    raise TypeError(f"{name} has foreign = False and calls minibatch.generator(); set needs_key = True in {name}, too")


def minibatch_key() -> Key:
    """Return the key of the mini-batch that this thread is making; outside of a stage, a random key."""
    draws = CURRENT.get()
    return Key(draw_unkeyed(), 0, 0) if draws is None else draws.key or draws.draw_own()


def draw_key(hop: int | None = None) -> int:
    """Return the key of a hop of the stage that this thread runs, for its mini-batch; outside of a stage, a random one.

    A hook, such as `SubgraphSampler.sample_subgraphs`, calls it where it draws. Without a hop, keys differ by call.
    """
    draws = CURRENT.get()
    return draw_unkeyed() if draws is None else draws.at(hop)


def draw_keys(count: int) -> list[int]:
    """Return the keys of the first hops, each as `draw_key` gives it."""
    draws = CURRENT.get()
    if draws is None:
        return [draw_unkeyed() for _ in range(count)]
    key = draws.key or draws.draw_own()
    of_stage = fold(key.seed, key.epoch, key.index, draws.stage)
    return [fold(of_stage, hop) for hop in range(count)]
