"""Immutability of stages: attributes that a running stage sets would be lost, because copies of the stage run."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import FrozenInstanceError, dataclass
from functools import wraps
from typing import Any

from graphfeed.ops.arguments import kind_of

OPEN = "_is_being_made"
RESERVED = {
    *("changed", "ends_chain", "ignored", "inputs", "number", "position", "random_stream", "rewrite"),
    *("seeded_number", "seeded_stream", "traits", "with_inputs", "with_seed"),
}
"""Attributes of all stages that a class of a user can't have for something else."""


class Immutable:
    """Forbids setting and deleting attributes after `__init__` or `__setstate__`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if OPEN not in self.__dict__:
            raise FrozenInstanceError(refusal(self, f"set {name!r}", f"make a copy with changed({name}=...)"))
        if name in self.__dict__[OPEN]:
            raise AttributeError(reserved(type(self), [name]))
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if OPEN not in self.__dict__:
            raise FrozenInstanceError(refusal(self, f"delete {name!r}", "create another stage"))
        object.__delattr__(self, name)


def refusal(stage: Any, action: str, remedy: str) -> str:
    return (
        f"can't {action} of {kind_of(stage)}: stages can't change after __init__, because copies of them run, in other "
        "threads and processes too. Set values of a mini-batch on the mini-batch; count in the loop over the loader, "
        "or with DataLoader(observer=...); use functools.cached_property for values that each worker computes once; to "
        f"use another value, {remedy}"
    )


def reserved(cls: type, names: Iterable[str]) -> str:
    each = " and ".join(f"{cls.__name__}.{name}" for name in sorted(names))
    return f"{each} must have another name: graphfeed uses it in every stage"


def make_immutable(cls: Any, has_own_init: bool) -> None:
    """Make a stage class a frozen dataclass, or freeze its instances after its own `__init__`."""
    if not has_own_init:
        # Without `eq`, stages are compared by identity, so they can be keys whatever their fields are.
        dataclass(frozen=True, eq=False, repr=False)(cls)
        # Those of `Immutable` have better messages, and let the `__init__` of a subclass set fields.
        del cls.__setattr__, cls.__delattr__
    elif "__init__" in vars(cls):
        cls.__init__ = opens(cls.__init__, RESERVED)
    owner = next((base for base in cls.__mro__ if "__setstate__" in vars(base)), None)
    # A `__setstate__` inherited from outside of this class hierarchy was not wrapped yet.
    if owner is not None and (owner is cls or not issubclass(owner, Immutable)):
        # It may set all attributes that there were, including cached ones.
        cls.__setstate__ = opens(owner.__setstate__, ())


def opens(init: Callable[..., None], refused: Collection[str]) -> Callable[..., None]:
    """Wrap an `__init__` or `__setstate__`: until the outermost call returns, all but some names can be set."""

    @wraps(init)
    def make(stage: Any, *args: Any, **kwargs: Any) -> None:
        # The one of a subclass calls its base's, and may set more attributes afterwards.
        outermost = OPEN not in stage.__dict__
        stage.__dict__.setdefault(OPEN, refused)
        try:
            init(stage, *args, **kwargs)
        finally:
            if outermost:
                del stage.__dict__[OPEN]

    return make
