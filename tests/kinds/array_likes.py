"""The same numbers in all kinds of containers."""

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray


class Column:
    """Like a data frame's column in NumPy: converts to a read-only view."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        view = self.values.view()
        view.flags.writeable = False
        return view


AS: dict[str, Callable[[torch.Tensor], Any]] = {
    "array": lambda tensor: tensor.numpy(),
    "list": torch.Tensor.tolist,
    "column": lambda tensor: Column(tensor.numpy()),
    "swapped": lambda tensor: tensor.numpy().astype(tensor.numpy().dtype.newbyteorder()),
    "backwards": lambda tensor: tensor.numpy()[::-1].copy()[::-1],
}
"""Functions that convert a tensor to another container with the same numbers; lists have int64 and float32."""
