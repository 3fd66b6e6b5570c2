"""Checks of what a function or a dataclass is given by its annotations, for calls that are made once."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, wraps
from inspect import signature
from numbers import Real
from operator import index
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import numpy as np
import torch

from graphfeed.ops.arguments.texts import brief, nearest

Made = TypeVar("Made", bound=Callable[..., Any])


class Rule(NamedTuple):
    """What a declared type takes, and how an error calls it."""

    takes: Callable[[Any], bool]
    words: str
    plain: frozenset[type] = frozenset()
    """Types of which all values are taken, without a call: most arguments are of these."""


def is_flag(value: Any) -> bool:
    """Tell a truth value from text and arrays, which Python takes for one, and which are more likely mistakes."""
    return isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1))


def is_whole(value: Any) -> bool:
    """Tell whether a value is a whole number."""
    try:
        index(value)
    except TypeError:
        return False
    return True


def is_list(value: Any) -> bool:
    """Tell whether a value has parts by number, and is no text."""
    has_parts = hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "ndim", 1) > 0
    return has_parts and not isinstance(value, (str, bytes, Mapping))


def is_array(value: Any) -> bool:
    """Tell whether a tensor can be made of a value."""
    return hasattr(value, "__array__") or isinstance(value, (list, tuple, range))


def is_path(value: Any) -> bool:
    """Tell whether a value is a path."""
    return isinstance(value, (str, PathLike))


def is_device(value: Any) -> bool:
    """Tell whether torch may know a value as a device."""
    return isinstance(value, (str, torch.device)) or type(value) is int


ARRAY = "a torch.Tensor, a NumPy array, or a list of numbers or of rows of one length"
RULES: dict[Any, Rule] = {
    NoneType: Rule(lambda value: value is None, "", frozenset([NoneType])),
    bool: Rule(is_flag, "True or False", frozenset([bool])),
    int: Rule(is_whole, "a whole number"),
    float: Rule(lambda value: isinstance(value, Real), "a number"),
    str: Rule(lambda value: isinstance(value, str), "a string", frozenset([str])),
    type: Rule(lambda value: isinstance(value, type), "a class"),
    PathLike: Rule(is_path, "a path"),
    torch.Tensor: Rule(is_array, ARRAY, frozenset([torch.Tensor])),
    torch.dtype: Rule(lambda value: isinstance(value, torch.dtype), "a torch.dtype"),
    torch.device: Rule(is_device, "a device"),
    Executor: Rule(lambda value: hasattr(value, "submit"), "an executor"),
    Callable: Rule(callable, "a function"),
    Mapping: Rule(lambda value: isinstance(value, Mapping), "a dict"),
    Sequence: Rule(is_list, "a list", frozenset([list, tuple])),
    Iterable: Rule(lambda value: hasattr(value, "__iter__"), "a list"),
}
ALIKE = {Path: PathLike, dict: Mapping, list: Sequence, torch.Size: Sequence, tuple: Sequence}


@cache
def rule_of(declared: Any) -> Rule | None:
    """Return what a declared type takes; None: whatever there is, or what can't be told from it."""
    origin = get_origin(declared) or declared
    if origin in (Literal, Annotated):
        first: Any = get_args(declared)[0]
        kind: Any = first if origin is Annotated else type(first)
        return rule_of(kind)
    if origin in (Union, UnionType):
        rules = [rule_of(kind) for kind in get_args(declared)]
        found = [rule for rule in rules if rule is not None]
        if len(found) < len(rules):
            return None
        words = dict.fromkeys(rule.words for rule in found if rule.words)
        plain = frozenset[type]().union(*(rule.plain for rule in found))
        return Rule(lambda value: any(rule.takes(value) for rule in found), " or ".join(words), plain)
    if origin is tuple and Ellipsis not in get_args(declared):
        size = len(get_args(declared))
        return Rule(lambda value: is_list(value) and len(value) == size, f"a tuple of {size}")
    origin = ALIKE.get(origin, origin)
    if origin in RULES:
        return RULES[origin]
    if not str(getattr(origin, "__module__", "")).startswith("graphfeed") or getattr(origin, "_is_protocol", False):
        return None  # what others make may be another class of the same use
    return Rule(lambda value: isinstance(value, origin), f"a {origin.__name__}", frozenset([origin]))


def check_declared(name: str, rule: Rule | None, value: Any) -> None:
    """Raise a TypeError unless a value is what its rule takes, or a ValueError if it is a number of over 64 bits."""
    if rule is None or type(value) in rule.plain:
        return
    if not rule.takes(value):
        raise TypeError(f"{name} must be {rule.words or None}, but is {brief(value)}")
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise ValueError(f"{name} must have 64 bits at most, but is {brief(value)}")


def check_flags(**values: object) -> None:
    """Raise unless each value, by the name of its argument, is a truth value."""
    for name, value in values.items():
        if value is not True and value is not False:  # which most are: calls of few ids are made of such checks
            check_declared(name, RULES[bool], value)


def check_names(owner: str, known: Collection[str], given: Iterable[str]) -> None:
    """Raise a TypeError that tells the nearest name unless each given name of an argument is known."""
    for name in given:
        if name not in known:
            raise TypeError(f"{owner}() has no argument {name!r}{nearest(name, known)}")


def checked(made: Made) -> Made:
    """Make a function, or what makes a class, check each argument by its declared type before it does anything."""
    if isinstance(made, type):
        maker = "__new__" if issubclass(made, tuple) else "__init__"
        setattr(made, maker, checked(getattr(made, maker)))
        return made
    rules = {name: rule_of(made.__annotations__.get(name, Any)) for name in signature(made).parameters}
    in_order, owner = tuple(rules.items()), made.__qualname__.removesuffix(".__init__")
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature(made).parameters.values())

    @wraps(made)
    def check(*args: Any, **kwargs: Any) -> Any:
        for (name, rule), value in zip(in_order, args, strict=False):
            if rule is not None and type(value) not in rule.plain:
                check_declared(name, rule, value)
        for name, value in kwargs.items():
            check_declared(name, rules.get(name), value)
            if not takes_more and name not in rules:
                check_names(owner, rules, kwargs)
        return made(*args, **kwargs)

    return cast("Made", check)


def is_plain(declared: Any) -> bool:
    """Tell whether a declared type is a flag, a number or a text, or None as well: of others, stages say more."""
    kinds = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return {*kinds} - {NoneType} in ({bool}, {int}, {float}, {str})


@cache
def rules_of(kind: type) -> dict[str, Rule | None]:
    """Return the rules of the fields that graphfeed declares: what others hold is the affair of a user."""
    own = next(base for base in kind.__mro__ if base.__module__.partition(".")[0] == "graphfeed")
    fields = getattr(own, "__dataclass_fields__", {})
    return {name: rule_of(field.type) for name, field in fields.items() if is_plain(field.type)}


def check_fields(made: Any) -> None:
    """Raise a TypeError or a ValueError that names a field which holds something else than it is declared to hold."""
    kind: Any = type(made)
    for name, rule in rules_of(kind).items():
        check_declared(name, rule, getattr(made, name))
