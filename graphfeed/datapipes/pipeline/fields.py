"""Check what the fields of a stage are given, by what they are declared to hold."""

from collections.abc import Callable
from functools import cache
from numbers import Real
from operator import index
from types import NoneType, UnionType
from typing import Any, get_args

import numpy as np

from graphfeed.ops.arguments import brief


def check_flag(name: str, value: Any) -> None:
    """Raise unless a value is a truth value: text and arrays, which Python takes for one, are more likely mistakes."""
    if not isinstance(value, (bool, np.bool_)) and not (type(value) is int and value in (0, 1)):
        raise TypeError(f"{name} must be True or False, but is {brief(value)}")


def check_whole(name: str, value: Any) -> None:
    """Raise unless a value is a whole number of 64 bits."""
    try:
        number = index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be a whole number, but is {brief(value)}") from error
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"{name} must have 64 bits at most, but is {brief(number)}")


def check_real(name: str, value: Any) -> None:
    """Raise unless a value is a number."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, but is {brief(value)}")


def check_text(name: str, value: Any) -> None:
    """Raise unless a value is text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, but is {brief(value)}")


CHECKS: dict[Any, Callable[[str, Any], None]] = {
    bool: check_flag,
    int: check_whole,
    float: check_real,
    str: check_text,
}
"""What is checked of each type that a field may be declared with."""


@cache
def checks_of(stage: type) -> list[tuple[str, bool, Callable[[str, Any], None]]]:
    """Return the names of the fields that are checked, whether each may be None, and its check.

    Only fields that graphfeed declares: what a field of a user's stage holds is the user's affair.
    """
    own = next(base for base in stage.__mro__ if base.__module__.partition(".")[0] == "graphfeed")
    found = []
    for name, declared in getattr(own, "__dataclass_fields__", {}).items():
        kinds = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
        wanted = [kind for kind in kinds if kind is not NoneType]
        if len(wanted) == 1 and wanted[0] in CHECKS:
            found.append((name, NoneType in kinds, CHECKS[wanted[0]]))
    return found


def check_fields(stage: Any) -> None:
    """Raise a TypeError or a ValueError that names a field which holds something else than it is declared to hold."""
    kind: Any = type(stage)
    for name, optional, check in checks_of(kind):
        value = getattr(stage, name)
        if value is not None or not optional:
            check(name, value)


def check_source(stage: Any) -> None:
    """Raise a TypeError unless the stage reads from something that can be iterated."""
    if not hasattr(stage.datapipe, "__iter__"):
        raise TypeError(
            f"datapipe, the source of {type(stage).__name__}, must be a stage or an iterable of mini-batches, but is "
            f"{brief(stage.datapipe)}"
        )
