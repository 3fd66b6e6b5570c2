"""A `.npy` file whose values begin at a page, for direct reads."""

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

ALIGNMENT = 4096
PREFIX = 10
"""What stands before the header's text: the format's name, its version, and the length of the text."""


def numpy_save_aligned(file: str | os.PathLike[str] | BinaryIO, arr: Any, allow_pickle: bool = False) -> None:
    """Save an array as `numpy.save` does, with its values from a multiple of 4096 bytes on; any reader can read it.

    Nothing of NumPy's is changed for it, so threads may save at once.

    Args:
        file: Where to write; ".npy" is added to a path that doesn't end with it.
        arr: The array, or what NumPy makes one of.
        allow_pickle: Has no effect: what would have to be unpickled is never written.

    Raises:
        ValueError: An array of objects.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> numpy_save_aligned(file, [1, 2, 3])
        >>> file.tell() - 3 * 8
        4096
    """
    array = np.asanyarray(arr)
    del allow_pickle
    if array.dtype.hasobject:
        raise ValueError(f"arr holds objects ({array.dtype}), which would have to be pickled; save numbers")
    if isinstance(file, (str, os.PathLike)):
        path = Path(file) if str(file).endswith(".npy") else Path(f"{os.fspath(file)}.npy")
        with path.open("wb") as opened:
            write(opened, array)
    else:
        write(file, array)


def write(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write a header with spaces up to the alignment, and the values."""
    fields = npy.header_data_from_array_1_0(array)
    usual = io.BytesIO()
    npy.write_array_header_1_0(usual, fields)
    text = usual.getvalue()[PREFIX:].rstrip()
    length = -(-(PREFIX + len(text) + 1) // ALIGNMENT) * ALIGNMENT - PREFIX
    file.write(npy.magic(1, 0) + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n")
    values = array.T if fields["fortran_order"] else array
    file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
