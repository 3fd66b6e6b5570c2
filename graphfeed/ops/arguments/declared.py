"""Runtime type checks of arguments and dataclass fields by their annotations, for calls outside of hot loops."""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, wraps
from inspect import signature
from multiprocessing.context import BaseContext
from numbers import Real
from operator import index
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, Protocol, TypeVar, Union, cast, get_args, get_origin

import numpy as np
import torch

from graphfeed.ops.arguments.texts import brief, nearest, with_article

Made = TypeVar("Made", bound=Callable[..., Any])


class Rule(NamedTuple):
    """The values that a declared type accepts, and its description in error messages."""

    takes: Callable[[Any], bool]
    words: str
    plain: frozenset[type] = frozenset()
    """Types whose values are accepted without calling `takes`, except 0-D tensors. Most arguments have these types."""


def is_bool(value: Any) -> bool:
    """Return whether a value is a bool, or an array or a tensor of bools, which Python also accepts as integers."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")).removeprefix("torch.") == "bool"


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer. A bool isn't: it is more likely a mistake."""
    if is_bool(value):
        return False
    try:
        index(value)
    except TypeError:
        return False
    return True


def is_list(value: Any) -> bool:
    """Return whether a value is a list, a tuple or an array of at least one dimension, and not a string."""
    if isinstance(value, Sequence):
        return not isinstance(value, (str, bytes, bytearray))
    return hasattr(value, "__array__") and getattr(value, "ndim", 1) > 0 and hasattr(value, "__len__")


def is_device(value: Any) -> bool:
    """Return whether a value is a valid torch device, or "pinned", which stands for page-locked memory."""
    try:
        return value == "pinned" or bool(torch.device(value))
    except (TypeError, ValueError, RuntimeError):
        return False


ARRAY_LIKE = "a torch.Tensor, a NumPy array, or a list of numbers or of rows of one length"
RULES: dict[Any, Rule] = {
    NoneType: Rule(lambda value: value is None, "", frozenset([NoneType])),
    bool: Rule(  # strings and arrays, which Python also accepts as conditions, are more likely mistakes
        lambda value: isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1)),
        "True or False",
        frozenset([bool]),
    ),
    int: Rule(is_integer, "an integer"),
    float: Rule(lambda value: isinstance(value, Real) and not is_bool(value), "a number", frozenset([float])),
    str: Rule(lambda value: isinstance(value, str), "a string", frozenset([str])),
    bytes: Rule(
        lambda value: isinstance(value, bytes), "bytes, such as Path('chain.pem').read_bytes()", frozenset([bytes])
    ),
    type: Rule(lambda value: isinstance(value, type), "a class"),
    PathLike: Rule(lambda value: isinstance(value, (str, PathLike)), "a path"),
    torch.Tensor: Rule(
        lambda value: (
            isinstance(value, (list, tuple, range)) or (hasattr(value, "__array__") and getattr(value, "ndim", 1) > 0)
        ),
        ARRAY_LIKE,
        frozenset([torch.Tensor]),
    ),
    torch.dtype: Rule(lambda value: isinstance(value, torch.dtype), "a torch.dtype"),
    torch.device: Rule(is_device, "a device, such as 'cpu' or 'cuda:1'", frozenset([torch.device])),
    torch.Generator: Rule(lambda value: isinstance(value, torch.Generator), "a torch.Generator"),
    BaseContext: Rule(lambda value: isinstance(value, BaseContext), "a multiprocessing context"),
    Executor: Rule(lambda value: hasattr(value, "submit"), "an executor with submit()"),
    Callable: Rule(callable, "a function"),
    Mapping: Rule(lambda value: isinstance(value, Mapping), "a dict"),
    Sequence: Rule(is_list, "a list", frozenset([list, tuple])),
    Iterable: Rule(lambda value: hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0, "a list"),
}
STRINGS = Rule(lambda value: is_list(value) and all(isinstance(part, str) for part in value), "a list of strings")
ALIKE = {Path: PathLike, dict: Mapping, list: Sequence, torch.Size: Sequence, tuple: Sequence}


@cache
def rule_of(declared: Any) -> Rule | None:
    """Return the rule of a declared type, or None if it accepts any value or can't be checked."""
    origin, parts = get_origin(declared) or declared, get_args(declared)
    if origin is Annotated:
        return rule_of(parts[0])
    if origin is Literal:  # the value is checked elsewhere, with suggestions
        return RULES[type(parts[0])]._replace(words=" or ".join(map(repr, parts)))
    if origin in (Union, UnionType):
        return union_rule(parts)
    if origin is tuple and Ellipsis not in parts:
        return Rule(lambda value: is_list(value) and len(value) == len(parts), f"a tuple of {len(parts)}")
    origin = ALIKE.get(origin, origin)
    if origin is Sequence and parts[:1] == (str,):
        return STRINGS
    if origin in RULES:
        return RULES[origin]
    if not isinstance(origin, type) or origin in (Any, BinaryIO):
        return None
    if Protocol in origin.__bases__:
        return protocol_rule(origin)
    return Rule(lambda value: isinstance(value, origin), with_article(origin), frozenset([origin]))


def union_rule(kinds: tuple[Any, ...]) -> Rule | None:
    """Return the rule of a union, or None if one of its types accepts any value."""
    # A device may be given as a string, which the rule of devices checks.
    rules = [rule_of(kind) for kind in kinds if kind is not str or torch.device not in kinds]
    found = [rule for rule in rules if rule is not None]
    if len(found) < len(rules):
        return None
    words = dict.fromkeys(rule.words for rule in found if rule.words)
    if ARRAY_LIKE in words:  # which a list is
        words.pop(RULES[Sequence].words, None)
    plain = frozenset[type]().union(*(rule.plain for rule in found))
    return Rule(lambda value: any(rule.takes(value) for rule in found), " or ".join(words), plain)


def protocol_rule(protocol: type) -> Rule:
    methods = [name for name in vars(protocol) if not name.startswith("_")]
    words = f"an object with the methods of {protocol.__name__}"
    return Rule(lambda value: all(hasattr(value, name) for name in methods), words)


def check_declared(name: str, rule: Rule | None, value: Any) -> None:
    """Raise a TypeError unless the rule accepts a value, or a ValueError if it is an integer of more than 64 bits."""
    if rule is None or (type(value) in rule.plain and (type(value) is not torch.Tensor or value.dim())):
        return
    if not rule.takes(value):
        advice = "; give its initial_seed()" if isinstance(value, torch.Generator) else ""
        raise TypeError(f"{name} must be {rule.words or None}, but is {brief(value)}{advice}")
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise ValueError(f"{name} must be in -2**63 .. 2**64 - 1, but is {brief(value)}")


def check_flags(**values: object) -> None:
    """Raise unless each value, given by argument name, is a bool."""
    for name, value in values.items():
        if value is not True and value is not False:  # the fast path, which matters for calls with few ids
            check_declared(name, RULES[bool], value)


IGNORED = {
    "assume_num_node_within_int32": "all 64 bits of an id are used",
    "asynchronous": "the loader's workers overlap mini-batches already",
    "cooperative": "ranks form joint mini-batches with sample_neighbor and sample_layer_neighbor",
    "gpu_cache_threshold": "a cache of edges cost more than it saved",
    "num_gpu_cached_edges": "a cache of edges cost more than it saved",
    "num_parts": "a cache has one part",
    "offsets": "a cache has one part",
    "returning_indices_and_original_edge_ids_are_optional": "both are always returned",
}
"""GraphBolt's arguments that have no effect here, with the reason. Some functions accept them with a warning."""


def check_arguments(owner: str, known: Collection[str], given: Iterable[str]) -> None:
    """Raise a TypeError that suggests the nearest name if an argument's name is unknown."""
    for name in given:
        if name not in known:
            advice = nearest(name, known) or (f"; leave it out: {IGNORED[name]}" if name in IGNORED else "")
            raise TypeError(f"{owner}() has no argument {name!r}{advice}")


def without_ignored(owner: str, ignored: Collection[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without the ignored ones, and issue a single warning with their names and the reasons."""
    names = [name for name in given if name in ignored]
    if not names:
        return given
    reasons = "; ".join(dict.fromkeys(IGNORED[name] for name in names))
    if given.get("cooperative") and "cooperative" in names:  # the only one that would change mini-batches
        raise ValueError(f"cooperative must be False: {reasons}; leave it out")
    # Report the line of the user's call, two levels up.
    warnings.warn(f"{owner}() ignores {', '.join(names)}: {reasons}", stacklevel=3)
    return {name: value for name, value in given.items() if name not in names}


def ignores(*names: str) -> Callable[[Made], Made]:
    """Make a function accept some arguments of `IGNORED` by name, with a warning."""

    def decorate(made: Made) -> Made:
        owner = made.__qualname__.removesuffix(".__init__")

        @wraps(made)
        def call(*args: Any, **kwargs: Any) -> Any:
            return made(*args, **without_ignored(owner, names, kwargs) if kwargs else kwargs)

        return cast("Made", call)

    return decorate


def rename_overrides(cls: type, names: Mapping[str, str]) -> None:
    """Rename the methods of a subclass that override a method by its old name, with a DeprecationWarning."""
    for old, new in names.items():
        if old in vars(cls):
            warnings.warn(f"rename {cls.__name__}.{old} to {new}", DeprecationWarning, stacklevel=3)
            setattr(cls, new, vars(cls)[old])


def checked(made: Made) -> Made:
    """Decorate a function, or a class, to check the type of each argument against its annotation."""
    if isinstance(made, type):
        maker = "__new__" if issubclass(made, tuple) else "__init__"
        setattr(made, maker, checked(getattr(made, maker)))
        return made
    parameters = signature(made).parameters
    rules = {name: rule_of(made.__annotations__.get(name, Any)) for name in parameters}
    in_order, owner = tuple(rules.items()), made.__qualname__.removesuffix(".__init__")
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(made)
    def check(*args: Any, **kwargs: Any) -> Any:
        for (name, rule), value in zip(in_order, args, strict=False):
            if rule is not None and (
                type(value) not in rule.plain or (type(value) is torch.Tensor and not value.dim())
            ):
                check_declared(name, rule, value)
        for name, value in kwargs.items():
            check_declared(name, rules.get(name), value)
            if not takes_more and name not in rules:
                check_arguments(owner, rules, kwargs)
        return made(*args, **kwargs)

    return cast("Made", check)


def is_plain(declared: Any) -> bool:
    """Return whether a type is bool, int, float or str, or one of these or None. Stages check other types."""
    kinds = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    return {*kinds} - {NoneType} in ({bool}, {int}, {float}, {str})


@cache
def rules_of(kind: type) -> dict[str, Rule | None]:
    """Return the rules of the fields that graphfeed declares. Fields of user-defined subclasses are not checked."""
    own = next(base for base in kind.__mro__ if base.__module__.partition(".")[0] == "graphfeed")
    fields = getattr(own, "__dataclass_fields__", {})
    return {name: rule_of(field.type) for name, field in fields.items() if is_plain(field.type)}


def check_fields(made: Any) -> None:
    """Raise a TypeError or a ValueError if the value of a field doesn't match its declared type.

    Tensors and NumPy scalars in fields that are declared as numbers are replaced by Python numbers.
    """
    kind: Any = type(made)
    for name, rule in rules_of(kind).items():
        value = getattr(made, name)
        check_declared(name, rule, value)
        if isinstance(value, (torch.Tensor, np.generic)):
            made.__dict__[name] = value.item()
