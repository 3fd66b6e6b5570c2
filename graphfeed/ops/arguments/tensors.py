"""Conversion of arrays and lists to tensors."""

from array import array
from collections.abc import Sequence
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments.checks import ID_DTYPES
from graphfeed.ops.arguments.texts import brief
from graphfeed.ops.mapped_memory import note_memmap

Tensors: TypeAlias = tuple[torch.Tensor | None, ...]
NOTHING = torch.empty(0, dtype=torch.int64, device="cpu")
"""Stands for a missing array."""
OTHER_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64)


class Borrowed:
    """A writable view of an array's memory, because torch warns about read-only arrays. It keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def as_tensor(name: str, values: Any) -> torch.Tensor:
    """Convert an argument to a tensor: a tensor, a NumPy array, a column of a data frame, or a list of numbers.

    Tensors are returned unchanged. The memory of arrays, and of objects that NumPy can view, is shared, so the tensor
    of a read-only array must not be written to. Lists are copied, and so are arrays with negative strides or in another
    byte order. An empty list becomes int64. Other values, ragged lists and sparse tensors raise a TypeError.

    Example:
        >>> as_tensor("ids", range(3)), as_tensor("ids", np.array([2, 1]))
        (tensor([0, 1, 2]), tensor([2, 1]))
    """
    if isinstance(values, torch.Tensor):
        if values.layout is not torch.strided:
            raise TypeError(f"{name} must be a dense tensor, but is of {values.layout}; convert it with .to_dense()")
        return values
    if isinstance(values, range):
        return torch.arange(values.start, values.stop, values.step, device="cpu")
    if values is None or isinstance(values, (str, bytes, dict, set, frozenset)):
        raise no_tensor(name, values)
    try:
        if hasattr(values, "__array__"):
            values = np.asanyarray(values)
        elif isinstance(values, (list, tuple)) and not values:
            return torch.empty(0, dtype=torch.int64, device="cpu")
        elif isinstance(values, (Sequence, Number, array)):
            return torch.as_tensor(values, device="cpu")
        else:
            raise no_tensor(name, values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise no_tensor(name, values) from error
    return from_array(name, values)


def as_ids(name: str, values: Any) -> torch.Tensor:
    """Convert ids to a tensor (see `as_tensor`). Integer dtypes other than int32 and int64 become int64.

    An empty floating-point tensor becomes int64, since `torch.tensor([])` is float32. Ids must be below 2**63.

    Example:
        >>> as_ids("ids", torch.tensor([1, 2], dtype=torch.uint8)).dtype
        torch.int64
    """
    if isinstance(values, torch.Tensor) and values.dtype in ID_DTYPES and values.layout is torch.strided:
        return values
    given = as_tensor(name, values)
    if given.dtype not in OTHER_INTEGERS:
        return given.to(torch.int64) if given.numel() == 0 and given.is_floating_point() else given
    ids = given.to(torch.int64)
    # torch can't compare uint64. As int64, numbers of 2**63 and above are negative, in the same order.
    if given.dtype == torch.uint64 and (wrapped := ids[ids < 0]).numel():
        raise ValueError(
            f"{name} must be below 2**63, but holds {int(wrapped.max()) + 2**64}; check that "
            "no negative id was converted to uint64"
        )
    return ids


def holds_whole(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has an integer dtype, which bool is not."""
    return tensor.dtype in ID_DTYPES or tensor.dtype in OTHER_INTEGERS


def from_array(name: str, array: NDArray[Any]) -> torch.Tensor:
    """Convert an array to a tensor that shares its memory if possible."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be lost; fill it with .filled(...)")
    if array.dtype.kind not in "biufc":
        # As integers, dates count their unit, which may differ between the arrays of a graph and its seeds.
        unit = {"M": ".astype('datetime64[us]')", "m": ".astype('timedelta64[us]')"}.get(array.dtype.kind, "")
        raise TypeError(
            f"{name} must hold numbers, but holds {array.dtype}; convert it, for example with {unit}.astype('int64')"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(step < 0 for step in array.strides):
        array = np.ascontiguousarray(array)
    array = note_memmap(array)
    return torch.from_numpy(array if array.flags.writeable else np.asarray(Borrowed(array)))


def is_read_only(values: Any) -> bool:
    """Return whether `as_tensor` would return a tensor of read-only memory."""
    if isinstance(values, torch.Tensor) or not hasattr(values, "__array__"):
        return False
    return not np.asarray(values).flags.writeable


def no_tensor(name: str, values: object) -> TypeError:
    return TypeError(
        f"{name} must be a torch.Tensor, a NumPy array, or a list of numbers or of rows of one length, but is "
        f"{brief(values)}"
    )
