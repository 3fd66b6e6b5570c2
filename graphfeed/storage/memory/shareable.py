"""Objects whose tensors are sent to another process as handles to shared memory or files."""

import copy
import copyreg
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Self, SupportsIndex

import torch

from graphfeed.ops.arguments import check_can_pin
from graphfeed.ops.memory import page_lock
from graphfeed.ops.process import ForkLock
from graphfeed.storage.memory.shared import (
    FilePlace,
    Handle,
    SharedBlock,
    find_handle,
    find_places,
    from_bytes,
    to_bytes,
)
from graphfeed.storage.memory.tensor_tree import map_leaves, tensors_in

MOVING = ForkLock()
"""Held while an object's tensors are copied to a block, so that concurrent threads copy them only once."""
BY_VALUE_BYTES = 1 << 13
"""Up to this size, a copy is cheaper than a mapping."""
TRANSPORT_PROTOCOL = 4
"""Python's transports pickle with this protocol or a later one, `torch.save` with protocol 2."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Placeholder for a tensor, with its position in the list of tensors."""

    number: int


def extract_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Replace the CPU tensors in a tree by slots, and append them to a list without duplicates."""

    def slot(leaf: Any) -> Any:
        if not (isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"):
            return leaf
        # By identity: a tensor that occurs twice is sent once, and is a single tensor again in the receiver.
        number = next((number for number, known in enumerate(tensors) if known is leaf), len(tensors))
        if number == len(tensors):
            tensors.append(leaf)
        return Slot(number)

    return map_leaves(slot, value)


def insert_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    return map_leaves(lambda leaf: tensors[leaf.number] if isinstance(leaf, Slot) else leaf, value)


def open_tensor(place: Any) -> torch.Tensor:
    if isinstance(place, Handle):
        return SharedBlock.open(place).tensors[0]
    # Small tensors come as bytes.
    return place.open() if isinstance(place, FilePlace) else from_bytes(*place)


class Shareable:
    """An object whose tensors are pickled as handles, so that sender and receiver share their memory.

    Writes to shared tensors are visible to both processes. Where the system has huge pages for shared memory, large
    tensors allocated by graphfeed are in shared memory from the start. The first pickling copies all others there,
    such as your own, and the object then uses the copies; this takes time once, and memory twice for as long as you
    keep the originals. Small tensors, and all in `torch.save`, go by value, as no handle outlives its process.

    Tensors in a file that graphfeed mapped stay there, and the receiver maps the same file. So do arrays mapped by
    NumPy, if you pass the array itself rather than a tensor that views it. If the mapping writes to the file, as with
    `mmap_mode="r+"`, both processes see all writes; otherwise, as with `mmap_mode="c"`, each sees only its own. A
    tensor with pages that the sender has modified privately is copied.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle by handle, or by value for `torch.save`, which uses a lower protocol than transports."""
        # A handle in a file would outlive the memory that it refers to.
        if index(protocol) >= TRANSPORT_PROTOCOL or type(self).__reduce__ is not object.__reduce__:
            return super().__reduce_ex__(protocol)
        skeleton, tensors = self._extracted()
        return copyreg.__newobj__, (type(self),), {"fields": skeleton, "tensors": tensors}  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        with MOVING.lock:
            return self._share()

    def _extracted(self) -> tuple[Any, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []
        return extract_tensors(vars(self), tensors), tensors

    def _share(self) -> dict[str, Any]:
        skeleton, tensors = self._extracted()
        for tensor in tensors:
            if tensor.requires_grad:
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)} in {type(self).__name__} requires gradients, which can't "
                    "be sent to another process; pass tensor.detach()"
                )
        places: list[Any] = [*find_places(tensors, BY_VALUE_BYTES)]
        elsewhere = [number for number, place in enumerate(places) if place is None]
        # Small tensors are moved, too, if they are large in total.
        if sum(tensors[number].nbytes for number in elsewhere) > BY_VALUE_BYTES:
            block = SharedBlock.create([tensors[number] for number in elsewhere])
            for number, tensor in zip(elsewhere, block.tensors, strict=True):
                tensors[number], places[number] = tensor, find_handle(tensor)
            # The object keeps the shared tensors, so that pickling it again copies nothing.
            self.__dict__.update(insert_tensors(skeleton, tensors))
        for number in elsewhere:
            places[number] = places[number] or to_bytes(tensors[number])
        return {"fields": skeleton, "places": places}

    def _pin(self) -> Self:
        """Page-lock the tensors until this object is deleted, in place or as copies; return this object."""
        check_can_pin("pin_memory_")
        device = next((tensor.device for tensor in tensors_in(vars(self)) if not tensor.is_cpu), None)
        if device is not None:
            raise ValueError(
                f"only memory of the CPU can be pinned, but a tensor is on {device}; move it with .to('cpu')"
            )
        with MOVING.lock:
            skeleton, tensors = self._extracted()
            locked = page_lock(tensors, self)
            self.__dict__.update(insert_tensors(skeleton, locked))
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        # `torch.save` stores the tensors themselves.
        tensors = state["tensors"] if "tensors" in state else [open_tensor(place) for place in state["places"]]
        self.__dict__.update(insert_tensors(state["fields"], tensors))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        duplicate = object.__new__(type(self))
        # Before the fields are copied, since they may refer to this object. The copy is not in shared memory.
        memo[id(self)] = duplicate
        duplicate.__dict__.update(copy.deepcopy(vars(self), memo))
        return duplicate
