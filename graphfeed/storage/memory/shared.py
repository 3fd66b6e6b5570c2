"""Tensors that are sent to another process as a handle, which says where they lie.

On Linux, a block is an anonymous memory file, which other processes open by its owner's process id and descriptor. It
has no name, so nothing stays behind however its users die, and it lives as long as one of them maps it. Elsewhere, it
is a file in the temporary folder, removed when its owner exits.
"""

import atexit
import copy
import copyreg
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from operator import index
from typing import Any, Self, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.buffers import NUMPY_DTYPES, as_bytes
from graphfeed.ops.checks import check_can_pin
from graphfeed.ops.forks import after_fork_in_child
from graphfeed.ops.pinned import page_lock
from graphfeed.ops.verified import passed_among, trust_copies
from graphfeed.storage.memory.mapped_file import FilePlace, find_places
from graphfeed.storage.memory.memory_map import ALIGNMENT, Bytes, MemoryFile, align, collapse, map_shared
from graphfeed.storage.memory.move_pages import can_move, move_pages
from graphfeed.storage.memory.tensor_tree import map_leaves, tensors_in

MOVING = threading.RLock()
"""Held while an object's tensors move to a block, so that two threads don't move them twice."""
BY_VALUE_BYTES = 1 << 13
"""Up to this size, a copy is cheaper than a mapping."""
COLLAPSE: ContextVar[Callable[[Bytes], object]] = ContextVar("graphfeed_collapse", default=collapse)
"""Is called with the memory of each new block, which is faster to read in huge pages."""
TRANSPORT_PROTOCOL = 4
"""Python's transports pickle with this protocol or a later one, `torch.save` with protocol 2."""


@after_fork_in_child
def renew_lock() -> None:
    """Make a new lock, which is free."""
    global MOVING
    MOVING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Handle:
    """What is pickled in place of tensors."""

    path: str
    inode: int
    size: int
    places: tuple[Place, ...]


class SharedBlock:
    """Tensors in one mapping that other processes can open.

    Example:
        >>> block = SharedBlock.create([torch.arange(3)])
        >>> SharedBlock.open(block.handle).tensors
        [tensor([0, 1, 2])]
    """

    def __init__(self, file: MemoryFile, handle: Handle) -> None:
        self.handle = handle
        self.file = file
        self.memory = map_shared(file.descriptor, handle.size)
        self.tensors = tensors_of(self.memory, handle.places)

    @classmethod
    def allocate(cls, tensors: Sequence[torch.Tensor]) -> "SharedBlock":
        """Return a new block with tensors of the same shapes and dtypes, full of zeros; the given may be meta tensors.

        Once they are written, `collapse(block.memory)` makes reading them faster.
        """
        return cls.lay_out(tensors, [False] * len(tensors))

    @classmethod
    def lay_out(cls, tensors: Sequence[torch.Tensor], as_in_memory: Sequence[bool]) -> "SharedBlock":
        """Do as `allocate`, and begin some tensors as far behind a page's start as they are in memory."""
        places, size = [], 0
        for tensor, wanted in zip(tensors, as_in_memory, strict=True):
            size += (tensor.data_ptr() - size) % mmap.PAGESIZE if wanted else 0
            places.append(Place(size, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")))
            size = align(size + tensor.nbytes)
        size = max(size, ALIGNMENT)
        file, path = create_file(size)
        return cls(file, Handle(path, os.fstat(file.descriptor).st_ino, size, tuple(places)))

    @classmethod
    def create(cls, tensors: Sequence[torch.Tensor]) -> "SharedBlock":
        """Copy CPU tensors into a new block; large ones use its pages from then on, so that there is one copy."""
        moving = [can_move(tensor) for tensor in tensors]
        block = cls.lay_out(tensors, moving)
        for own, place, tensor, is_moving in zip(block.tensors, block.handle.places, tensors, moving, strict=True):
            if is_moving:
                move_pages(tensor, block.file.descriptor, place.offset)
            else:
                own.copy_(tensor)
        COLLAPSE.get()(block.memory)
        return block

    @classmethod
    def open(cls, handle: Handle) -> "SharedBlock":
        """Map a block of another process, or of this one.

        Raises:
            FileNotFoundError: The process that owns it is gone, or runs on another machine.
        """
        advice = "it lives as long as the object that was pickled, on this machine: keep that until it is unpickled"
        try:
            file = MemoryFile(os.open(handle.path, os.O_RDWR))
        except OSError as error:
            raise FileNotFoundError(
                f"shared block {handle.path} can't be opened ({error.strerror}); {advice}"
            ) from error
        found = os.fstat(file.descriptor)
        if found.st_ino != handle.inode or found.st_size < handle.size:
            raise FileNotFoundError(f"shared block {handle.path} is gone, something else lies there now; {advice}")
        # Other processes that get a handle from this one open the block here, since its creator may be gone.
        return cls(file, replace(handle, path=proc_path(file) if handle.path.startswith("/proc/") else handle.path))


def tensors_of(memory: Any, places: Sequence[Place]) -> list[torch.Tensor]:
    """Return the tensors at some places of a mapping, which they keep alive."""
    tensors = []
    for place in places:
        dtype: torch.dtype = getattr(torch, place.dtype)
        count = int(np.prod(place.shape, dtype=np.int64))
        if count == 0:
            tensors.append(torch.empty(place.shape, dtype=dtype))
        else:
            flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset)
            tensors.append(flat.reshape(place.shape))
    return tensors


def create_file(size: int) -> tuple[MemoryFile, str]:
    """Create a memory file; return it and the path by which other processes open it."""
    if hasattr(os, "memfd_create"):
        file = MemoryFile.create(size)
        return file, proc_path(file)
    descriptor, path = tempfile.mkstemp(prefix="graphfeed-")
    atexit.register(remove_own, path, os.getpid())
    os.truncate(descriptor, size)
    return MemoryFile(descriptor), path


def proc_path(file: MemoryFile) -> str:
    """Return the path by which other processes open a file that this one has open."""
    return f"/proc/{os.getpid()}/fd/{file.descriptor}"


def remove_own(path: str, owner: int) -> None:
    """Remove a file, unless this process is a fork of the one that created it."""
    if os.getpid() == owner and os.path.exists(path):
        os.remove(path)


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a tensor that is sent by handle."""

    number: int


def extract_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Replace the CPU tensors inside dicts, lists and tuples by slots, and append each tensor to a list once."""

    def slot(leaf: Any) -> Any:
        if not (isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"):
            return leaf
        number = next((number for number, known in enumerate(tensors) if known is leaf), len(tensors))
        if number == len(tensors):
            tensors.append(leaf)
        return Slot(number)

    return map_leaves(slot, value)


def insert_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Put tensors back where their slots are."""
    return map_leaves(lambda leaf: tensors[leaf.number] if isinstance(leaf, Slot) else leaf, value)


def fill_in(tensors: Sequence[torch.Tensor | None], others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, with one of the others after the next in the place of each None."""
    rest = iter(others)
    return [next(rest) if tensor is None else tensor for tensor in tensors]


def to_bytes(tensor: torch.Tensor) -> tuple[NDArray[np.uint8], torch.dtype, tuple[int, ...]]:
    """Return the bytes, dtype and shape of a CPU tensor; of a view, only what it shows."""
    return as_bytes(tensor).copy(), tensor.dtype, tuple(tensor.shape)


def from_bytes(data: NDArray[np.uint8], dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor that views bytes."""
    known = NUMPY_DTYPES.get(dtype)
    if known is not None and data.size:
        return torch.from_numpy(data.view(known).reshape(shape))
    return torch.from_numpy(data).view(dtype).reshape(shape) if data.size else torch.empty(shape, dtype=dtype)


class Shareable:
    """An object with tensors that pickles as a handle. The first pickling moves its CPU tensors to a shared block.

    Small tensors are sent by value. Sender and receiver share those in the block, and see what the other one writes to
    them. Tensors over a mapped file stay there, and the receiver maps the same file. If writes go to that file, as with
    `mmap_mode="r+"`, both see them; otherwise, as with `mmap_mode="c"`, what either of them writes from then on is seen
    by itself alone. A tensor whose sender had written to its own copies of the file's pages before moves to the block
    like others. `torch.save` stores all tensors by value, since a handle is useless once the process is gone.
    """

    _block: SharedBlock | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Return how the object is pickled: by value with the protocol of `torch.save`, which no transport uses."""
        if index(protocol) >= TRANSPORT_PROTOCOL or type(self).__reduce__ is not object.__reduce__:
            return super().__reduce_ex__(protocol)
        skeleton, tensors = self._extracted()
        return copyreg.__newobj__, (type(self),), {"fields": skeleton, "tensors": tensors}  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, with a handle in place of large tensors."""
        with MOVING:
            return self._share()

    def _extracted(self) -> tuple[Any, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []
        fields = {name: value for name, value in vars(self).items() if name != "_block"}
        return extract_tensors(fields, tensors), tensors

    def _share(self) -> dict[str, Any]:
        skeleton, tensors = self._extracted()
        for tensor in tensors:
            if tensor.requires_grad:
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)} in {type(self).__name__} requires gradients, which don't "
                    "reach another process; give .detach() of it"
                )
        places = self._find_places(tensors)
        staying = [None if place is None else tensor for tensor, place in zip(tensors, places, strict=True)]
        moving = [tensor for tensor, place in zip(tensors, places, strict=True) if place is None]
        passed = passed_among(tensors)
        state = {"fields": skeleton, "places": places, "passed": passed}
        if sum(tensor.nbytes for tensor in moving) <= BY_VALUE_BYTES:
            return {**state, "values": [to_bytes(tensor) for tensor in moving]}
        block = self._block
        if block is None or [id(tensor) for tensor in moving] != [id(tensor) for tensor in block.tensors]:
            block = SharedBlock.create(moving)
            tensors = fill_in(staying, block.tensors)
            self.__dict__.update(insert_tensors(skeleton, tensors))
            trust_copies(passed, tensors)
            self.__dict__["_block"] = block
        return {**state, "handle": block.handle}

    def _pin(self) -> Self:
        """Page-lock the tensors until this object is deleted, in place or as copies; return this object."""
        check_can_pin("pin_memory_")
        away = next((tensor.device for tensor in tensors_in(vars(self)) if not tensor.is_cpu), None)
        if away is not None:
            raise ValueError(
                f"only memory of the CPU can be pinned, but a tensor is on {away}; move it with .to('cpu')"
            )
        with MOVING:
            skeleton, tensors = self._extracted()
            locked = page_lock(tensors, self)
            self.__dict__.update(insert_tensors(skeleton, locked))
            trust_copies(passed_among(tensors), locked)
        return self

    def _find_places(self, tensors: Sequence[torch.Tensor]) -> list[FilePlace | None]:
        """Return where large tensors lie in files; None for those that don't, or that lie in the block already."""
        in_block = set() if self._block is None else {id(tensor) for tensor in self._block.tensors}
        asked = [tensor for tensor in tensors if tensor.nbytes > BY_VALUE_BYTES and id(tensor) not in in_block]
        places = dict(zip(map(id, asked), find_places(asked) if asked else (), strict=True))
        return [places.get(id(tensor)) for tensor in tensors]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the fields, and map the tensors."""
        if "tensors" in state:
            tensors = state["tensors"]
        elif "values" in state:
            tensors = [from_bytes(*value) for value in state["values"]]
        else:
            block = SharedBlock.open(state["handle"])
            self.__dict__["_block"] = block
            tensors = block.tensors
        places: list[FilePlace | None] = state.get("places", [None] * len(tensors))
        mapped = [None if place is None else place.open() for place in places]
        tensors = fill_in(mapped, tensors)
        self.__dict__.update(insert_tensors(state["fields"], tensors))
        trust_copies(state.get("passed", ()), tensors)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with tensors of its own, outside of shared memory."""
        duplicate = object.__new__(type(self))
        memo[id(self)] = duplicate
        fields = {name: value for name, value in vars(self).items() if name != "_block"}
        duplicate.__dict__.update(copy.deepcopy(fields, memo))
        trust_copies(passed_among(self._extracted()[1]), duplicate._extracted()[1])
        return duplicate
