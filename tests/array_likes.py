"""The same numbers as everything that people keep numbers in."""

from typing import Any

import torch
from numpy.typing import NDArray


class Column:
    """What a data frame's column is to NumPy: it hands out a view that must not be written to."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        view = self.values.view()
        view.flags.writeable = False
        return view


AS = {
    "array": lambda tensor: tensor.numpy(),
    "list": torch.Tensor.tolist,
    "column": lambda tensor: Column(tensor.numpy()),
    "swapped": lambda tensor: tensor.numpy().astype(tensor.numpy().dtype.newbyteorder()),
    "backwards": lambda tensor: tensor.numpy()[::-1].copy()[::-1],
}
"""Functions that make a tensor something else with the same numbers; lists have int64 and float32."""
