"""Trees of tensors: tensors in nested dicts, lists, tuples and objects."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch

from graphfeed.ops.memory import is_page_locked


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same dicts, lists and tuples with `function` applied to everything else in it.

    Named tuples and other subclasses of list and tuple count as leaves.

    Example:
        >>> map_leaves(abs, {"a": [-1, (2, -3)]})
        {'a': [1, (2, 3)]}
    """
    if isinstance(tree, dict):
        changed = copy.copy(tree)
        changed.update({name: map_leaves(function, part) for name, part in tree.items()})
        return changed
    if type(tree) in (list, tuple):
        return type(tree)(map_leaves(function, part) for part in tree)
    return function(tree)


def parts_of(value: Any) -> Iterable[Any]:
    """Return what a container holds, or the attributes of an object."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set)):
        return value
    return () if isinstance(value, type) else getattr(value, "__dict__", {}).values()


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors inside mappings, lists, tuples and dataclasses; one that occurs twice is yielded twice."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (Mapping, list, tuple)) or is_dataclass(tree):
        for part in parts_of(tree):
            yield from tensors_in(part)


def count_bytes(tree: Any) -> int:
    """Return the bytes of the tensors in a tree, each counted once."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors_in(tree)}.values())


def all_pinned(tree: Any) -> bool:
    """Tell whether a tree has tensors and all of them lie in pinned memory."""
    pinned = [is_page_locked(tensor) for tensor in tensors_in(tree)]
    return bool(pinned) and all(pinned)


def move(tree: Any, device: torch.device | str, *, non_blocking: bool = False) -> Any:
    """Return a tree with its tensors, and its objects that have a `to` method, on a device.

    The device "pinned" stands for page-locked CPU memory. Dense CPU tensors and objects with a `pin_memory` method
    move there; everything else stays where it is.
    """
    pinned = str(device) == "pinned"

    def move_leaf(leaf: Any) -> Any:
        if not pinned:
            return leaf.to(device, non_blocking=non_blocking) if hasattr(leaf, "to") else leaf
        stays = isinstance(leaf, torch.Tensor) and not (leaf.is_cpu and leaf.layout == torch.strided)
        return leaf if stays or not hasattr(leaf, "pin_memory") else leaf.pin_memory()

    return map_leaves(move_leaf, tree)
