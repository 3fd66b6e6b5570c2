"""A table of columns of several kinds, of which each mini-batch gets the rows that it needs."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage import Feature


class FrameFeature(Feature):
    """Reads rows of a `TensorFrame` of pytorch-frame's as PyG does: `frame[ids]`, in the main process."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def read(self, ids: torch.Tensor | None = None) -> Any:
        return self._frame if ids is None else self._frame[ids.to(self._frame.device, torch.int64)]

    def size(self) -> torch.Size:
        return torch.Size((self._frame.num_cols,))

    def count(self) -> int:
        return int(self._frame.num_rows)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        del value, ids
        raise TypeError(f"{self} is only read; set another TensorFrame in data, which counts from the next epoch on")

    def __repr__(self) -> str:
        return f"TensorFrame([{self.count()}, {self._frame.num_cols}])"


def join_frames(frames: Sequence[Any]) -> Any:
    return import_pyg("torch_frame", "a TensorFrame").cat(frames, dim=0)


def is_frame(value: Any) -> bool:
    # An older PyG has no such class, and then nothing is one.
    return isinstance(value, getattr(import_pyg("torch_geometric.typing", "a TensorFrame"), "TensorFrame", ()))
