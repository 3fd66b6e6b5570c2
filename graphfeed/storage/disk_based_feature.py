"""A feature in a file, mapped and not loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfeed.ops import gather_rows
from graphfeed.storage.feature import Feature, dtype_and_shape


class DiskBasedFeature(Feature):
    """Rows of a `.npy` file; the system's page cache holds what is read often. Pickles as its path.

    Args:
        path: A NumPy file without pickled objects, two dimensions or more.
        metadata: What else is known.

    Raises:
        ValueError: Fewer than two dimensions, or an array of objects.
    """

    def __init__(self, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
        self._path = str(Path(path).resolve())
        self._metadata = metadata or {}
        # Copy on write: torch knows no read-only memory, and a mapping that it may write to can't harm the file so.
        self._tensor = torch.from_numpy(np.load(self._path, mmap_mode="c", allow_pickle=False))
        if self._tensor.dim() < 2:
            raise ValueError(f"{path} must have 2 dimensions or more, but has {self._tensor.dim()}")

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, read from the file or the page cache; all of them, mapped, if None."""
        return self._tensor if ids is None else gather_rows(self._tensor, ids)

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._tensor.shape[1:]

    def count(self) -> int:
        """Return the number of rows."""
        return self._tensor.shape[0]

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Raise: the file is not written to."""
        raise NotImplementedError(f"{self._path} is only read; write the new rows to a file and open that")

    def metadata(self) -> dict[str, Any]:
        """Return what else is known of the feature."""
        return self._metadata

    def __repr__(self) -> str:
        """Return path, dtype and shape."""
        return f"DiskBasedFeature({self._path!r}, {dtype_and_shape(self._tensor)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the rows."""
        return DiskBasedFeature, (self._path, self._metadata)
