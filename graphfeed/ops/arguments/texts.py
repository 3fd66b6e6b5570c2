"""Short representations of values, and suggestions of names, for error messages."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np
import torch

MOST_PARTS = 4
"""Maximum number of values of a collection or an array in an error message."""
MOST_LETTERS = 80
LONGEST = 160
PLAIN = (int, float, complex, type(None), torch.dtype, torch.device, np.generic, range, slice, PurePath, Enum)
KNOWN_TEXTS: tuple[Any, ...] = (np.ndarray.__repr__, torch.Tensor.__repr__, torch.nn.Parameter.__repr__)
BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("{", "}")}


class UnknownName(KeyError):
    """A KeyError whose message is printed verbatim. Other KeyErrors print the `repr` of their message."""

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar known names, to append to an error message; "" if there are none.

    Example:
        >>> nearest("fanout", ["replace", "fanouts"])
        "; did you mean 'fanouts'?"
    """
    near = difflib.get_close_matches(name, list(known), n=2)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_known(argument: str, names: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raise an UnknownName unless all names in an argument are known names of a kind, such as "edge type".

    Example:
        >>> try:
        ...     check_known("labels", ["a:t:b"], ["a:to:b"], "edge type")
        ... except UnknownName as error:
        ...     print(error)
        labels has 'a:t:b', but the edge types are ['a:to:b']; did you mean 'a:to:b'?
    """
    for name in names:
        if name not in known:
            there = f"the {kind}s are {brief(sorted(known))}" if known else f"there are no {kind}s"
            raise UnknownName(f"{argument} has {brief(name)}, but {there}{nearest(str(name), known)}")


def brief(value: object) -> str:
    """Return a short string that describes any value, for an error message.

    At most a few values of tensors, arrays and collections are shown; for other objects, the class. User-defined code
    is never called, so that creating an error message neither fails nor takes long.

    Example:
        >>> print(brief(torch.zeros(1000, 2)), brief({"a": list(range(100))}))
        a Tensor of shape (1000, 2) and torch.float32 {'a': [0, 1, 2, 3, ... 100 in all]}
    """
    return shorten(value_text(value, levels=2), LONGEST)


def value_text(value: Any, levels: int) -> str:
    """Return a string that describes a value, with nested collections up to `levels`."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return array_text(value)
    if isinstance(value, (str, bytes)):
        return repr(value[:MOST_LETTERS]) + ("..." if len(value) > MOST_LETTERS else "")
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, PLAIN):
        return shorten(repr(value), MOST_LETTERS)
    if isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType)):
        return shorten(value.__qualname__, MOST_LETTERS)
    if isinstance(value, (dict, MappingProxyType)):
        pairs = islice(value.items(), MOST_PARTS if levels else 0)
        parts = [f"{value_text(key, levels - 1)}: {value_text(part, levels - 1)}" for key, part in pairs]
        return f"{{{join_words(parts, len(value))}}}"
    for kind, (opened, closed) in BRACKETS.items():
        if isinstance(value, kind) and isinstance(value, Collection):
            parts = [value_text(part, levels - 1) for part in islice(value, MOST_PARTS if levels else 0)]
            return f"{opened}{join_words(parts, len(value))}{',' * (kind is tuple and len(value) == 1)}{closed}"
    return kind_of(value)


def kind_of(value: object) -> str:
    """Return the class of a value with its article, for an error message.

    Example:
        >>> kind_of(1.5), kind_of([1]), kind_of(None), kind_of(3)
        ('a float', 'a list', 'None', 'an int')
    """
    return "None" if value is None else with_article(type(value))


def with_article(kind: type) -> str:
    name = kind.__qualname__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def join_or(words: Sequence[str]) -> str:
    """Return alternatives as one string.

    Example:
        >>> join_or(["a"]), join_or(["a", "b"]), join_or(["a", "b", "c"])
        ('a', 'a or b', 'a, b or c')
    """
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)


def array_text(array: Any) -> str:
    """Return the values of a small array on the CPU, or else its shape and dtype."""
    if isinstance(array, np.ndarray):
        is_small = array.size <= MOST_PARTS and not array.dtype.hasobject
    else:
        is_small = array.numel() <= MOST_PARTS and array.is_cpu
    if is_small and type(array).__repr__ in KNOWN_TEXTS:
        with suppress(RuntimeError, NotImplementedError):
            return shorten(repr(array), MOST_LETTERS)
    return f"{kind_of(array)} of shape {tuple(array.shape)} and {array.dtype}"


def join_words(parts: Sequence[str], count: int) -> str:
    more = [f"... {count} in all"] if count > len(parts) else []
    return ", ".join([*parts, *more])


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
