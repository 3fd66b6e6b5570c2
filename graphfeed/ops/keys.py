"""Keys of random numbers, by mini-batch, stage and hop; and seeds of draws without a key."""

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from graphfeed.ops.arguments import check_seed
from graphfeed.ops.random import MASK, fold

UNNAMED_HOPS = 1 << 32
"""The first hop number of draws without an explicit hop."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identifies a mini-batch by seed, epoch and index, which determine all of its random numbers.

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
        """Return the 64-bit key of a hop of a stage."""
        try:
            return fold(self.seed, self.epoch, self.index, stage, hop)
        except TypeError:
            check_seed("stage", stage)
            check_seed("hop", hop)
            raise


class Unkeyed:
    """The process-wide generator for draws without a key."""

    generator: ClassVar[torch.Generator | None] = None
    """None stands for torch's default generator."""


def seed(val: int | None) -> None:
    """Seed all random numbers of this process that have no explicit seed.

    These are the seed of a `DataLoader` if neither it nor its item sampler has one, and draws of stages and graphs
    without a key: for mini-batches created manually, and in direct calls of a graph's methods. Explicit seeds are not
    affected. After this call, torch's generators are neither set nor used.

    Args:
        val: Any integer, of which 64 bits are used. None restores the initial state: torch's default generator.

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
    """Return 62 random bits that don't depend on a mini-batch (see `seed`)."""
    return int(torch.randint(1 << 62, (), generator=Unkeyed.generator, device="cpu"))


@dataclass(eq=False)
class DrawScope:
    """Context in which `draw_key` uses the key of a mini-batch. Without one, the first draw sets a random key."""

    key: Key | None
    stage: int
    unnamed: int = UNNAMED_HOPS
    before: "Token[DrawScope | None]" = field(init=False)

    def __enter__(self) -> None:
        self.before = CURRENT.set(self)

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self.before)

    def draw_own(self) -> Key:
        """Set and return a random key for a mini-batch without a key."""
        self.key = Key(draw_unkeyed(), 0, 0)
        return self.key

    def at(self, hop: int | None) -> int:
        """Return the key of a hop; None stands for the next hop without an explicit number."""
        if hop is None:
            hop = self.unnamed
            self.unnamed += 1
        return (self.key or self.draw_own()).at(self.stage, hop)


CURRENT: ContextVar[DrawScope | None] = ContextVar("draws", default=None)
drawing = DrawScope


RUNNING: ContextVar[Any] = ContextVar("running", default=None)
"""The stage whose `__call__` runs in this thread."""
FOREIGN, NUMBERED, OUTSIDE = range(0x47454E52, 0x47454E55)
"""Hop numbers that separate the seeds of generators from the keys of hops."""


def generator_seed(key: Key | None) -> int:
    """Return the seed of a mini-batch's generator in the stage that runs in this thread."""
    stage = RUNNING.get()
    if key is None:
        return draw_unkeyed()
    if stage is None:
        return key.at(0, OUTSIDE)
    if stage.traits.seeded:
        return key.at(stage.seeded_number, FOREIGN)
    if stage.traits.draws:
        return key.at(stage.number, NUMBERED)
    name = type(stage).__name__
    raise TypeError(
        f"{name} has seeded=False and calls minibatch.generator(); write class {name}(..., draws=True), too"
    )


def minibatch_key() -> Key:
    """Return the key of the mini-batch that this thread produces; outside of a stage, a random key."""
    draws = CURRENT.get()
    return Key(draw_unkeyed(), 0, 0) if draws is None else draws.key or draws.draw_own()


def draw_key(hop: int | None = None) -> int:
    """Return the key of a hop for the current stage and mini-batch; outside of a stage, a random key.

    Call it in hooks that draw, such as `SubgraphSampler.sample_subgraphs`. Without a hop, each call returns a new key.
    """
    draws = CURRENT.get()
    return draw_unkeyed() if draws is None else draws.at(hop)


def draw_keys(count: int) -> list[int]:
    """Return the keys of the first `count` hops (see `draw_key`)."""
    draws = CURRENT.get()
    if draws is None:
        return [draw_unkeyed() for _ in range(count)]
    key = draws.key or draws.draw_own()
    of_stage = fold(key.seed, key.epoch, key.index, draws.stage)
    return [fold(of_stage, hop) for hop in range(count)]
