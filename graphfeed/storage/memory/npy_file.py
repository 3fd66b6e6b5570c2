"""Reads NumPy's files into memory that processes can share, or maps them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.memory import buffers, map_file
from graphfeed.ops.process import ForkLock, regular_file

PARSING = ForkLock()
"""Held while NumPy parses a header: before Python 3.11.8, that may fail in several threads at a time."""


def read_npy(path: str | Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read a `.npy` file of numbers: a large one into memory that worker processes map without a copy."""
    with open(path, "rb", opener=regular_file) as file:
        try:
            with PARSING:
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
    """Map a `.npy` file for reading; return the `numpy.memmap`. Several threads may do so at the same time.

    Raises:
        OSError: It can't be read.
        ValueError: It is damaged, or holds objects.
    """
    with open(path, "rb", opener=regular_file), PARSING:  # NumPy opens it by its name, and would wait for a pipe
        return np.load(path, mmap_mode="r", allow_pickle=False)


def check_numbers(path: str | Path, dtype: np.dtype[Any]) -> None:
    # Of long doubles, texts, dates and objects there are no tensors.
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ValueError(f"{path} holds {dtype}, of which there are no tensors; save numbers or booleans")
