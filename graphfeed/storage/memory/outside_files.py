"""Reading of NumPy's and torch's files from untrusted sources: no objects are unpickled."""

import pickle
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.memory import buffers, map_file
from graphfeed.ops.process import ForkLock, regular_file

PARSING = ForkLock()
"""Held while NumPy parses a header, which may fail in concurrent threads before Python 3.11.8."""


@contextmanager
def clear_headers() -> Iterator[None]:
    """Raise a ValueError if NumPy can't parse a header as Python, such as one with an odd quote."""
    try:
        yield
    except (SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"its header is damaged: {error}") from error


def read_npy(path: str | Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read a `.npy` file of numbers. A large array is shared with worker processes without a copy."""
    with open(path, "rb", opener=regular_file) as file:
        try:
            with PARSING.lock, clear_headers():
                there = np.lib.format.open_memmap(path, mode="r")
        except (EOFError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{path} can't be read as a .npy file of numbers: {error}; make it again") from error
        check_saved_numbers(path, there.dtype)
        # Pages are read on demand; writes don't reach the file.
        if mapped:
            data = map_file(file.fileno(), str(Path(path).absolute()), there.offset + there.nbytes)
            return np.ndarray(there.shape, there.dtype, data.data, there.offset, there.strides)
        memory = buffers.empty_long_lived(there.nbytes, torch.uint8, buffers.CPU).numpy()
        file.seek(there.offset)
        if file.readinto(memory.data) < memory.size:
            raise ValueError(f"{path} was truncated while it was read; make it again")
    array: NDArray[Any] = np.ndarray(there.shape, there.dtype, memory.data, strides=there.strides)
    return array


def map_npy(path: str | Path) -> Any:
    """Map a `.npy` file read-only as a `numpy.memmap`. A damaged file or one with objects raises a ValueError."""
    with (
        open(path, "rb", opener=regular_file),
        PARSING.lock,
        clear_headers(),
    ):  # NumPy opens the path, and would block on a pipe
        return np.lib.format.open_memmap(path, mode="r")


def check_saved_numbers(path: str | Path, dtype: np.dtype[Any]) -> None:
    # Tensors can't have extended-precision floats, strings, dates or objects.
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ValueError(f"{path} holds {dtype}, which tensors can't have; save numbers or booleans")


BROKEN = (
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.PickleError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that reading a damaged or malicious file may raise."""
ALLOWING = ForkLock()
"""Held while torch's list of safe types, which all threads share, is changed."""


class Shell:
    """Replacement for an object of a file; it keeps the constructor's arguments and the state."""

    content: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.content = state


def shell_named(module: str, name: str) -> type[Shell]:
    # Torch finds safe types by module and name, so a class with the same two replaces the original.
    return type(name, (Shell,), {"__module__": module, "__qualname__": name})


ARRAY_SHELLS = (
    shell_named("numpy", "ndarray"),
    shell_named("numpy", "dtype"),
    shell_named("numpy._core.multiarray", "_reconstruct"),
    shell_named("numpy.core.multiarray", "_reconstruct"),
    shell_named("builtins", "bytes"),  # called for the empty bytes of an array without values
)
"""Replacements for the types of a pickled NumPy array; NumPy's own also accept dtypes that make bytes pointers."""


def read_array(path: Path) -> NDArray[Any]:
    """Read a NumPy array written by `torch.save`, without NumPy's unpickling."""
    saved = read_tensors(path, ARRAY_SHELLS)
    try:
        return shell_array(saved)
    except ValueError as error:
        raise ValueError(f"{path} holds neither a tensor nor an array of numbers: {error}") from error


def shell_array(saved: Any) -> NDArray[Any]:
    """Return the array of numbers that a shell replaces, writable and in native byte order."""
    try:
        _, shape, dtype, is_fortran, data = saved.content
        code, (_, order, *_) = dtype.arguments[0], dtype.content
        # Only numbers: a dtype of objects would treat bytes as addresses.
        if not re.fullmatch(r"[biufc]\d{1,2}", code):
            raise ValueError(f"an array must hold numbers, but is {brief(code)}")
        kind = np.dtype(code)
        array = np.frombuffer(data if isinstance(data, bytes) else b"", kind.newbyteorder(order))
        return np.array(array.reshape(shape, order="F" if is_fortran else "C"), kind, order="C")
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError("it is an object other than an array") from error


def read_tensors(path: Path, stand_ins: Sequence[Any] = ()) -> Any:
    """Read a file written by `torch.save`, unpickling only tensors and plain Python objects such as dicts and lists.

    Args:
        path: An existing file. A damaged file, or one with other objects, raises a ValueError.
        stand_ins: Replacements for other objects in the file: a class with the module and name of the replaced class,
            or a tuple of a function and the full name that it replaces. They need torch 2.5, and tuples torch 2.6.
    """
    open(path, "rb", opener=regular_file).close()  # torch opens the path, and would block on a pipe
    try:
        return load_with(path, stand_ins)
    except (*BROKEN, OSError) as error:
        if getattr(error, "filename", None) is not None:
            raise  # such as missing permissions; torch's own errors for damaged archives name no file
        found = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        # Torch's own message is long, and advises to unpickle everything.
        reason = f"it holds {found[1]}" if found else f"{type(error).__name__}: {error}"
        if "Unsupported operand" in reason:
            reason = "its pickle_protocol may not be torch's default; load it where it was made, and save it again"
        raise ValueError(f"{path} can't be read without unpickling objects, or is damaged: {reason}") from error


def load_with(path: Path, stand_ins: Sequence[Any]) -> Any:
    # Try without the stand-ins first: they need a lock.
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        if not stand_ins or not hasattr(torch.serialization, "safe_globals"):
            raise
    with allowing(stand_ins):
        return torch.load(path, weights_only=True, map_location="cpu")


@contextmanager
def allowing(stand_ins: Sequence[Any]) -> Iterator[None]:
    """Allow torch to create the stand-ins instead of the objects that a file names."""
    with ALLOWING.lock:
        known = torch.serialization.get_safe_globals()
        names = {qualified_name(value) for value in stand_ins}
        # Types of the same names that the program has allowed are hidden for now, and allowed again afterwards.
        hidden: list[Any] = [value for value in known if value not in stand_ins and qualified_name(value) in names]
        with torch.serialization.safe_globals(hidden):
            pass  # on exit, torch removes the given types, even those allowed before
        try:
            with torch.serialization.safe_globals([value for value in stand_ins if value not in known]):
                yield
        finally:
            torch.serialization.add_safe_globals(hidden)


def qualified_name(value: Any) -> str:
    return str(value[1]) if isinstance(value, tuple) else f"{value.__module__}.{value.__qualname__}"
