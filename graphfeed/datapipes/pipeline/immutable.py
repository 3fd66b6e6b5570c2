"""Stages never change: what a stage assigns to itself would be lost, because copies of it run."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from functools import wraps
from typing import Any

OPEN = "_is_being_made"


class Immutable:
    """Refuses to set attributes once `__init__` or `__setstate__` is done."""

    def __setattr__(self, name: str, value: Any) -> None:
        if OPEN not in self.__dict__:
            raise FrozenInstanceError(refusal(self, f"set {name!r}"))
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if OPEN not in self.__dict__:
            raise FrozenInstanceError(refusal(self, f"delete {name!r}"))
        object.__delattr__(self, name)


def refusal(stage: Any, action: str) -> str:
    name = type(stage).__name__
    return (
        f"can't {action} of a {name}: stages don't change after __init__, because copies of them make mini-batches, "
        "in other threads and processes too. Set in the mini-batch what belongs to it; count in the loop over the "
        "loader, or by DataLoader(observer=...); use functools.cached_property for what each worker makes once; to use "
        f"another value, make another {name}"
    )


def make_immutable(cls: Any, has_own_init: bool) -> None:
    """Make a class of stages a frozen dataclass, or freeze what its own `__init__` makes."""
    if not has_own_init:
        # Without `eq`, stages are told apart by identity, so they may be keys whatever their fields hold.
        dataclass(frozen=True, eq=False, repr=False)(cls)
        # `Immutable` has them, which says more, and lets the `__init__` of a subclass set fields.
        del cls.__setattr__, cls.__delattr__
    elif "__init__" in vars(cls):
        cls.__init__ = opens(cls.__init__)
    owner = next((base for base in cls.__mro__ if "__setstate__" in vars(base)), None)
    # One that a base from elsewhere brings does not come past here by itself.
    if owner is not None and (owner is cls or not issubclass(owner, Immutable)):
        cls.__setstate__ = opens(owner.__setstate__)


def opens(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap an `__init__` or a `__setstate__`: the stage can change until the outermost one is done."""

    @wraps(init)
    def make(stage: Any, *args: Any, **kwargs: Any) -> None:
        # That of a subclass calls that of its base, and may set more afterwards.
        outermost = OPEN not in stage.__dict__
        stage.__dict__[OPEN] = True
        try:
            init(stage, *args, **kwargs)
        finally:
            if outermost:
                del stage.__dict__[OPEN]

    return make
