"""Item sets: the seeds, labels and so on that mini-batches are made of."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.checks import ID_DTYPES
from graphfeed.storage.memory.shared import Shareable

Index: TypeAlias = int | slice | Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor
"""One position, or several."""


def count_rows(items: Any) -> int:
    """Return the number of items; an integer n stands for the items 0 .. n - 1."""
    if is_number(items):
        return int(items)
    if isinstance(items, str) or not hasattr(items, "__len__"):
        raise TypeError(f"items must be a tensor, a sequence, a tuple of those, or a number of items, but is {items!r}")
    return len(items)


def is_number(items: Any) -> bool:
    """Tell whether the items are an integer or a 0-d tensor, which stands for a range."""
    return isinstance(items, int) or (isinstance(items, torch.Tensor) and items.dim() == 0)


def as_place(index: Any) -> Any:
    """Convert a NumPy integer or a 0-d tensor to an int; return anything else unchanged."""
    if isinstance(index, np.integer) or (isinstance(index, torch.Tensor) and index.dim() == 0):
        return int(index) if isinstance(index, np.integer) or index.dtype in ID_DTYPES else index
    return index


def as_index(index: object, owner: str) -> torch.Tensor:
    """Return several positions as a tensor."""
    if isinstance(index, (Sequence, np.ndarray)) and not isinstance(index, str):
        index = torch.as_tensor(index) if len(index) else torch.empty(0, dtype=torch.int64)
    kind = index.dtype if isinstance(index, torch.Tensor) else type(index).__name__
    if not isinstance(index, torch.Tensor) or kind not in ID_DTYPES:
        raise TypeError(f"{owner} indices must be int, slice, or a sequence or tensor of int, not {kind}")
    return index


def check_range(index: torch.Tensor, length: int, owner: str) -> None:
    """Raise an IndexError unless every position is in range."""
    if index.numel() and not (int(index.min()) >= 0 and int(index.max()) < length):
        wrong = index[(index < 0) | (index >= length)]
        raise IndexError(f"{owner} index out of range: {int(wrong[0])} of {length} items")


class ItemSet(Shareable):
    """Items by position, such as node ids, edges or labels.

    Args:
        items: A tensor, or any object with a length that can be indexed; a tuple of these with equal lengths; or an
            int or 0-d tensor n, which stands for 0 .. n - 1.
        names: The field of the mini-batch that each member fills, such as "seeds" or ("seeds", "labels").

    Raises:
        ValueError: The members have different lengths, or there are more or fewer names than members.

    Example:
        >>> ItemSet((torch.arange(3), torch.tensor([7, 8, 9])), names=("seeds", "labels"))[1]
        (tensor(1), tensor(8))
    """

    def __init__(self, items: Any, names: str | tuple[str, ...] | None = None) -> None:
        self.is_tuple = isinstance(items, tuple)
        self._items: tuple[Any, ...] = items if self.is_tuple else (items,)
        self._names = (names,) if isinstance(names, str) else None if names is None else tuple(names)
        if not self._items:
            raise ValueError("items is an empty tuple; give a tensor, or a tuple of at least one tensor")
        lengths = [count_rows(member) for member in self._items]
        if len(set(lengths)) > 1:
            raise ValueError(f"Size mismatch between items: the members have {lengths} rows; make them equally long")
        if lengths[0] < 0:
            raise ValueError(f"items must be 0 or more, but is {lengths[0]}")
        self._length = lengths[0]
        if self._names is not None and len(self._names) != len(self._items):
            raise ValueError(
                f"Number of items ({len(self._items)}) and names ({len(self._names)}) don't match; "
                "name each member of items once"
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the members, or None."""
        return self._names

    @property
    def num_items(self) -> int:
        """The number of members of each item."""
        return len(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return self._length

    def __getitem__(self, index: Index) -> Any:
        """Return the rows at an int, slice, sequence of ints or tensor of ints; a tuple of rows for several members."""
        index = as_place(index)
        if isinstance(index, int):
            if not -self._length <= index < self._length:
                raise IndexError(f"ItemSet index out of range: {index} of {self._length} items")
            index = index % self._length
        elif not isinstance(index, slice):
            index = as_index(index, "ItemSet")
            check_range(index, self._length, "ItemSet")
        rows = tuple(self._rows(member, index) for member in self._items)
        return rows if len(rows) > 1 else rows[0]

    def _rows(self, member: Any, index: int | slice | torch.Tensor) -> Any:
        if not is_number(member):
            if isinstance(member, torch.Tensor) and isinstance(index, torch.Tensor) and index.dim() == 1:
                return member.index_select(0, index)  # takes a third of the time of member[index]
            return member[index]
        dtype = member.dtype if isinstance(member, torch.Tensor) else torch.int64
        if isinstance(index, slice):
            return torch.arange(*index.indices(self._length), dtype=dtype)
        if isinstance(index, torch.Tensor):
            check_range(index, self._length, "ItemSet")
            return index.to(dtype)
        return torch.tensor(index, dtype=dtype)

    def __iter__(self) -> Iterator[Any]:
        """Yield one item after the other."""
        return (self[place] for place in range(self._length))

    def __repr__(self) -> str:
        """Return the items and the names, one per line."""
        items = self._items if self.is_tuple or not is_number(self._items[0]) else self._items[0]
        return f"{type(self).__name__}(\n    items={items},\n    names={self._names},\n)"


class HeteroItemSet(Shareable):
    """Item sets by node type or edge type. Positions run through the types in the order of the dict.

    Args:
        itemsets: The item set of each type; all must have the same names.

    Raises:
        ValueError: The dict is empty, or the names differ.

    Example:
        >>> items = HeteroItemSet({"user": ItemSet(2, names="seeds"), "item": ItemSet(3, names="seeds")})
        >>> items[torch.tensor([4, 0])]
        {'user': tensor([0]), 'item': tensor([2])}
    """

    def __init__(self, itemsets: Mapping[str, ItemSet]) -> None:
        if not isinstance(itemsets, Mapping):
            raise TypeError(f"itemsets must be a dict of ItemSet by type, but is a {type(itemsets).__name__}")
        if not itemsets:
            raise ValueError("itemsets is empty; give an ItemSet for at least one type")
        for kind, items in itemsets.items():
            if not isinstance(items, ItemSet):
                raise TypeError(
                    f"itemsets[{kind!r}] must be an ItemSet, but is a {type(items).__name__}; "
                    "wrap it, for example ItemSet(ids, names='seeds')"
                )
        self._itemsets = dict(itemsets)
        names = {kind: items.names for kind, items in self._itemsets.items()}
        if len(set(names.values())) > 1:
            raise ValueError(f"All itemsets must have the same names, but they have {names}")
        self._names = next(iter(names.values()))
        starts = [0]
        for items in self._itemsets.values():
            starts.append(starts[-1] + len(items))
        self._starts = torch.tensor(starts)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names that all item sets share, or None."""
        return self._names

    @property
    def num_items(self) -> int:
        """The number of members of each item."""
        return next(iter(self._itemsets.values())).num_items

    def __len__(self) -> int:
        """Return the number of items of all types together."""
        return int(self._starts[-1])

    def __getitem__(self, index: Index) -> dict[str, Any]:
        """Return the rows by type, each in the requested order; types without rows are left out."""
        index = as_place(index)
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"HeteroItemSet index out of range: {index} of {len(self)} items")
            index = index % len(self)
            kind = int(torch.searchsorted(self._starts, index, right=True)) - 1
            name = list(self._itemsets)[kind]
            return {name: self._itemsets[name][index - int(self._starts[kind])]}
        if isinstance(index, slice):
            index = torch.arange(*index.indices(len(self)))
        else:
            index = as_index(index, "HeteroItemSet")
        check_range(index, len(self), "HeteroItemSet")
        kinds = torch.bucketize(index, self._starts[1:], right=True)
        rows = {}
        for kind, (name, items) in enumerate(self._itemsets.items()):
            own = index[kinds == kind]
            if own.numel():
                rows[name] = items[own - self._starts[kind]]
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one item after the other, type by type."""
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        """Return the item sets and the names, one per line."""
        itemsets = textwrap.indent(str(self._itemsets), " " * len("    itemsets=")).strip()
        return f"{type(self).__name__}(\n    itemsets={itemsets},\n    names={self._names},\n)"
