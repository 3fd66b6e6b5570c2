"""A member of items that is a list of ids for each, such as the true destinations of a source."""

from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import holds_whole
from graphfeed.storage.memory.shareable import Shareable


class ItemLists(Shareable):
    """Lists of integers, one per item. Several are one tensor, whose rows are padded with -1 on the right.

    Raises:
        ValueError: The values are not integers, or the offsets don't rise from 0 to the number of values.

    Example:
        >>> lists = ItemLists(torch.tensor([5, 6, 7]), torch.tensor([0, 2, 2, 3]))
        >>> lists[torch.tensor([2, 0])], lists[1]
        (tensor([[ 7, -1],
                [ 5,  6]]), tensor([], dtype=torch.int64))
    """

    def __init__(self, values: torch.Tensor, offsets: torch.Tensor) -> None:
        if not (holds_whole(values) and holds_whole(offsets)):
            raise ValueError(f"lists must have integers, but the values are {values.dtype}, offsets {offsets.dtype}")
        rises = offsets.dim() == 1 and len(offsets) and offsets[0] == 0 and bool((offsets.diff() >= 0).all())
        if not rises or values.dim() != 1 or offsets[-1] != len(values):
            raise ValueError(f"offsets must rise from 0 to {len(values)}, the number of values, but are {offsets}")
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Return the list at an int, or those at a slice or a tensor of positions."""
        if isinstance(index, int):
            return self.values[self.offsets[index] : self.offsets[index + 1]]
        places = np.arange(*index.indices(len(self))) if isinstance(index, slice) else index.numpy()
        starts, ends = self.offsets.numpy()[places], self.offsets.numpy()[places + 1]
        counts = ends - starts
        columns = np.arange(counts.max(initial=0))
        inside = columns < counts[:, None]
        out = np.full(inside.shape, -1)
        out[inside] = self.values.numpy()[(starts[:, None] + columns)[inside]]
        return torch.from_numpy(out)
