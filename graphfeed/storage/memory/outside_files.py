"""Reads NumPy's files from outside, into memory to be shared or as a mapping, and torch's: no object is unpickled."""

import pickle
import re
import struct
import threading
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
"""Held while NumPy parses a header: before Python 3.11.8, that may fail in several threads at a time."""


def read_npy(path: str | Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read a `.npy` file of numbers: a large one into memory that worker processes map without a copy."""
    with open(path, "rb", opener=regular_file) as file:
        try:
            with PARSING.lock:
                there = np.lib.format.open_memmap(path, mode="r")
        except (EOFError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"{path} can't be read as a .npy file of numbers: {error}; make it again") from error
        check_numbers(path, there.dtype)
        # Pages are read on demand, and writes don't reach the file.
        if mapped:
            data = map_file(file.fileno(), str(Path(path).absolute()), there.offset + there.nbytes)
            return np.ndarray(there.shape, there.dtype, data.data, there.offset, there.strides)
        memory = buffers.empty_long_lived(there.nbytes, torch.uint8, buffers.CPU).numpy()
        file.seek(there.offset)
        if file.readinto(memory.data) < memory.size:
            raise ValueError(f"{path} was cut off meanwhile; make it again")
    array: NDArray[Any] = np.ndarray(there.shape, there.dtype, memory.data, strides=there.strides)
    return array


def map_npy(path: str | Path) -> Any:
    """Map a `.npy` file for reading, as a `numpy.memmap`; one that is damaged or holds objects is a ValueError."""
    with open(path, "rb", opener=regular_file), PARSING.lock:  # NumPy opens it by its name, and would wait for a pipe
        return np.load(path, mmap_mode="r", allow_pickle=False)


def check_numbers(path: str | Path, dtype: np.dtype[Any]) -> None:
    # Of long doubles, texts, dates and objects there are no tensors.
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ValueError(f"{path} holds {dtype}, of which there are no tensors; save numbers or booleans")


BROKEN = (
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.PickleError,
    struct.error,
)
"""What reading a file that is damaged or made up may raise."""
ALLOWING = threading.Lock()
"""Held by whom changes the types that torch unpickles, which all threads share."""


class Shell:
    """Takes the place of an object, and keeps what it would be made of and filled with."""

    content: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.content = state


def shell_named(module: str, name: str) -> type[Shell]:
    # Torch finds what it may make by module and name, so a class of the same two takes the place of another.
    return type(name, (Shell,), {"__module__": module, "__qualname__": name})


ARRAY_SHELLS = (
    shell_named("numpy", "ndarray"),
    shell_named("numpy", "dtype"),
    shell_named("numpy._core.multiarray", "_reconstruct"),
    shell_named("numpy.core.multiarray", "_reconstruct"),
    shell_named("builtins", "bytes"),  # called for no bytes, those of an array without values
)
"""What a NumPy array is written as. NumPy's own functions would also take dtypes that point anywhere."""


def read_array(path: Path) -> NDArray[Any]:
    """Return the NumPy array that `torch.save` wrote, made anew of its bytes."""
    saved = read_tensors(path, ARRAY_SHELLS)
    try:
        return as_array(saved)
    except ValueError as error:
        raise ValueError(f"{path} holds neither a tensor nor an array of numbers: {error}") from error


def as_array(saved: Any) -> NDArray[Any]:
    """Return the array of numbers that a shell stands for, in the machine's byte order and for writing."""
    try:
        _, shape, dtype, is_fortran, data = saved.content
        code, (_, order, *_) = dtype.arguments[0], dtype.content
        # Numbers alone: a dtype of objects would take bytes for addresses.
        if not re.fullmatch(r"[biufc]\d{1,2}", code):
            raise ValueError(f"an array must hold numbers, but is {brief(code)}")
        kind = np.dtype(code)
        array = np.frombuffer(data if isinstance(data, bytes) else b"", kind.newbyteorder(order))
        return np.array(array.reshape(shape, order="F" if is_fortran else "C"), kind, order="C")
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError("it is made of something other than an array") from error


def read_tensors(path: Path, stand_ins: Sequence[Any] = ()) -> Any:
    """Return what `torch.save` wrote, without unpickling anything but tensors, dicts, lists and the like.

    Args:
        path: The file, which must exist. A damaged one, or one of other objects, is a ValueError.
        stand_ins: What may also be named in the file, and what is made in its place: a class that has the module and
            the name of another, or a tuple of a function and the full name of what it replaces. They need torch 2.5,
            and tuples need torch 2.6.
    """
    open(path, "rb", opener=regular_file).close()  # torch opens it by its name, and would wait for a pipe
    try:
        return load_with(path, stand_ins)
    except (*BROKEN, OSError) as error:
        if getattr(error, "filename", None) is not None:
            raise  # such as of permissions; torch's own errors of damaged archives name no file
        found = re.search(r"GLOBAL (\S+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        # Torch's own message is long, and advises to unpickle everything.
        reason = f"it holds {found[1]}" if found else f"{type(error).__name__}: {error}"
        if "Unsupported operand" in reason:
            reason = "its pickle_protocol may not be torch's default; load it where it was made, and save it anew"
        raise ValueError(f"{path} can't be read without unpickling objects, or is damaged: {reason}") from error


def load_with(path: Path, stand_ins: Sequence[Any]) -> Any:
    # Types are allowed only where those that torch knows don't suffice: it takes a lock.
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        if not stand_ins or not hasattr(torch.serialization, "safe_globals"):
            raise
    with allowing(stand_ins):
        return torch.load(path, weights_only=True, map_location="cpu")


@contextmanager
def allowing(stand_ins: Sequence[Any]) -> Iterator[None]:
    """Let torch make some objects in place of those that a file names."""
    with ALLOWING:
        known = torch.serialization.get_safe_globals()
        names = {name_of(value) for value in stand_ins}
        # A program may have allowed a type of the same name: it must not be found now, and is allowed again afterwards.
        hidden: list[Any] = [value for value in known if value not in stand_ins and name_of(value) in names]
        with torch.serialization.safe_globals(hidden):
            pass  # on leaving, torch takes out what is given, whether it was there before or not
        try:
            with torch.serialization.safe_globals([value for value in stand_ins if value not in known]):
                yield
        finally:
            torch.serialization.add_safe_globals(hidden)


def name_of(value: Any) -> str:
    return str(value[1]) if isinstance(value, tuple) else f"{value.__module__}.{value.__qualname__}"
