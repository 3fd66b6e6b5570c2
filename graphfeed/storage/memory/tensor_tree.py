"""Trees of tensors: tensors in nested dicts, lists, tuples and objects."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Self

import torch

from graphfeed.ops import is_gpu, is_plain_memory
from graphfeed.ops.arguments import checked
from graphfeed.ops.memory import ALIGNMENT, as_bytes, has_known_copies, is_page_locked
from graphfeed.storage.memory.tensor_codec import Frame

TOGETHER_BYTES = 1 << 18
"""Smaller tensors are copied to a GPU in one block. Copying this many bytes over PCIe 5.0 takes 4 us, as long as the
driver needs to start another copy. A program that keeps one of them, such as the labels, keeps the whole block."""


class Movable:
    """An object whose attributes are a tree of tensors, all moved to a device together."""

    @checked
    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Return a copy of the object on a device; "pinned" stands for page-locked CPU memory."""
        moved: Self = to_device(self, device, non_blocking=non_blocking)
        return moved

    def pin_memory(self) -> Self:
        """Return a copy of the object in pinned memory."""
        return self.to("pinned")

    def is_pinned(self) -> bool:
        """Return whether all tensors are in pinned memory; False without tensors."""
        return all_pinned(self)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a copy of a tree of dicts, lists, tuples and `Movable`s with `function` applied to all other values."""
    if isinstance(tree, dict):
        parts = {name: map_leaves(function, part) for name, part in tree.items()}
        if type(tree) is dict:
            return parts
        # A subclass of dict may hold more than its items.
        changed = copy.copy(tree)
        changed.update(parts)
        return changed
    # Named tuples and other subclasses of list and tuple count as leaves.
    if type(tree) in (list, tuple):
        return type(tree)([map_leaves(function, part) for part in tree])
    if isinstance(tree, Movable):
        # Created without `__init__`, which would check everything again.
        twin = object.__new__(type(tree))
        vars(twin).update(map_leaves(function, vars(tree)))
        return twin
    return function(tree)


def each_leaf(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, as defined by `map_leaves`."""
    # No recursion: nested generators would pass each leaf through every level.
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif type(part) in (list, tuple):
            waiting.extend(part)
        elif isinstance(part, Movable):
            waiting.extend(vars(part).values())
        else:
            yield part


def child_values(value: Any) -> Iterable[Any]:
    """Return the values of a container, or the attributes of an object."""
    if isinstance(value, (list, tuple, set)):
        return value
    if isinstance(value, (dict, Mapping)):
        return value.values()
    return () if isinstance(value, type) else getattr(value, "__dict__", {}).values()


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors inside mappings, lists, tuples and dataclasses, duplicates included."""
    found: list[torch.Tensor] = []
    collect_tensors(tree, found)
    return found


def collect_tensors(tree: Any, found: list[torch.Tensor]) -> None:
    # Not a nested function: one that calls itself is a cycle, which would keep the tensors in memory.
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, (Mapping, list, tuple)) or is_dataclass(tree):
        for part in child_values(tree):
            collect_tensors(part, found)


def count_bytes(tree: Any) -> int:
    """Return the total size of the distinct tensors in a tree, in bytes."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors_in(tree)}.values())


def all_pinned(tree: Any) -> bool:
    """Return whether all tensors of a tree are in pinned memory; False without tensors."""
    pinned = [is_page_locked(tensor) for tensor in tensors_in(tree)]
    return bool(pinned) and all(pinned)


def to_device(tree: Any, device: torch.device | str, *, non_blocking: bool = False, pin_first: bool = False) -> Any:
    """Return a copy of a tree with its tensors, and its objects that have a `to` method, on a device.

    The device "pinned" stands for page-locked CPU memory. It applies to dense CPU tensors and objects with a
    `pin_memory` method; everything else stays in place. CPU tensors smaller than 256 KiB are copied to pinned memory or
    a GPU in one block, and remain contiguous there. Larger ones are copied together if they share a storage. With
    `pin_first`, copies to a GPU pass through pinned memory.
    """
    pinned, non_blocking = str(device) == "pinned", bool(non_blocking)  # torch rejects 0 and 1
    moved: dict[int, torch.Tensor] = {}

    def move(leaf: Any) -> Any:
        if id(leaf) in moved:
            return moved[id(leaf)]
        stays = isinstance(leaf, torch.Tensor) and not (leaf.is_cpu and leaf.layout == torch.strided)
        if (pinned or pin_first) and not stays and hasattr(leaf, "pin_memory"):
            leaf = pin(leaf)
        return leaf if pinned or not hasattr(leaf, "to") else leaf.to(device, non_blocking=non_blocking)

    for together, block, starts in blocks_of(tree) if pinned or is_gpu(device) else ():
        # By identity: a tensor that occurs twice in the tree is a single tensor afterwards, too.
        moved.update(zip(map(id, together), views_of(move(block), starts, together), strict=True))
    return map_leaves(move, tree)


def pin(leaf: Any) -> Any:
    pinned = leaf.pin_memory()
    # `Tensor.is_pinned` may only be called once CUDA is initialized.
    torch.cuda.init()  # type: ignore[no-untyped-call]
    if pinned is not leaf or not isinstance(leaf, torch.Tensor) or has_known_copies(leaf):
        return pinned
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="cpu", pin_memory=True).copy_(leaf)


def blocks_of(tree: Any) -> Iterator[tuple[list[torch.Tensor], torch.Tensor, list[int]]]:
    """Yield tensors that are copied in one block, the block, and the offset of each in bytes.

    These are those that share a large storage, and all small ones.
    """
    by_storage: dict[int, dict[int, torch.Tensor]] = {}
    for leaf in each_leaf(tree):
        if is_only_bytes(leaf):
            by_storage.setdefault(leaf.untyped_storage().data_ptr(), {})[id(leaf)] = leaf
    small: list[torch.Tensor] = []
    for own in by_storage.values():
        sharing = [*own.values()]
        is_large = len(sharing) > 1 and sum(tensor.nbytes for tensor in sharing) >= TOGETHER_BYTES
        if is_large and (found := shared_block(sharing)) is not None:
            yield sharing, *found
        else:
            small += [tensor for tensor in sharing if tensor.nbytes < TOGETHER_BYTES]
    if len(small) > 1:
        yield small, *(shared_block(small) or side_by_side(small))


def is_only_bytes(leaf: Any) -> bool:
    """Return whether a leaf is a CPU tensor that consists only of its bytes."""
    # A subclass, or a tensor with a gradient, a scale or nested tensors, is more than bytes.
    if type(leaf) is not torch.Tensor or not leaf.is_cpu or leaf.layout is not torch.strided:
        return False
    tensor: torch.Tensor = leaf
    is_more = tensor.requires_grad or tensor.is_quantized or tensor.is_nested
    return not is_more and is_plain_memory(tensor)


def shared_block(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[int]] | None:
    """Return the block that tensors are in, and the offset of each in bytes; None if there are several, or gaps."""
    storage, size = tensors[0].untyped_storage(), sum(tensor.nbytes for tensor in tensors)
    if any(tensor.untyped_storage().data_ptr() != storage.data_ptr() for tensor in tensors):
        return None
    starts = [int(tensor.storage_offset()) * tensor.itemsize for tensor in tensors]
    low, step = min(starts) // ALIGNMENT * ALIGNMENT, max(tensor.itemsize for tensor in tensors)
    end = max(start + tensor.nbytes for start, tensor in zip(starts, tensors, strict=True))
    end += -end % step
    # Not distant views of a large storage, such as the seeds of an item set. A frame has padding.
    if end > storage.nbytes() or end - low > 2 * (size + ALIGNMENT * len(tensors)):
        return None
    block = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)[low:end]
    return block, [start - low for start in starts]


def side_by_side(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """Return a copy of tensors in one block, and the offset of each in bytes."""
    frame = Frame(b"", [as_bytes(tensor) for tensor in tensors])
    block = torch.empty(frame.size, dtype=torch.uint8, device="cpu")
    frame.write(block.numpy())
    return block, frame.starts


def views_of(block: torch.Tensor, starts: Sequence[int], like: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield views of a block at byte offsets, with the shapes, strides and dtypes of the tensors in `like`."""
    by_dtype: dict[torch.dtype, torch.Tensor] = {}
    for start, other in zip(starts, like, strict=True):
        # One view of the block per dtype.
        typed = by_dtype.get(other.dtype)
        if typed is None:
            typed = by_dtype[other.dtype] = block.view(other.dtype)
        first = typed.storage_offset() + start // other.itemsize  # a block of pinned memory is a part of a storage
        # With `data`, autograd doesn't count an in-place change of one view as a change of all.
        yield typed.as_strided(other.shape, other.stride(), first).data
