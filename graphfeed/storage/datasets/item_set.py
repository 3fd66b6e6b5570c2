"""Item sets: seeds, labels and other members of mini-batches, and the interface of tasks."""

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import ID_DTYPES, are_below, as_tensor, bounds, brief, check_count, kind_of, mark_below
from graphfeed.storage.graph.type_names import by_type_name
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.tensor_repr import shapes_repr

Index: TypeAlias = int | slice | Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor
"""One position, or several positions."""
MOST_SHOWN = 20
"""Maximum number of items whose values are printed."""
SEEDS = ("seeds", "seed_nodes")
"""Names with which a mask stands for nodes."""
NOT_INDEXED = (torch.uint16, torch.uint32, torch.uint64)
"""Dtypes that torch can't index."""


def as_member(items: Any) -> Any:
    """Return a member as an item set stores it: a number, a range, a tensor, or an object that can be indexed."""
    if is_number(items) or isinstance(items, range):
        return items
    if isinstance(items, (list, tuple)) or hasattr(items, "__array__"):
        try:
            member = as_tensor("items", items)
        except TypeError:
            # A list of objects that can't be converted to a tensor, such as strings, is kept.
            if not isinstance(items, (list, tuple)):
                raise
            return list(items)
        if member.dim():
            return member.to(torch.int64) if member.dtype in NOT_INDEXED else member
        # A 0-d integer tensor is a number of items whose ids have its dtype.
        if member.dtype in ID_DTYPES:
            return member
    elif hasattr(items, "__len__") and hasattr(items, "__getitem__") and not isinstance(items, (str, bytes, Mapping)):
        return items
    raise TypeError(
        f"items must be a tensor, a sequence, a tuple of those, or a number of items, but is {brief(items)}"
    )


def is_number(items: Any) -> bool:
    # A 0-d integer tensor stands for a range, like an int.
    if isinstance(items, torch.Tensor):
        return items.dim() == 0 and items.dtype in ID_DTYPES
    # A bool is an int to Python.
    return isinstance(items, int) and not isinstance(items, bool)


def num_rows_of(member: Any) -> int:
    return int(member) if is_number(member) else len(member)


def is_mask(member: Any) -> bool:
    return isinstance(member, torch.Tensor) and member.dtype == torch.bool and member.dim() == 1


def as_names(names: Any) -> tuple[str | None, ...] | None:
    """Return the names of members, or None if no member has a name. Raises if they are invalid."""
    if names is None or isinstance(names, str):
        return None if names is None else (names,)
    if not isinstance(names, (tuple, list)) or not all(name is None or isinstance(name, str) for name in names):
        raise TypeError(f"names must be a string, or a tuple of strings or None, one per member, but is {brief(names)}")
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise ValueError(f"names must differ, but are {brief(names)}")
    return tuple(names) if given else None


def as_index(index: Any, length: int, owner: str) -> int | slice | torch.Tensor:
    """Return one position, counted from the start, a slice, or a tensor of positions; raise if one is out of range."""
    if isinstance(index, slice):
        return index
    # A 0-d tensor of another dtype is not an index.
    is_one = isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype in ID_DTYPES
    if is_one or isinstance(index, (int, np.integer)):
        if not -length <= int(index) < length:
            raise IndexError(f"{owner} index out of range: {int(index)} of {length} items")
        return int(index) % length
    if isinstance(index, (Sequence, np.ndarray)) and not isinstance(index, str):
        # An empty list would become float32.
        index = torch.as_tensor(index, device="cpu") if len(index) else torch.empty(0, dtype=torch.int64, device="cpu")
    dtype = index.dtype if isinstance(index, torch.Tensor) else type(index).__name__
    if not isinstance(index, torch.Tensor) or dtype not in ID_DTYPES:
        raise TypeError(f"{owner} indices must be int, slice, or a sequence or tensor of int, not {dtype}")
    low, high = bounds(index) if index.numel() and not are_below(index, length) else (0, -1)
    if low < 0 or high >= length:
        wrong = index[(index < 0) | (index >= length)]
        raise IndexError(f"{owner} index out of range: {int(wrong[0])} of {length} items")
    return index


class ItemSet(Shareable):
    """Items by position, such as node ids, edges or labels.

    A mask, a 1-D boolean tensor, stands for the nodes that it selects if it is the only member and has no name, or if
    it is named "seeds". Under any other name it is an ordinary member.

    Args:
        items: A tensor, an array, a list of numbers or a range; a tuple of these with equal lengths; or an int or 0-d
            tensor n, which stands for 0 .. n - 1. Arrays are not copied, and a mapped one stays in its file; lists are
            copied, and so are unsigned integers of more than 8 bits, to int64. A list of other objects, such as strings
            or lists of different lengths, stays a list, also in mini-batches. Any other object with a length is kept if
            it can be indexed; mini-batches index it with a tensor of int64.
        names: The field of the mini-batch that each member fills, such as "seeds" or ("seeds", "labels"). A member with
            the name None is left out of the mini-batch.
        group_size: Number of successive items that stay together in one mini-batch, such as an edge and the negatives
            that it is ranked among.

    Raises:
        ValueError: Members of different lengths, more or fewer names than members, a duplicate name, or a number
            of items that is not a multiple of `group_size`.

    Example:
        >>> ItemSet((torch.arange(3), [7, 8, 9]), names=("seeds", "labels"))[1]
        (tensor(1), tensor(8))
        >>> ItemSet(torch.tensor([False, True, True]), names="seeds")[:]
        tensor([1, 2])
    """

    def __init__(self, items: Any, names: str | Sequence[str | None] | None = None, *, group_size: int = 1) -> None:
        check_count("group_size", group_size, 1)
        self.is_tuple = isinstance(items, tuple)
        members = [as_member(member) for member in (items if self.is_tuple else (items,))]
        self._names = as_names(names)
        if not members:
            raise ValueError("items is an empty tuple; give a tensor, or a tuple of at least one tensor")
        if self._names is not None and len(self._names) != len(members):
            raise ValueError(
                f"Number of items ({len(members)}) and names ({len(self._names)}) don't match; "
                "name each member of items once"
            )
        # A single unnamed member stands for seeds.
        own = self._names or (SEEDS[0] if len(members) == 1 else None,) * len(members)
        self._items: tuple[Any, ...] = tuple(
            # A mask of nodes becomes the ids of the selected nodes.
            member.nonzero().squeeze(1) if name in SEEDS and is_mask(member) else member
            for member, name in zip(members, own, strict=True)
        )
        lengths = [num_rows_of(member) for member in self._items]
        if len(set(lengths)) > 1:
            hint = "; a mask counts the nodes that it selects" if any(map(is_mask, members)) else ""
            raise ValueError(
                f"Size mismatch between items: the members have {lengths} rows; make them equally long{hint}"
            )
        if lengths[0] < 0:
            raise ValueError(f"items must be 0 or more, but is {lengths[0]}")
        self._length, self._group_size = lengths[0], group_size
        if self._length % group_size:
            raise ValueError(
                f"group_size is {group_size}, but there are {self._length} items, which is not a multiple of it"
            )

    @property
    def names(self) -> tuple[str | None, ...] | None:
        """Names of the members, or None. An unnamed member next to named ones has the name None."""
        return self._names

    @property
    def num_items(self) -> int:
        """Number of members of each item."""
        return len(self._items)

    @property
    def group_size(self) -> int:
        """Number of successive items that stay together in a mini-batch."""
        return self._group_size

    @property
    def members(self) -> tuple[Any, ...]:
        """The members: tensors, lists, ranges, or a number n instead of 0 .. n - 1."""
        return self._items

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Index) -> Any:
        """Return the rows at an int, slice, sequence of ints or tensor of ints, as a tuple for several members."""
        place = as_index(index, self._length, "ItemSet")
        rows = [self._rows(member, place) for member in self._items]
        return tuple(rows) if len(rows) > 1 else rows[0]

    def _rows(self, member: Any, index: int | slice | torch.Tensor) -> Any:
        if isinstance(member, torch.Tensor) and member.dim():
            if isinstance(index, torch.Tensor) and index.dim() == 1:
                return member.index_select(0, index)  # three times as fast as member[index]
            return member[index]
        if isinstance(member, list) and isinstance(index, torch.Tensor):
            return [member[row] for row in index.tolist()]
        if not is_number(member) and not isinstance(member, range):
            return member[index]
        # A number or a range takes no memory: its rows are computed.
        dtype = member.dtype if isinstance(member, torch.Tensor) else torch.int64
        whole = member if isinstance(member, range) else range(self._length)
        if isinstance(index, slice):
            part = whole[index]
            return torch.arange(part.start, part.stop, part.step, dtype=dtype, device="cpu")
        if isinstance(index, torch.Tensor):
            return index.to(dtype) if whole is not member else index.to(dtype) * whole.step + whole.start
        return torch.tensor(whole[index], dtype=dtype, device="cpu")

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._length))

    def __repr__(self) -> str:
        items = self._items if self.is_tuple or not is_number(self._items[0]) else self._items[0]
        return f"{type(self).__name__}(\n    items={items},\n    names={self._names},\n)"

    def __str__(self) -> str:
        """Return the values of few items, like `repr`, or the dtypes and shapes of more."""
        return repr(self) if len(self) <= MOST_SHOWN else shapes_repr(type(self).__name__, {"items": members_of(self)})


class HeteroItemSet(Shareable):
    """Item sets by node type or edge type. Positions run through the types in the order of the dict.

    Args:
        itemsets: All must have the same names. An edge type may be a tuple of its three parts, and becomes a string.

    Raises:
        ValueError: The dict is empty, or the names differ.

    Example:
        >>> items = HeteroItemSet({"user": ItemSet(2, names="seeds"), "item": ItemSet(3, names="seeds")})
        >>> items[torch.tensor([4, 0])]
        {'user': tensor([0]), 'item': tensor([2])}
    """

    def __init__(self, itemsets: Mapping[str, ItemSet] | Mapping[tuple[str, str, str], ItemSet]) -> None:
        if not isinstance(itemsets, Mapping):
            raise TypeError(f"itemsets must be a dict of ItemSet by type, but is {kind_of(itemsets)}")
        if not itemsets:
            raise ValueError("itemsets is empty; give an ItemSet for at least one type")
        self._itemsets: dict[str, ItemSet] = by_type_name(cast("Mapping[Any, ItemSet]", itemsets))
        for type_name, items in self._itemsets.items():
            if not isinstance(items, ItemSet):
                raise TypeError(
                    f"itemsets[{type_name!r}] must be an ItemSet, but is {kind_of(items)}; "
                    "wrap it, for example ItemSet(ids, names='seeds')"
                )
        names = {type_name: items.names for type_name, items in self._itemsets.items()}
        if len(set(names.values())) > 1:
            raise ValueError(f"All itemsets must have the same names, but they have {names}")
        self._names = next(iter(names.values()))
        self._starts = np.cumsum([0, *map(len, self._itemsets.values())])

    @property
    def names(self) -> tuple[str | None, ...] | None:
        """The names that all item sets share, or None."""
        return self._names

    @property
    def by_type(self) -> dict[str, ItemSet]:
        """The item set of each type."""
        return dict(self._itemsets)

    @property
    def group_size(self) -> int:
        """Number of items in the largest group that stays together in a mini-batch; types may differ in it."""
        return max(items.group_size for items in self._itemsets.values())

    @property
    def num_items(self) -> int:
        """Number of members of each item."""
        return next(iter(self._itemsets.values())).num_items

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: Index) -> dict[str, Any]:
        """Return the rows by type, each in the requested order; types without rows are left out."""
        if isinstance(index, str):
            raise TypeError(
                "HeteroItemSet indices must be int, slice, or a sequence or tensor of int, not str; the items of a "
                f"type are by_type[{brief(index)}]"
            )
        place = as_index(index, len(self), "HeteroItemSet")
        if isinstance(place, int):
            # From the right, so that types without items are skipped.
            number = int(self._starts.searchsorted(place, side="right")) - 1
            name = list(self._itemsets)[number]
            return {name: self._itemsets[name][place - int(self._starts[number])]}
        if len(self._itemsets) == 1 and not isinstance(place, slice):
            return {name: items[place] for name, items in self._itemsets.items() if place.numel()}
        # By NumPy: torch's functions take longer, and wait for busy cores, starting at about 200 values.
        places = np.arange(*place.indices(len(self))) if isinstance(place, slice) else place.numpy()
        numbers = self._starts[1:].searchsorted(places, side="right")
        rows = {}
        for number, (name, items) in enumerate(self._itemsets.items()):
            # In the requested order.
            own = places[numbers == number]
            if own.size:
                positions = torch.from_numpy(own - int(self._starts[number]))
                mark_below(positions, len(items))
                rows[name] = items[positions]
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        itemsets = textwrap.indent(str(self._itemsets), " " * len("    itemsets=")).strip()
        return f"{type(self).__name__}(\n    itemsets={itemsets},\n    names={self._names},\n)"

    __str__ = ItemSet.__str__


def sets_of(item_set: ItemSet | HeteroItemSet) -> list[ItemSet]:
    """Return the items of each type."""
    return list(item_set.by_type.values()) if isinstance(item_set, HeteroItemSet) else [item_set]


def is_plain(item_set: ItemSet | HeteroItemSet) -> bool:
    """Return whether all members are numbers, ranges and tensors, so that reading items runs no code of the user."""
    sets = sets_of(item_set)
    if type(item_set) not in (ItemSet, HeteroItemSet) or any(type(items) is not ItemSet for items in sets):
        return False
    return all(isinstance(member, (torch.Tensor, int, range)) for items in sets for member in items.members)


def num_groups_of(item_set: ItemSet | HeteroItemSet) -> int:
    """Return the number of groups of items; without groups, each item is one."""
    return sum(len(items) // items.group_size for items in sets_of(item_set))


def rows_of_groups(item_set: ItemSet | HeteroItemSet, groups: torch.Tensor) -> torch.Tensor:
    """Return the positions of the items of some groups, group by group."""
    if item_set.group_size == 1:
        return groups
    sets = sets_of(item_set)
    each = np.array([items.group_size for items in sets])
    rows = np.cumsum([0, *map(len, sets)])
    firsts = np.cumsum([0, *(len(items) // items.group_size for items in sets)])
    numbers = np.searchsorted(firsts[1:], groups.numpy(), side="right")
    sizes = each[numbers]
    starts = rows[numbers] + (groups.numpy() - firsts[numbers]) * sizes
    # The number of each row in all groups, minus that of the first row of its group, plus this row's position.
    return torch.from_numpy(np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum()))


def members_of(items: ItemSet | HeteroItemSet | Any) -> Any:
    if isinstance(items, HeteroItemSet):
        return {name: members_of(own) for name, own in items.by_type.items()}
    # Unnamed members are shown by number.
    return None if items is None else dict(zip(items.names or range(items.num_items), items.members, strict=True))


class Task(ABC):
    """The item sets of a task, and its metadata."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """Properties of the task, such as its name and the number of classes."""

    @property
    @abstractmethod
    def train_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to train on."""

    @property
    @abstractmethod
    def validation_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to validate on."""

    @property
    @abstractmethod
    def test_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to test on."""
