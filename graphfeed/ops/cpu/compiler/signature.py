"""Signatures of kernels, read from their annotations, and the layout of arguments for machine code.

All arguments of a kernel are stored in one block of 64-bit words. Machine code receives only its address::

    argument                     words
    array with one dimension     address, size
    array with two dimensions    address, rows, columns
    int, uint64, bool            the number
    named tuple of arrays        address of a separate block
"""

import inspect
import itertools
import os
from array import array
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("0", "")
"""Whether kernels run as plain Python functions."""
WORD = (1 << 64) - 1
"""Mask of the bits of a word."""
NAMES: dict[Any, str] = {}
"""Names of dtypes of torch and NumPy, filled on demand."""


class DTypes(NamedTuple):
    """A named choice of dtypes in annotations. In a call, all arrays with the same name have the same dtype."""

    name: str
    dtypes: tuple[str, ...]


Chosen = dict[str, str]
"""Dtype of each `DTypes` in a call, by name."""


@dataclass(frozen=True)
class ArrayType:
    """Annotation for a contiguous array."""

    dtype: str | DTypes
    ndim: int = 1

    def dtype_in(self, chosen: Chosen) -> str:
        return self.dtype if isinstance(self.dtype, str) else chosen[self.dtype.name]

    def choose(self, name: str, value: Any, chosen: Chosen) -> None:
        """Record the dtype of an array. Raises a TypeError if its dtype or number of dimensions doesn't match."""
        dtype = dtype_name(value.dtype)
        if isinstance(self.dtype, str):
            fits = dtype == self.dtype
        else:
            fits = dtype in self.dtype.dtypes and chosen.setdefault(self.dtype.name, dtype) == dtype
        if not (fits and value.ndim == self.ndim):
            raise TypeError(f"{name} must be {self.text(chosen)}, but is {value.dtype} of shape {tuple(value.shape)}")

    def text(self, chosen: Chosen) -> str:
        if isinstance(self.dtype, str) or self.dtype.name in chosen:
            dtypes = self.dtype_in(chosen)
        else:
            dtypes = " or ".join(self.dtype.dtypes)
        return f"an array of {dtypes} in {self.ndim} dimension{'s' if self.ndim > 1 else ''}"


def dtype_name(dtype: Any) -> str:
    """Return the name of a torch or NumPy dtype, such as "int64" for `torch.int64`."""
    found = NAMES.get(dtype)
    if found is None:
        found = NAMES[dtype] = str(dtype).removeprefix("torch.")
    return found


def storage_address(values: Any) -> int:
    """Return the address of a NumPy array. Three times as fast as `values.ctypes.data`, unless it is read-only."""
    if values.size == 0:
        return 0  # never read
    try:
        return addressof(c_char.from_buffer(values))
    except (TypeError, ValueError):  # read-only
        address: int = values.ctypes.data
        return address


def flatten_arguments(values: Sequence[Any], words: list[int], key: list[Any], kept: list[Any]) -> None:
    """Append to `words` the words of arguments, to `key` their dtypes and ndims, and to `kept` what must stay alive."""
    for value in values:
        if isinstance(value, np.ndarray):
            whole = value.flags.c_contiguous
            words.append(storage_address(value))
        elif hasattr(value, "data_ptr"):  # a tensor: torch is not imported here
            whole = value.is_contiguous()
            words.append(value.data_ptr())
        elif isinstance(value, Block):
            words.append(value.address)
            key.append(value.key)
            kept.append(value)
            continue
        elif isinstance(value, tuple):
            own: list[int] = []
            flatten_arguments(value, own, key, kept)
            kept.append(array("Q", own))
            words.append(kept[-1].buffer_info()[0])
            continue
        else:
            words.append(int(value) & WORD)
            key.append(None)
            continue
        if not whole:
            raise TypeError(f"arrays must be contiguous, but one of shape {tuple(value.shape)} is not")
        words += value.shape
        key += (value.dtype, value.ndim)


class Block:
    """A named tuple of arrays, stored as words at a fixed address, so that programs see replaced arrays."""

    def __init__(self, values: Any) -> None:
        self.kind, self.chosen = type(values), Chosen()
        self.arrays: dict[str, Any] = values._asdict()
        """Arrays by name, kept alive here."""
        words: list[int] = []
        key: list[Any] = []
        self.places: dict[str, tuple[int, str]] = {}
        """Index of the first word and dtype of each array."""
        for name, kind in fields_of(self.kind):  # type: ignore[arg-type]  # a bug of mypy
            kind.choose(name, self.arrays[name], self.chosen)
            self.places[name] = len(words), kind.dtype_in(self.chosen)
            flatten_arguments([self.arrays[name]], words, key, [])
        self.key, self.words = tuple(key), array("Q", words)
        self.address: int = self.words.buffer_info()[0]

    @property
    def values(self) -> Any:
        """The arrays as a named tuple."""
        return self.kind(**self.arrays)

    def set_array(self, name: str, value: Any) -> None:
        """Replace a one-dimensional array with another contiguous one of the same dtype, and keep it alive."""
        self.set_borrowed(name, value)
        self.arrays[name] = value

    def set_borrowed(self, name: str, value: Any) -> None:
        """Like `set_array`, but the caller keeps the array alive while kernels run: machine code has only its address.

        Interpreted kernels keep a reference to the array, so they hide a missing one of the caller.
        """
        place, dtype = self.places[name]
        if isinstance(value, np.ndarray):
            address, size, whole = storage_address(value), value.size, value.flags.c_contiguous
        else:
            address, size, whole = value.data_ptr(), value.numel(), value.is_contiguous()
        if (NAMES.get(value.dtype) or dtype_name(value.dtype)) != dtype or not whole:
            raise TypeError(f"{name} must be a contiguous array of {dtype}, but is {value.dtype}")
        self.words[place], self.words[place + 1] = address, size
        if INTERPRETED:
            self.arrays[name] = value


@cache
def fields_of(kind: type) -> list[tuple[str, ArrayType]]:
    return list(inspect.get_annotations(kind).items())


class Signature:
    """Parameters of a kernel: array types, named tuples of array types, `int`, `bool` and `np.uint64`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        found = inspect.signature(function)
        self.parameters = [(name, parameter.annotation) for name, parameter in found.parameters.items()]
        self.returns = found.return_annotation

    def variables(self) -> list[DTypes]:
        """Return the choices of dtypes, in the order of the parameters."""
        found: dict[str, DTypes] = {}
        for _, kind in self.parameters:
            arrays = [kind] if isinstance(kind, ArrayType) else []
            if is_tuple(kind):
                arrays = [part for _, part in fields_of(kind)]
            for part in arrays:
                if isinstance(part.dtype, DTypes):
                    found[part.dtype.name] = part.dtype
        return list(found.values())

    def variants(self) -> list[tuple[str, ...]]:
        return list(itertools.product(*(variable.dtypes for variable in self.variables())))

    def arguments_of(self, dtypes: Sequence[str], words: Sequence[int]) -> list[Any]:
        """Return numbers and one-dimensional arrays from their words (see `Kernel.call_words`)."""
        chosen: Chosen = dict(zip([own.name for own in self.variables()], dtypes, strict=True))
        found, left = list[Any](), iter(words)
        for _, kind in self.parameters:
            value = next(left)
            if isinstance(kind, ArrayType):
                dtype = np.dtype(kind.dtype_in(chosen))
                memory = (c_char * (next(left) * dtype.itemsize)).from_address(value)
                found.append(np.ndarray(len(memory) // dtype.itemsize, dtype, memoryview(memory)))
            else:
                found.append(value)
        return found

    def choose(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Return the dtypes of the arguments of a call, one for each of `variables`."""
        chosen: Chosen = {}
        for (name, kind), value in zip(self.parameters, arguments, strict=True):
            if isinstance(kind, ArrayType):
                kind.choose(name, value, chosen)
            elif is_tuple(kind):
                values = value.values if isinstance(value, Block) else value
                for (field, part), own in zip(fields_of(kind), values, strict=True):
                    part.choose(f"{name}.{field}", own, chosen)
            elif isinstance(value, (np.ndarray, tuple, Block)) or hasattr(value, "data_ptr"):
                raise TypeError(f"{name} must be a number, but is {type(value).__name__}")
        return tuple(chosen.values())


def is_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)
