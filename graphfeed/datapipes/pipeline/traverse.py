"""List, find and replace the stages of a pipeline."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from operator import is_not
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from graphfeed.datapipes.pipeline.traits import OF_ONE_STAGE
from graphfeed.ops.arguments import brief, nearest
from graphfeed.storage import HeteroItemSet, SamplingGraph

if TYPE_CHECKING:
    from graphfeed.datapipes.datapipe import Datapipe


NO_STAGES = {bool, float, int, str, type(None)}
"""Types of most attributes, which are neither stages nor lists or tuples of stages."""


class Rewritable:
    """Access to the stages that a stage reads from, which are its attributes, or in lists or tuples that are."""

    _apart_from_inputs: ClassVar[tuple[str, ...]] = ()
    """Names of cached values that don't depend on the inputs, so that copies with other inputs keep them."""
    _epoch_was_chosen: ClassVar[bool] = False
    """Whether `with_seed` has set the epoch of this source."""

    @property
    def inputs(self) -> "tuple[Datapipe, ...]":
        """The stages that this one reads from."""
        found: list[Any] = []
        # Attributes rather than fields: a stage with its own `__init__` has no fields.
        for value in vars(self).values():
            if type(value) not in NO_STAGES and isinstance(value, (Rewritable, list, tuple)):
                found += [value] if isinstance(value, Rewritable) else stages_in(value)
        return tuple(found)

    def changed(self, **fields: Any) -> Self:
        """Return a copy with other values in some fields, or in an attribute of one stage, such as `runs_in`.

        `__init__` is not called, so the values are not checked.

        Raises:
            TypeError: The stage has no such field.
        """
        clone = object.__new__(type(self))
        kind: type = type(self)
        for name in fields:
            if name not in self.__dict__ and name not in OF_ONE_STAGE and not hasattr(kind, name):
                raise TypeError(f"{kind.__name__} has no field {name!r}{nearest(name, self.__dict__)}")
        own, cached = clone.__dict__, cached_names(kind)
        for name, value in vars(self).items():
            # Cached values, computed from the old fields, are left out.
            if name not in cached:
                # A stage may have its own method, as in super().__init__(datapipe, self.work); rebind it to the copy.
                own_method = type(value) is MethodType and value.__self__ is self
                own[name] = MethodType(value.__func__, clone) if own_method else value
        own.update(fields)
        return clone

    def with_inputs(self, swap: "Callable[[Datapipe], Datapipe]") -> Self:
        """Return a copy with `swap` applied to each input, or this object if no input changes."""
        fields: dict[str, Any] = {}
        for name, value in vars(self).items():
            if type(value) in NO_STAGES or not isinstance(value, (Rewritable, list, tuple)):
                continue
            new: Any = swap(value) if isinstance(value, Rewritable) else swap_in(value, swap)  # type: ignore[arg-type]
            if new is not value:
                fields[name] = new
        # An unchanged object keeps its cached values.
        if not fields:
            return self
        kept = {name: vars(self)[name] for name in self._apart_from_inputs if name in vars(self)}
        return self.changed(**kept, **fields)

    def rewrite(self, rule: "Callable[[Datapipe], Datapipe]") -> "Datapipe":
        """Apply a rule to each stage, inputs first. A stage that several others read from stays shared.

        The result is a new pipeline, or this object if the rule returned each stage unchanged.
        """
        return rewrite_once(rule, {}, self)  # type: ignore[arg-type]


# Not nested functions: those that call themselves are cycles, which would keep a pipeline and its graph in memory.
def rewrite_once(rule: "Callable[[Datapipe], Datapipe]", done: "dict[int, Datapipe]", stage: "Datapipe") -> "Datapipe":
    """Return a stage after a rule was applied to its inputs and to itself, unless `done` has it."""
    if id(stage) not in done:
        done[id(stage)] = rule(stage.with_inputs(partial(rewrite_once, rule, done)))
    return done[id(stage)]


def add_stages(stage: "Datapipe", found: "dict[int, Datapipe]") -> None:
    """Add a stage to those that were found, after the stages that it reads from."""
    # A stage that two others read from is listed once.
    if id(stage) not in found:
        for source in stage.inputs:
            add_stages(source, found)
        found[id(stage)] = stage


def stages_in(parts: Any) -> list[Any]:
    return [part for part in parts if isinstance(part, Rewritable)]


def swap_in(parts: Any, swap: Any) -> Any:
    """Return a list or a tuple with each stage in it swapped, or this object if none changes."""
    new = [swap(part) if isinstance(part, Rewritable) else part for part in parts]
    return type(parts)(new) if any(map(is_not, new, parts)) else parts


@cache
def cached_names(kind: type) -> frozenset[str]:
    """Return the names of the cached values of a class."""
    return frozenset(name for name in dir(kind) if isinstance(getattr(kind, name, None), cached_property))


def check_source(stage: Any) -> None:
    """Raise a TypeError unless the stage reads from something that can be iterated."""
    if not hasattr(stage.datapipe, "__iter__"):
        raise TypeError(
            f"datapipe, the source of {type(stage).__name__}, must be a stage or an iterable of mini-batches, but is "
            f"{brief(stage.datapipe)}"
        )


def traverse(pipe: "Datapipe") -> "list[Datapipe]":
    """Return every stage of a pipeline without duplicates, each after the stages that it reads from.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> pipe = ItemSampler(ItemSet(3, names="seeds"), batch_size=1).transform()
        >>> [type(stage).__name__ for stage in traverse(pipe)]
        ['ItemSampler', 'MiniBatchTransformer']
    """
    if not isinstance(pipe, Rewritable):
        raise TypeError(f"pipe must be a pipeline of stages, but is {brief(pipe)}")
    found: dict[int, Datapipe] = {}
    add_stages(pipe, found)
    return list(found.values())


def graphs_before(stage: Any) -> list[SamplingGraph]:
    """Return the graphs that earlier stages read, sources first."""
    graphs = [getattr(source, "graph", None) for source in traverse(stage)[:-1]]
    return [graph for graph in graphs if isinstance(graph, SamplingGraph)]


def seed_types_before(stage: Any) -> set[str] | None:
    """Return the types of seeds that a stage may get; None if a user-defined stage or function decides them."""
    types: set[str] = set()
    for source in traverse(stage)[:-1]:
        items, make = getattr(source, "item_set", None), getattr(source, "minibatcher", None)
        is_default = make is not None and make is getattr(type(source), "minibatcher", None)
        if source.traits.seeded or not (source.inputs or (items is not None and is_default)):
            return None
        types.update(items.by_type if isinstance(items, HeteroItemSet) else ())
    return types


def find(pipe: "Datapipe", kind: type) -> "list[Datapipe]":
    """Return the stages that are instances of a class or a protocol, sources first.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> find(ItemSampler(ItemSet(3, names="seeds"), batch_size=1).transform(), ItemSampler)
        [ItemSampler(item_set=ItemSet(3 items), batch_size=1)]
    """
    stages = traverse(pipe)
    try:
        return [stage for stage in stages if is_a(stage, kind)]
    except TypeError as error:
        raise TypeError(f"kind must be a class, but is {brief(kind)}") from error


def is_a(stage: Any, kind: type) -> bool:
    """Return whether a stage is an instance of a class or a protocol."""
    # Asking a protocol takes 20 us, and most stages lack its first member.
    member = first_member(kind)
    return (member is None or has_member(stage, member)) and isinstance(stage, kind)


def has_member(stage: Any, name: str) -> bool:
    """Return whether a stage or its class defines an attribute; fluent names are not attributes."""
    return name in vars(stage) or hasattr(type(stage), name)


@cache
def first_member(kind: type) -> str | None:
    names = (*vars(kind), *kind.__annotations__) if getattr(kind, "_is_protocol", False) else ()
    return next((name for name in names if not name.startswith("_")), None)


def replace(pipe: "Datapipe", old: "Datapipe", new: "Datapipe") -> "Datapipe":
    """Return a copy of a pipeline with one stage replaced; the given pipeline does not change.

    Raises:
        ValueError: The stage is not in the pipeline.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> sampler = ItemSampler(ItemSet(3, names="seeds"), batch_size=1)
        >>> replace(sampler.transform(), sampler, sampler.changed(batch_size=2))
        ItemSampler(item_set=ItemSet(3 items), batch_size=2) -> MiniBatchTransformer()
    """
    if not any(stage is old for stage in traverse(pipe)):
        raise ValueError(f"old: {type(old).__name__} is not a stage of this pipeline; find() returns those that are")
    if not isinstance(new, Rewritable):
        raise TypeError(f"new must be a stage, but is {brief(new)}")
    return pipe.rewrite(lambda stage: new if stage is old else stage)
