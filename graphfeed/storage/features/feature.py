"""A feature of the nodes or edges of one type: one row per id."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import torch

from graphfeed.ops import is_readable
from graphfeed.ops.arguments import (
    as_ids,
    as_tensor,
    check_can_pin,
    check_ids,
    check_vector,
    checked,
    is_read_only,
    rename_overrides,
)
from graphfeed.ops.memory import PinOwner, is_page_locked, page_lock
from graphfeed.ops.rows import gather_rows
from graphfeed.storage.features.check_rows import check_feature_rows
from graphfeed.storage.memory.cache_use import Cache
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.tensor_tree import to_device

if TYPE_CHECKING:
    from graphfeed.storage.features.encoded_feature import EncodedFeature

PYG_DIM = "pyg_dim"
"""Key in a feature's metadata: the dimension of PyG's data that its rows were, -1 if it was the only dimension."""


class DeferredRead:
    """Rows that are read when `wait` is called, or that are already being read.

    Example:
        >>> DeferredRead(lambda: torch.zeros(2)).wait()
        tensor([0., 0.])
    """

    def __init__(self, read: Callable[[], torch.Tensor]) -> None:
        self._read: Callable[[], torch.Tensor] | None = read
        self._rows = torch.empty(0, device="cpu")

    def wait(self) -> torch.Tensor:
        """Wait for the rows and return them; further calls return the same rows."""
        if self._read is not None:
            self._rows = self._read()
            self._read = None  # releases the memory that the function refers to
        return self._rows


class Feature(ABC):
    """A feature of nodes or edges: rows that are read by id. Subclasses decide where the rows are stored."""

    plain_read: ClassVar[bool] = False
    """Whether the `read` of this class returns the stored rows unchanged. Subclasses that override it say it again."""
    is_trained: ClassVar[bool] = False
    """Whether each step changes rows that were fetched, so that they can't be read ahead or cached."""

    @abstractmethod
    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, in their order; all rows if None."""

    def fetch(self, ids: torch.Tensor, key: Any = None) -> torch.Tensor:  # noqa: ARG002
        """Return the rows at `ids` for the mini-batch with a key; if they are trained, as a leaf for the next step."""
        return self.read(ids)

    @abstractmethod
    def size(self) -> torch.Size:
        """Return the shape of a row."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Overwrite the rows at `ids`; all rows if None."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the rows; None if it is unknown before a row is read."""
        return None

    def encode(
        self, bits: int | torch.dtype = 8, per: Literal["column", "row"] = "column", dtype: torch.dtype = torch.float32
    ) -> "EncodedFeature":
        """Return a feature with all rows in memory as codes, which reads decode; see `EncodedFeature`.

        Args:
            bits: 8 or 4 for codes with a scale and an offset, or torch.float16 or torch.bfloat16.
            per: Whether each column has a scale and an offset, or each row.
            dtype: That of decoded rows: torch.float32 or torch.bfloat16.

        Raises:
            TypeError: The rows are not floats.
            ValueError: A number has no code: infinity, NaN, or one that overflows float16.
        """
        from graphfeed.storage.features.encode import encode  # noqa: PLC0415 - imports this module

        return encode(self, bits, per, dtype)

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield once per stage of reading. The last stage has the rows.

        A reader of several features advances each of them by one stage in turn, so that one feature waits for its disk
        while the next one computes. This default has one stage, which reads when its result is waited for. A feature
        with remote rows should start to fetch them when it is advanced.

        Example:
            >>> (rows,) = TorchBasedFeature(torch.eye(2)).read_async(torch.tensor([1]))
            >>> rows.wait()
            tensor([[0., 1.]])
        """
        yield DeferredRead(lambda: self.read(ids))

    def read_async_num_stages(self, ids_device: torch.device) -> int:  # noqa: ARG002
        """Return the number of stages of `read_async` for ids on a device."""
        return 1

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the feature."""
        return {}

    def is_pinned(self) -> bool:
        """Return whether the rows are in page-locked memory, where a GPU can read them."""
        return False

    def is_in_page_cache(self) -> bool:
        """Return whether recent reads of a file were served from the system's page cache: no other cache is needed."""
        return False

    def delivers_to_gpu(self) -> bool:
        """Return whether `read` accepts ids on a GPU and returns the rows there. Used by caches on a GPU."""
        return self.is_pinned()

    def pin_memory_(self) -> Self:
        """Page-lock the rows in place, with a warning if there are none in memory. Return this object.

        Raises:
            RuntimeError: torch finds no CUDA device.
        """
        warn_of_staying(self, "pin_memory_()")
        return self

    def to(self, device: torch.device | str) -> Self:
        """Return the feature with its rows on a device or "pinned", or warn and return this object if they can't be."""
        warn_of_staying(self, f"to({str(device)!r})")
        return self

    def may_read_in_threads(self) -> bool:
        """Return whether all threads can read as fast as the main thread, as when a read only copies CPU memory."""
        return False

    def is_constant(self) -> bool:
        """Return whether the rows never change: `update` was not called and no call is expected."""
        return False

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the caches that a read passes through, each with an empty name."""
        return []

    def reads_plainly(self) -> bool:
        """Return whether the class that defines `read` says `plain_read`, so that rows may also be read otherwise."""
        owner = next(base for base in type(self).__mro__ if "read" in vars(base))
        return bool(vars(owner).get("plain_read", False))

    def slow_source(self) -> "ReadsAhead | None":
        """Return the source of the rows, beneath all caches, if it should be read ahead of mini-batches; else None."""
        return None

    def in_place_of_source(self, rows: "Feature") -> "Feature":
        """Return the feature with `rows` instead of its slow source. A cache in CPU memory is then left out."""
        return rows


class Spans(NamedTuple):
    """Statistics of a read."""

    reads: int
    num_bytes: int
    """Bytes read, including those between the rows."""


class ReadsAhead(Feature):
    """A feature whose rows are so slow to read that those of several mini-batches should be read together, ahead."""

    waits_for: str
    """Description of what a read waits for, such as "the disk"."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        rename_overrides(cls, {"begin_reading": "start_read"})

    @property
    def gap_bytes(self) -> int | None:
        """Largest gap between rows that are read at once; None if only requested rows are read."""
        return None

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        assert self.dtype is not None
        return self.size().numel() * self.dtype.itemsize

    @abstractmethod
    def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> list[Future[Spans]]:
        """Start to read many rows in threads. Return the futures for `join`; cancelled ones are not read.

        Args:
            ids: int64, ascending, in the range of the rows.
            out: Modified in place. Contiguous, shape (any, ...), of the feature's dtype.
            positions: int64: the row of `out` for each id.
        """

    @abstractmethod
    def join(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all futures are done, or raise the error of one that failed."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a RuntimeError if rows may have changed since they were read."""

    def slow_source(self) -> "ReadsAhead | None":
        """Return this feature."""
        return self


class RemoteFeature(Feature):
    """A feature some of whose rows are remote, so that reads wait for them. A cache in memory keeps only remote rows.

    The cache requests all rows that it lacks in one `read_async`, whose only stage should send the request at once.
    """

    @abstractmethod
    def split_local(self, ids: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], None]]:
        """Split rows into remote and local ones, which are read without waiting. The ids must have been checked.

        Return the positions of remote rows, int64, ascending, and a function that writes the local ones into all rows.
        """


def row_type(feature: Feature) -> torch.dtype:
    """Return the dtype of a feature's rows."""
    return (
        feature.read(torch.empty(0, dtype=torch.int64, device="cpu")).dtype if feature.dtype is None else feature.dtype
    )


def warn_of_staying(feature: Feature, call: str) -> None:
    warnings.warn(
        f"{call} does nothing: {type(feature).__name__} has no rows in memory; call read_into_memory() first, or copy "
        "the rows that it reads",
        stacklevel=3,  # the line that called the feature's method
    )


def dtype_and_shape(dtype: torch.dtype, shape: torch.Size) -> str:
    """Return a dtype and a shape as a string, such as float32[10, 3]."""
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


class TorchBasedFeature(Shareable, Feature):
    """A feature with the rows of a tensor.

    Args:
        torch_feature: Shape (rows, ...), with two or more dimensions, of any dtype. The feature shares the memory of a
            contiguous tensor or NumPy array until worker processes or `pin_memory_()` need a copy in their kind of
            memory. A list, or rows that are not contiguous, are copied.
        metadata: Any other information about the feature.

    Raises:
        ValueError: `torch_feature` has fewer than two dimensions, requires gradients, or is on the device "meta".

    Example:
        >>> TorchBasedFeature(torch.tensor([[1.0], [2.0], [3.0]])).read(torch.tensor([2, 0])).tolist()
        [[3.0], [1.0]]
    """

    _is_updated = False

    @checked
    def __init__(self, torch_feature: Any, metadata: dict[str, Any] | None = None) -> None:
        self._tensor = check_feature_rows(torch_feature)
        self._read_only = is_read_only(torch_feature)
        self._metadata = metadata or {}

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids` (shape (len(ids), ...)), or the tensor itself, on the tensor's device.

        With a pinned tensor and ids on a GPU, the GPU reads the rows over the bus and they are returned there. A read
        takes a bit less than twice the time of a memcpy. Ids outside of the rows raise an IndexError.
        """
        if ids is None:
            return self._tensor
        # A GPU reads pinned rows directly; other rows are gathered on their own device.
        ids = as_ids("ids", ids)
        check_vector("ids", ids)
        return gather_rows(self._tensor, ids if is_readable(self._tensor, ids.device) else ids.to(self._tensor.device))

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._tensor.shape[1:]

    def count(self) -> int:
        """Return the number of rows."""
        return self._tensor.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self._tensor.dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Replace the tensor, or overwrite the rows at `ids` in place; those of a read-only array are copied first.

        If the old tensor was pinned, so is the new one, and memory that `pin_memory_()` had locked is released.
        """
        self._is_updated = True
        if ids is None:
            self._replace(check_feature_rows(value), is_read_only(value))
            return
        value, ids = as_tensor("value", value), as_ids("ids", ids)
        check_vector("ids", ids)
        if ids.shape != value.shape[:1]:
            raise ValueError(f"ids and value must have the same length, but have {len(ids)} and {[*value.shape][:1]}")
        given, wanted = (tuple(value.shape[1:]), value.dtype), (tuple(self.size()), self.dtype)
        if given != wanted:
            raise ValueError("rows of value must have shape {} and {}, but have {} and {}".format(*wanted, *given))
        check_ids("ids", ids, self.count(), IndexError)
        if value.requires_grad:
            raise ValueError("value requires gradients, but rows that are read have none; pass its .detach()")
        if self._read_only:
            self._replace(self._tensor.clone(), read_only=False)
        self._tensor[ids.to(self._tensor.device)] = value.to(self._tensor.device)

    def _replace(self, rows: torch.Tensor, read_only: bool) -> None:
        if self.is_pinned() and rows.is_cpu:
            locked = self._lock(rows)
            # A copy is writable.
            read_only = read_only and locked is rows
            rows = locked
        self._tensor, self._read_only = rows, read_only

    def _lock(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows in page-locked memory, and release the memory that was locked before."""
        # Memory stays locked as long as its owner exists.
        owner = PinOwner()
        (locked,) = page_lock([rows], owner)
        self._owner = owner
        return locked

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the feature."""
        return self._metadata

    def is_pinned(self) -> bool:
        """Return whether the tensor is in page-locked memory."""
        return is_page_locked(self._tensor)

    def pin_memory_(self) -> Self:
        """Page-lock the tensor for as long as the feature lives, and return this object.

        Rows in a mapped file or in shared memory, such as large ones that graphfeed reads from a file, are locked in
        place. Others, such as your own tensor, are replaced by a copy, because they may share pages with other memory:
        both take memory for as long as you keep yours. Pickling moves rows that are not in shared memory yet to memory
        that is not page-locked, so pin them after that.

        Raises:
            RuntimeError: torch finds no CUDA device, or CUDA rejects the memory.
            ValueError: The tensor is not on the CPU.
        """
        check_can_pin("pin_memory_")
        locked = self._lock(self._tensor)
        self._tensor, self._read_only = locked, self._read_only and locked is self._tensor
        return self

    @checked
    def to(self, device: torch.device | str) -> Self:
        """Return a feature with the tensor on a device; "pinned" means page-locked CPU memory."""
        pins = str(device) == "pinned" and self._tensor.is_cpu
        # Locked memory belongs to this feature; another feature locks its own.
        moved = type(self)(self._tensor if pins else to_device(self._tensor, device), self._metadata)
        moved._read_only = self._read_only and moved._tensor is self._tensor
        return moved.pin_memory_() if pins else moved

    def may_read_in_threads(self) -> bool:
        """Return whether the tensor is on the CPU and not pinned: a GPU reads pinned rows from the main thread."""
        return self._tensor.device.type == "cpu" and not is_page_locked(self._tensor)

    def is_constant(self) -> bool:
        """Return whether the rows are those of a read-only array, and `update` was never called."""
        return self._read_only and not self._is_updated

    def __repr__(self) -> str:
        return f"TorchBasedFeature({dtype_and_shape(self._tensor.dtype, self._tensor.shape)})"
