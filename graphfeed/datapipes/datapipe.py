"""What a stage is: a frozen dataclass whose first field is the stage it reads from, and one method.

A pipeline is a description. Building one does nothing. Iterating one creates the state and runs it in place. The loader
rewrites a copy, never a user's object.
"""

from collections.abc import Collection, Iterator, Sized
from typing import Any, ClassVar, Protocol, dataclass_transform, runtime_checkable

from torch.utils.data import IterableDataset

from graphfeed.datapipes.minibatch import Batch
from graphfeed.datapipes.pipeline.description import describe_chain
from graphfeed.datapipes.pipeline.fluent import Fluent, register
from graphfeed.datapipes.pipeline.immutable import Immutable, make_immutable
from graphfeed.datapipes.pipeline.iteration import begins, key_source
from graphfeed.datapipes.pipeline.placement import Placement
from graphfeed.datapipes.pipeline.streams import Streams
from graphfeed.datapipes.pipeline.traverse import Rewritable
from graphfeed.ops.arguments import check_position, ignores


@runtime_checkable
class Source(Protocol):
    """The first stage of a pipeline, which gives each mini-batch its key."""

    def keyed(self, seed: int, epoch: int, start: int) -> "Datapipe":
        """Return the same source for a seed and an epoch, beginning with mini-batch `start`."""


@runtime_checkable
class Shardable(Source, Protocol):
    """A source that can make any mini-batch from its index, so that workers can share the indexes."""

    def minibatch(self, index: int) -> Any:
        """Return the mini-batch with this index."""

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""


@runtime_checkable
class Ranked(Source, Protocol):
    """A source whose mini-batches are shared by several ranks, each with its own copy of the pipeline."""

    def agree(self, seed: int) -> int:
        """Return a seed that all ranks use if none was given."""


def has_own_init(cls: type) -> bool:
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    # An `__init__` that `dataclass` writes stands in the class that has its fields.
    return "__dataclass_fields__" not in vars(owner) and issubclass(owner, Datapipe) and owner is not Datapipe


@dataclass_transform(frozen_default=True, eq_default=False)
class Datapipe(Fluent, Immutable, Streams, Rewritable, IterableDataset[Batch]):
    """A stage, and the pipeline that ends with it: a subclass lists its fields and writes `__iter__`.

    Derive from `Transform` instead if the stage maps one mini-batch to one. A class with its own `__init__` works too.
    A pipeline can be iterated without a loader, and is a torch `IterableDataset`. Without a DataLoader, every iteration
    repeats epoch 0 (and seed 0 unless set).

    Class arguments:
        name: The fluent name, as in `class NeighborSampler(Transform, name="sample_neighbor")`.
        init: False tells type checkers that `__new__` has the constructor's signature; it changes nothing else.
        ignored: Arguments of GraphBolt's that do nothing and are accepted by name, also by subclasses.
    """

    runs_in: ClassVar[Placement] = Placement.AUTO
    """Where the stage runs; your own stages may say so."""
    needs_key: ClassVar[bool] = False
    """Whether the stage draws random numbers."""
    reads_graph: ClassVar[bool] = False
    """Whether the stage samples from a graph."""
    loops: ClassVar[bool] = True
    """Whether the stage writes `__iter__`; a `Transform` writes `__call__` instead."""
    one_to_one: ClassVar[bool] = False
    """Whether the stage yields one mini-batch for each that it reads, in the same order."""
    passes_on: ClassVar[bool] = False
    """Whether the stage leaves the values of a mini-batch as they are, like a buffer or a copy to a device."""
    same_size: ClassVar[bool] = False
    """Whether what the stage yields is about as large as what it reads, for estimates."""
    inserted: ClassVar[bool] = False
    """Whether a rule of the loader inserted the stage, rather than a user."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """The arguments that are accepted by name and do nothing."""

    def __init_subclass__(
        cls, name: str | None = None, init: bool = True, ignored: Collection[str] = (), **kwargs: Any
    ) -> None:
        """Make the class a frozen dataclass unless it has its own `__init__`, and register its fluent name."""
        super().__init_subclass__(**kwargs)
        is_own = has_own_init(cls)
        make_immutable(cls, is_own)
        cls.ignored = cls.ignored.union(ignored).difference(getattr(cls, "__dataclass_fields__", ()))
        if cls.ignored and not is_own:
            cls.__init__ = ignores(*cls.ignored)(cls.__init__)  # type: ignore[method-assign]
        if "__iter__" in vars(cls):
            if "minibatch" not in vars(cls) and hasattr(cls, "minibatch"):
                raise TypeError(
                    f"{cls.__name__} writes __iter__, but workers make mini-batches by minibatch(index): "
                    "write that instead, or a stage that follows"
                )
            cls.__iter__ = begins(cls.__iter__)  # type: ignore[method-assign]
        if name is not None:
            register(name, cls)

    def __iter__(self) -> Iterator[Batch]:
        """Run the pipeline in this thread: epoch 0, unless `with_seed` set another."""
        raise NotImplementedError(f"{type(self).__name__} must write __iter__, or be a Transform and write __call__")

    def estimate_size(self, before: Any) -> Any:
        """Return the estimated size of this stage's output for `DataLoader.explain()`, or None if it is unknown.

        Your own stages may override it; `before` is the estimate of their one input.
        """
        return before if self.inserted or self.passes_on or self.same_size else None

    @property
    def position(self) -> int:
        """Place of the stage in the pipeline as written; the source is 1."""
        return int(not self.inserted) + max((stage.position for stage in self.inputs), default=0)

    def with_seed(self, seed: int, epoch: int = 0, start: int = 0) -> "Datapipe":
        """Return a copy that iterates another seed and epoch, beginning with mini-batch `start`."""
        seed = check_position(seed, epoch, start)
        return self.rewrite(lambda stage: key_source(stage, seed, epoch, start) if isinstance(stage, Source) else stage)

    def __repr__(self) -> str:
        return describe_chain(self)


def length(pipe: Datapipe[Any]) -> int:
    """Return the number of mini-batches in an epoch; raise a TypeError if a stage can't tell."""
    if not isinstance(pipe, Sized):
        raise TypeError(f"{type(pipe).__name__} can't tell how many mini-batches it gives; it has no __len__")
    return len(pipe)
