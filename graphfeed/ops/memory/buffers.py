"""Output buffers that are reused after the last tensor in them dies, since fresh pages cost more than copying."""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import c_ubyte
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.memory.pinned import is_page_locked
from graphfeed.ops.memory.shared_memory import align, empty_shared
from graphfeed.ops.process import ForkLock, after_fork_in_child, current_limits

SMALL_BYTES = 1 << 15
"""Below this size, the system's allocator is as fast as the pool."""
IDLE_BYTES = 1 << 30
"""Maximum amount of idle memory that the pool keeps."""
NUMPY_DTYPES: dict[torch.dtype, Any] = {
    torch.int64: np.int64, torch.int32: np.int32, torch.uint8: np.uint8, torch.float32: np.float32,
}  # fmt: skip
"""The most frequent dtypes. Tensors of other dtypes are created as views of bytes, which takes longer."""
TORCH_DTYPES = {np.dtype(own): dtype for dtype, own in NUMPY_DTYPES.items()}


class BufferPool:
    """A thread-safe pool of blocks, with four size classes per power of two."""

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.source: Callable[[int], NDArray[np.uint8] | None] | None = None
        """Called first, from any thread, with a size in bytes. Returns an array that frees its memory when it dies; or
        None, so that the pool provides the memory."""
        self.idle_bytes = idle_bytes
        self.idle = 0
        self.lending = ForkLock()
        self.blocks: defaultdict[int, list[Any]] = defaultdict(list)
        """Idle blocks by size, as arrays of `ctypes`: views of an array over a NumPy array refer to that one."""
        self.lent: dict[int, tuple[weakref.ref[NDArray[Any]], Any]] = {}
        """Blocks in use, each with a weak reference to its array, which lives as long as any view of it."""

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an uninitialised array, in an idle block if there is one."""
        kind = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else shape
        size = prod(shape) * kind.itemsize
        if size < SMALL_BYTES:
            return np.empty(shape, dtype=kind)
        # Round up to a quarter of a power of two, so that a block fits later requests of similar size.
        step = 1 << max((size - 1).bit_length() - 3, 12)
        rounded = align(size, step)
        given = None if self.source is None else self.source(rounded)
        if given is not None:
            memory: NDArray[Any] = given[:size].view(kind).reshape(shape)
            return memory
        array: NDArray[Any] = np.ndarray(shape, kind, block := self.acquire(rounded))
        reference = weakref.ref(array, self.release)
        self.lent[id(reference)] = reference, block
        return array

    def acquire(self, size: int) -> Any:
        # `size` is the size of a size class.
        with self.lending.lock:
            if free := self.blocks[size]:
                self.idle -= size
                return free.pop()
        return (c_ubyte * size).from_buffer(np.empty(size, dtype=np.uint8).data)

    def release(self, reference: "weakref.ref[NDArray[Any]]") -> None:
        _, block = self.lent.pop(id(reference))
        size = len(block)
        with self.lending.lock:
            if self.idle + size <= self.idle_bytes:
                self.idle += size
                self.blocks[size].append(block)


class NodeMaps:
    """A pool of dense maps from node to position. Idle maps hold -1 everywhere."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.lending = ForkLock()
        self.idle: defaultdict[int, list[NDArray[np.int32]]] = defaultdict(list)

    def acquire(self, num_nodes: int) -> NDArray[np.int32] | None:
        """Return a map, or None if another map would exceed the limit."""
        limit, size = current_limits().node_map_bytes, 4 * num_nodes
        if size > limit:
            return None
        with self.lending.lock:
            # A single lookup, because a finalizer that runs between two may drop idle maps.
            free = self.idle[num_nodes]
            if free:
                return free.pop()
            if self.used_bytes + size > limit:
                self.drop_idle()
            if self.used_bytes + size > limit:
                return None
            self.used_bytes += size
        try:
            return np.full(num_nodes, -1, dtype=np.int32)
        except BaseException:
            with self.lending.lock:
                self.used_bytes -= size
            raise

    def drop_idle(self) -> None:
        # The caller holds the lock.
        while self.idle:
            _, maps = self.idle.popitem()
            while maps:
                freed = maps.pop().nbytes
                self.used_bytes -= freed

    @contextmanager
    def leased_map(self, num_nodes: int) -> Iterator[NDArray[np.int32] | None]:
        """Yield a map, or None (see `acquire`). The kernel must reset it to -1. After an error, it is not reused."""
        node_map = self.acquire(num_nodes)
        try:
            yield node_map
        except BaseException:
            with self.lending.lock:
                self.used_bytes -= 0 if node_map is None else node_map.nbytes
            raise
        if node_map is not None:
            with self.lending.lock:
                self.idle[num_nodes].append(node_map)


POOL = BufferPool()
NODE_MAPS = NodeMaps()
PINNING: ContextVar[bool] = ContextVar("pinning", default=False)
"""Whether a thread pins the large results of operations on the CPU."""


@contextmanager
def pinning() -> Iterator[None]:
    """Pin the large results of operations on the CPU that this thread calls, so that they are copied to a GPU directly.

    Mini-batches of 1,024 seeds, three hops and 14 MB, sampled on the CPU, then take 0.82 of the CPU time.
    """
    before = PINNING.set(True)
    try:
        yield
    finally:
        PINNING.reset(before)


@after_fork_in_child
def pin_nothing() -> None:
    # A forked process can't use CUDA.
    PINNING.set(False)


def is_plain_memory(tensor: torch.Tensor) -> bool:
    """Return whether the bytes of a tensor are its values in order, so that kernels can read it without a copy."""
    if tensor.numel() == 0:
        return True
    may_be_lazy = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return tensor.is_contiguous() and not (may_be_lazy and (tensor.is_conj() or tensor.is_neg()))


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor: a view if `is_plain_memory`, else a copy."""
    flat = tensor.detach() if tensor.requires_grad else tensor
    if not is_plain_memory(flat):
        flat = flat.resolve_conj().resolve_neg().contiguous()
    # A contiguous tensor of at most one value may have any stride, but viewing it as another dtype needs stride 1.
    return (flat.view(-1) if flat.numel() > 1 else flat.as_strided((flat.numel(),), (1,))).view(torch.uint8)


def as_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a CPU tensor as a NumPy array, which may start at any byte."""
    if tensor.dtype not in NUMPY_DTYPES or tensor.requires_grad or not is_plain_memory(tensor):
        return flat_bytes(tensor).numpy()
    # Three times as fast, and without releasing the GIL, as torch's functions would.
    viewed: NDArray[np.uint8] = tensor.numpy().reshape(-1).view(np.uint8)
    return viewed


CPU = torch.device("cpu")
RECORDER: ContextVar[Any] = ContextVar("recorder", default=None)
"""The `LaunchRecorder` of `graphfeed.ops.cuda.launch_table` that notes which arrays an operation on a GPU allocates."""


def empty_long_lived(
    shape: int | tuple[int, ...], dtype: torch.dtype, device: torch.device, *, private: bool = False
) -> torch.Tensor:
    """Return an uninitialised tensor for random reads, on huge pages if available, and shared unless `private`."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = prod(shape) * dtype.itemsize
    if size == 0 or device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    # Large tensors are in shared memory, so that sending them to another process, or page-locking them, needs no copy.
    # Writes are visible to all processes, including forked ones.
    memory = None if private else empty_shared(size)
    # Unlike torch, NumPy requests huge pages from the system.
    return torch.from_numpy(np.empty(size, dtype=np.uint8) if memory is None else memory).view(dtype).reshape(shape)


def empty(shape: int | tuple[int, ...], like: torch.Tensor | torch.dtype, device: torch.device = CPU) -> torch.Tensor:
    """Return an uninitialised tensor, in a pooled block on the CPU, or else in memory from torch's own pools."""
    dtype = like if isinstance(like, torch.dtype) else like.dtype
    if device.type != "cpu":
        made = torch.empty(shape, dtype=dtype, device=device)
        recorder = RECORDER.get()
        if recorder is not None:
            recorder.made.append(made)
        return made
    shape = (shape,) if isinstance(shape, int) else shape
    size = prod(shape) * dtype.itemsize
    if size == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    if PINNING.get() and SMALL_BYTES <= size <= POOL.idle_bytes:
        # Torch reuses the memory once the copies of tensors with this storage are finished, and never frees it, so that
        # it is not for a whole feature that is read during an epoch.
        made = torch.empty(shape, dtype=dtype, device=device, pin_memory=True)
        storage: Any = made.untyped_storage()
        storage.has_known_copies = True
        return made
    known = NUMPY_DTYPES.get(dtype)
    if known is not None:
        return torch.from_numpy(POOL.empty(shape, known))
    return torch.from_numpy(POOL.empty(size, np.uint8)).view(dtype).reshape(shape)


def empty_array(size: int, dtype: Any) -> NDArray[Any]:
    """Return an uninitialised array for results, of which `as_tensor` makes tensors."""
    if not PINNING.get():
        return POOL.empty(size, dtype)
    made: NDArray[Any] = empty(size, TORCH_DTYPES[np.dtype(dtype)]).numpy()
    return made


def has_known_copies(tensor: torch.Tensor) -> bool:
    """Return whether torch notices the copies of a tensor in pinned memory that an operation allocated.

    It doesn't if the tensor was made from an array over that memory, and would reuse the memory too early.
    """
    return hasattr(tensor.untyped_storage(), "has_known_copies")


def pinned_tensor(array: NDArray[Any]) -> torch.Tensor | NDArray[Any]:
    """Return the tensor of a pinned array, or another array unchanged.

    Parts of a pinned array must be parts of this tensor: torch doesn't notice the copies of those made with
    `torch.from_numpy`, and would reuse the memory too early.
    """
    base: Any = array.base
    return base if isinstance(base, torch.Tensor) and is_page_locked(base) else array


def as_tensor(part: torch.Tensor | NDArray[Any]) -> torch.Tensor:
    """Return a part of an array, or of a tensor, as a tensor."""
    # With `data`, autograd doesn't count an in-place change of one part as a change of all.
    return part.data if isinstance(part, torch.Tensor) else torch.from_numpy(part)


def parts_of(block: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    """Return the parts of a block as tensors.

    They are not views of one tensor: autograd would count a write to one of them as a write to all, and a pickled one
    would have the whole block.
    """
    sizes = list(map(prod, shapes))
    return [
        torch.from_numpy(block[end - size : end].reshape(shape))
        for shape, size, end in zip(shapes, sizes, accumulate(sizes), strict=True)
    ]
