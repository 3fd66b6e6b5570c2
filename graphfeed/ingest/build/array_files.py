"""The arrays that batches of Arrow are written into."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.storage.datasets import ArrayWriter


class Arrays(ExitStack):
    """Arrays in the files of a folder, of as many rows as come, completed if no error leaves `with`."""

    def __init__(self, folder: Path, prefix: str) -> None:
        super().__init__()
        self.folder, self.prefix = folder, prefix
        self.writers: dict[str, ArrayWriter] = {}

    def file(self, name: str) -> str:
        return f"{self.prefix}{name}.npy"

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Write the next rows of an array, in the byte order of the machine."""
        if name not in self.writers:
            dtype = values.dtype.newbyteorder("=")
            writer = ArrayWriter(self.folder / self.file(name), (None, *values.shape[1:]), dtype)
            self.writers[name] = self.enter_context(writer)
        self.writers[name].append(values)


def as_numpy(values: Any) -> NDArray[Any]:
    # There must be no nulls: they would make floats of integers.
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def number_array(values: Any, arrow_type: Any, missing: float | None) -> NDArray[Any]:
    """Return a column of numbers in a type of Arrow, with `missing` in the place of what is NULL or NaN."""
    if values.null_count:
        values = values.fill_null(arrow().scalar(missing or 0).cast(values.type))
    return without_nan(as_numpy(values.cast(arrow_type, safe=False)), missing)


def vector_array(values: Any, inner_type: Any, length: int, missing: float | None) -> NDArray[Any]:
    """Return a column of vectors of one length as an array of two dimensions; vectors that are NULL are filled."""
    given = as_numpy(values.is_valid())
    inner = values.drop_null().flatten().cast(inner_type, safe=arrow().types.is_integer(inner_type))
    filler = arrow().scalar(missing or 0).cast(inner_type)
    inner = as_numpy(inner.fill_null(filler) if inner.null_count else inner)
    if given.all():
        return without_nan(inner.reshape(len(given), length), missing)
    matrix = np.full((len(given), length), filler.as_py(), dtype=inner.dtype)
    matrix[given] = inner.reshape(-1, length)
    return without_nan(matrix, missing)


def without_nan(values: NDArray[Any], missing: float | None) -> NDArray[Any]:
    if missing is None or values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), values.dtype.type(missing), values)


def text_buffers(texts: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each text of an Arrow array begins and, at last, where all end; and the bytes of all."""
    texts = texts.cast(arrow().large_string())
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    # A slice of an array has the buffers of the whole.
    starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return starts - starts[0], np.frombuffer(data or b"", dtype=np.uint8)[starts[0] : starts[-1]]
