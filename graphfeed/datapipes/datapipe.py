"""What a stage is: its fields and one method.

A pipeline is a description. A stage is a frozen dataclass whose source is its first field; building one does nothing,
iterating one makes the state and runs it where it is. The loader rewrites a copy, never the user's objects.
"""

import enum
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import count
from types import MethodType
from typing import Any, ClassVar, Protocol, Self, dataclass_transform, runtime_checkable

import torch
from torch.utils.data import IterableDataset

from graphfeed.datapipes.pipeline.description import describe_chain
from graphfeed.datapipes.pipeline.fluent import Fluent, register
from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each


class Placement(enum.Enum):
    """Where a stage runs."""

    WORKER = "worker"
    """Anywhere: what comes before the cut is computed by workers."""
    MAIN = "main"
    """In the main process, where UVA and CUDA copies are possible."""


@runtime_checkable
class Source(Protocol):
    """A first stage, which gives mini-batches their keys."""

    def keyed(self, seed: int, epoch: int, start: int) -> "Datapipe":
        """Return the same source for a seed and an epoch, from a mini-batch on."""


@runtime_checkable
class Shardable(Source, Protocol):
    """A source that makes any mini-batch by its index, so that workers can share them out."""

    def minibatch(self, index: int) -> Any:
        """Return one mini-batch of the epoch."""

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""


@runtime_checkable
class Ranked(Source, Protocol):
    """A source whose mini-batches several processes share, each with a pipeline of its own."""

    def agree(self, seed: int) -> int:
        """Return a seed that all of them take, where none was given."""


def has_own_init(cls: type) -> bool:
    """Tell whether a class has an `__init__` that somebody wrote."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return "__dataclass_fields__" not in vars(owner) and issubclass(owner, Datapipe) and owner is not Datapipe


@dataclass_transform(frozen_default=True, eq_default=False)
class Datapipe(Fluent, IterableDataset[Any]):
    """A stage, and the pipeline that ends with it.

    A subclass lists its fields and writes `__iter__`; `Transform` is for one mini-batch in, one out. A class with an
    `__init__` of its own works too. Any pipeline is iterable without a loader, and is a torch `IterableDataset`.

    Class arguments:
        name: The fluent name, as in `class NeighborSampler(Transform, name="sample_neighbor")`.
    """

    runs_in: ClassVar[Placement] = Placement.WORKER
    needs_key: ClassVar[bool] = False
    """Whether the stage draws random numbers."""
    reads_graph: ClassVar[bool] = False
    """Whether the stage samples from a graph."""
    loops: ClassVar[bool] = True
    """Whether the stage writes `__iter__`, where a `Transform` writes `__call__`."""
    one_to_one: ClassVar[bool] = False
    """Whether the stage gives one mini-batch for each that it reads, in order."""
    passes_on: ClassVar[bool] = False
    """Whether mini-batches come out with the values they went in with, as from a buffer or a copy to a device."""
    inserted: ClassVar[bool] = False
    """Whether a rule of the loader put the stage there, and no user."""
    numbered_as: ClassVar[int | None] = None
    """The stage's number in a pipeline with a join, while that runs."""

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        """Make the class a frozen dataclass, unless it has an `__init__`, and register its fluent name."""
        super().__init_subclass__(**kwargs)
        if not has_own_init(cls):
            dataclass(frozen=True, eq=False, repr=False)(cls)
        if "__iter__" in vars(cls):
            if "minibatch" not in vars(cls) and hasattr(cls, "minibatch"):
                raise TypeError(
                    f"{cls.__name__} writes __iter__, but workers make mini-batches by minibatch(index): "
                    "write that instead, or a stage that follows"
                )
            cls.__iter__ = numbered(cls.__iter__)  # type: ignore[method-assign]
        if name is not None:
            register(name, cls)

    def __iter__(self) -> Iterator[Any]:
        """Run the pipeline here: epoch 0, unless its source is `keyed` otherwise."""
        raise NotImplementedError(f"{type(self).__name__} must write __iter__, or be a Transform and write __call__")

    @property
    def inputs(self) -> tuple["Datapipe", ...]:
        """The stages that this one reads from: its fields that are stages, or lists or tuples of them."""
        found: list[Any] = []
        for value in vars(self).values():
            found += value if isinstance(value, (list, tuple)) else [value]
        return tuple(part for part in found if isinstance(part, Datapipe))

    def estimate_size(self, before: Any) -> Any:
        """Return the estimated size of a mini-batch behind this stage (a `BatchSizeEstimate`), None if not known.

        `DataLoader.explain()` asks for it; a stage of your own may write it.

        Args:
            before: The same of the stage before; None if not known, and where there is none or several.
        """
        return before if self.inserted or self.passes_on else None

    def changed(self, **fields: Any) -> Self:
        """Return a copy with other values in some fields."""
        clone = object.__new__(type(self))
        for name, value in vars(self).items():
            # A stage may hold its own method, as in super().__init__(datapipe, self.work); the copy has its own.
            own_method = isinstance(value, MethodType) and value.__self__ is self
            if not isinstance(getattr(type(self), name, None), cached_property):
                clone.__dict__[name] = MethodType(value.__func__, clone) if own_method else value
        clone.__dict__.update(fields)
        return clone

    def with_inputs(self, swap: "Callable[[Datapipe], Datapipe]") -> Self:
        """Return the stage with its inputs swapped; this very object where each stays as it is."""
        fields: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Datapipe):
                fields[name] = swap(value)
            elif isinstance(value, (list, tuple)) and any(isinstance(part, Datapipe) for part in value):
                fields[name] = type(value)(swap(part) if isinstance(part, Datapipe) else part for part in value)
        changed = self.changed(**fields)
        same = all(new is old for new, old in zip(changed.inputs, self.inputs, strict=True))
        return self if same else changed

    def rewrite(self, rule: "Callable[[Datapipe], Datapipe]") -> "Datapipe":
        """Apply a rule to each stage, inputs first; a stage that two read from stays shared.

        Returns:
            A new pipeline, or this very object where the rule returned each stage as it was.
        """
        done: dict[int, Datapipe] = {}

        def visit(stage: Datapipe) -> Datapipe:
            if id(stage) not in done:
                done[id(stage)] = rule(stage.with_inputs(visit))
            return done[id(stage)]

        return visit(self)

    @cached_property
    def number(self) -> int:
        """How many stages that draw come before this one: what tells its random numbers from theirs."""
        if self.numbered_as is not None:
            return self.numbered_as
        return sum(stage.needs_key for stage in stages_of(self)[:-1])

    @cached_property
    def has_join(self) -> bool:
        """Whether this stage, or one that comes before it, reads from several."""
        sources = self.inputs
        return len(sources) > 1 or any(stage.has_join for stage in sources)

    @property
    def position(self) -> int:
        """Place in the chain as it was written, the source being 1."""
        return int(not self.inserted) + max((stage.position for stage in self.inputs), default=0)

    def with_seed(self, seed: int, epoch: int = 0, start: int = 0) -> "Datapipe":
        """Return the pipeline for another seed and epoch, from mini-batch `start` on."""
        return self.rewrite(lambda stage: stage.keyed(seed, epoch, start) if isinstance(stage, Source) else stage)

    def __repr__(self) -> str:
        """Return the chain, source first."""
        return describe_chain(self)


def stages_of(pipe: Datapipe) -> list[Datapipe]:
    """Return every stage of a pipeline once, each after those that it reads from; the pipeline itself is the last."""
    found: dict[int, Datapipe] = {}

    def visit(stage: Datapipe) -> None:
        if id(stage) not in found:
            for source in stage.inputs:
                visit(source)
            found[id(stage)] = stage

    visit(pipe)
    return list(found.values())


def number_stages(pipe: Datapipe) -> Datapipe:
    """Return the pipeline with the stages that draw numbered from its sources on, where it has a join.

    By what comes before them, stages in parallel branches would have the same numbers, and draw alike. A chain is
    returned as it is, and so is a part of a pipeline that was numbered as a whole.
    """
    if not pipe.has_join or all(stage.numbered_as is not None for stage in stages_of(pipe) if stage.needs_key):
        return pipe
    numbers = count()
    return pipe.rewrite(lambda stage: stage.changed(numbered_as=next(numbers)) if stage.needs_key else stage)


def numbered(run: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Let a stage's `__iter__` run the stages numbered as one pipeline: the first that is called knows them all."""

    @wraps(run)
    def iterate(stage: Datapipe) -> Iterator[Any]:
        observer = None if stage.inserted or not stage.loops else OBSERVER.get()
        minibatches = run(number_stages(stage))
        return minibatches if observer is None else observe_each(stage, minibatches, observer)

    return iterate


def length(pipe: Datapipe) -> int:
    """Return the number of mini-batches that a pipeline gives.

    Raises:
        TypeError: A stage of it can't tell.
    """
    if not isinstance(pipe, Sized):
        raise TypeError(f"{type(pipe).__name__} can't tell how many mini-batches it gives; it has no __len__")
    return len(pipe)


def torch_shard() -> tuple[int, int]:
    """Return this worker's number and how many there are, inside a torch DataLoader's worker; else (0, 1)."""
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
