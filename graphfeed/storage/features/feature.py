"""A feature of the nodes or edges of one type: one row per id."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops import is_gpu, is_readable
from graphfeed.ops.arguments import as_ids, as_tensor, check_can_pin, check_ids, check_vector, checked, is_read_only
from graphfeed.ops.memory import PinOwner, is_page_locked, page_lock
from graphfeed.ops.rows import gather_rows
from graphfeed.storage.memory.cache_use import Cache
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.tensor_tree import move

PYG_DIM = "pyg_dim"
"""What the metadata of a feature call the dimension of PyG's data that its rows were, -1 if it was the only one."""


class DeferredRead:
    """Rows that are read when they are waited for, or that are on their way already.

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
            # Frees what the function holds.
            self._read = None
        return self._rows


class Feature(ABC):
    """A feature of nodes or edges: rows that are read by id. Subclasses decide where the rows are stored."""

    @abstractmethod
    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, in their order; all rows if None."""

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

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield once per stage of reading; the last stage gives the rows.

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
        """Tell whether the rows lie in page-locked memory, where a GPU can read them."""
        return False

    def is_in_page_cache(self) -> bool:
        """Tell whether rows that lie in a file came from the system's memory lately: a cache is not needed then."""
        return False

    def delivers_to_gpu(self) -> bool:
        """Tell whether `read` takes ids on a GPU and returns the rows there; a cache on the GPU asks this."""
        return self.is_pinned()

    def pin_memory_(self) -> Self:
        """Page-lock the rows in place; warn where none are in memory. Return this object.

        Raises:
            RuntimeError: torch finds no CUDA device.
        """
        warn_of_staying(self, "pin_memory_()")
        return self

    def to(self, device: torch.device | str) -> Self:
        """Return the feature with its rows on a device, or "pinned"; one that can't move issues a warning and stays."""
        warn_of_staying(self, f"to({str(device)!r})")
        return self

    def may_read_in_threads(self) -> bool:
        """Tell whether any thread reads as well as the main one, as where a read only copies CPU memory."""
        return False

    def is_constant(self) -> bool:
        """Tell whether the rows stay what they are: no `update` has changed them, and nobody is expected to."""
        return False

    def list_caches(self) -> list[tuple[str, Cache]]:
        """Return the caches that a read goes through, each with an empty name."""
        return []

    def slow_source(self) -> "ReadsAhead | None":
        """Return where the rows come from, past caches, if they are better read ahead of mini-batches; else None."""
        return None

    def in_place_of_source(self, rows: "Feature") -> "Feature":
        """Return the feature with other rows than its slow source's; a cache in CPU memory is left out then."""
        return rows


class Spans(NamedTuple):
    """How rows were read."""

    reads: int
    num_bytes: int
    """With what lies between the rows and was read along."""


class ReadsAhead(Feature):
    """A feature whose rows take so long to read that those of several mini-batches are better read at once, ahead."""

    waits_for: str
    """Who is waited for, in words."""

    @property
    def gap_bytes(self) -> int | None:
        """How far rows may lie apart to be read at once; None where only what is asked for is read."""
        return None

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        assert self.dtype is not None
        return self.size().numel() * self.dtype.itemsize

    @abstractmethod
    def begin_reading(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> list[Future[Spans]]:
        """Let threads read many rows; return the futures of the parts for `join`. Cancelled parts are not read.

        Args:
            ids: int64, ascending, in the range of the rows.
            out: Written: contiguous, shape (any, ...), of the feature's dtype.
            positions: int64: the row of `out` for each id.
        """

    @abstractmethod
    def join(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until parts are read, or raise what failed."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a RuntimeError if rows that were read before may have changed by now."""

    def slow_source(self) -> "ReadsAhead | None":
        """Return this feature."""
        return self


class RemoteFeature(Feature):
    """A feature some of whose rows are remote, so that a read waits for them. A cache in memory keeps those alone.

    It asks for all that it lacks in one `read_async`, whose only stage should ask at once, and wait when waited for.
    """

    @abstractmethod
    def split_local(self, ids: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], None]]:
        """Split rows, whose ids were checked, into remote ones and local ones, which can be read without waiting.

        Return the positions of remote ones, int64, ascending, and a function that writes the local ones into all.
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
        stacklevel=3,  # the line of whoever called the feature's method
    )


def check_rows(values: Any) -> torch.Tensor:
    rows = as_tensor("torch_feature", values)
    if rows.dim() < 2:
        raise ValueError(
            "dimension of torch_feature in TorchBasedFeature must be greater than 1, but got "
            f"{rows.dim()} dimension; make a column of it with .unsqueeze(1)"
        )
    if rows.requires_grad:
        raise ValueError(
            "torch_feature requires gradients, and rows that are read have none; give .detach() of it, or look the "
            "rows up in your model: embedding(minibatch.input_nodes)"
        )
    if rows.is_meta and not is_gpu(rows.device):
        raise ValueError(
            "torch_feature lies on the device 'meta', where tensors have no values; give one with values, such as "
            "torch.load(path, map_location='cpu')"
        )
    # Rows are gathered as one piece of memory each.
    return rows.contiguous()


def dtype_and_shape(dtype: torch.dtype, shape: torch.Size) -> str:
    """Return the text of a dtype and a shape, such as float32[10, 3]."""
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


class TorchBasedFeature(Shareable, Feature):
    """A feature whose rows are those of a tensor.

    Args:
        torch_feature: Shape (rows, ...), with two or more dimensions, of any dtype. The memory of a contiguous tensor,
            or of a NumPy array, is shared with it until worker processes or `pin_memory_()` need a copy in memory of
            their kind; a list, or rows that are not contiguous, are copied.
        metadata: Anything else to know about the feature.

    Raises:
        ValueError: `torch_feature` has fewer than two dimensions, requires gradients, or lies on the device "meta".

    Example:
        >>> TorchBasedFeature(torch.tensor([[1.0], [2.0], [3.0]])).read(torch.tensor([2, 0])).tolist()
        [[3.0], [1.0]]
    """

    _is_updated = False

    @checked
    def __init__(self, torch_feature: Any, metadata: dict[str, Any] | None = None) -> None:
        self._tensor = check_rows(torch_feature)
        self._read_only = is_read_only(torch_feature)
        self._metadata = metadata or {}

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids` (shape (len(ids), ...)), or the tensor itself, on the tensor's device.

        With a pinned tensor and ids on a GPU, the GPU reads the rows over the bus and they are returned there. A read
        takes a bit less than twice the time of a memcpy. Ids outside of the rows are an IndexError.
        """
        if ids is None:
            return self._tensor
        # A GPU reads pinned rows where they lie; other rows are gathered where they are.
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
        """Replace the tensor, or overwrite the rows at `ids` in place, for which those of a read-only array are copied.

        If the old tensor was pinned, the new one is, too, and memory that `pin_memory_()` had locked is released.
        """
        self._is_updated = True
        if ids is None:
            self._replace(check_rows(value), is_read_only(value))
            return
        value, ids = as_tensor("value", value), as_ids("ids", ids)
        check_vector("ids", ids)
        if ids.shape != value.shape[:1]:
            raise ValueError(f"ids and value must have the same length, but have {len(ids)} and {[*value.shape][:1]}")
        if value.shape[1:] != self.size():
            raise ValueError(f"rows of value must have shape {tuple(self.size())}, but have {tuple(value.shape[1:])}")
        check_ids("ids", ids, self.count(), IndexError)
        if value.requires_grad:
            raise ValueError("value requires gradients, and rows that are read have none; give .detach() of it")
        # The tensor views memory that isn't to be written to, such as a mapped file: from now on it is a copy.
        if self._read_only:
            self._replace(self._tensor.clone(), read_only=False)
        self._tensor[ids.to(self._tensor.device)] = value.to(self._tensor.device)

    def _replace(self, rows: torch.Tensor, read_only: bool) -> None:
        if self.is_pinned() and rows.is_cpu:
            locked = self._lock(rows)
            # A copy may be written to.
            read_only = read_only and locked is rows
            rows = locked
        self._tensor, self._read_only = rows, read_only

    def _lock(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows in page-locked memory, and release what was locked before."""
        # Memory stays locked as long as its owner lives.
        owner = PinOwner()
        (locked,) = page_lock([rows], owner)
        self._owner = owner
        return locked

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the feature."""
        return self._metadata

    def is_pinned(self) -> bool:
        """Tell whether the tensor lies in page-locked memory."""
        return is_page_locked(self._tensor)

    def pin_memory_(self) -> Self:
        """Page-lock the tensor for as long as the feature lives, and return this object.

        Rows in a mapped file or in shared memory, as large ones that graphfeed reads from a file, are locked where they
        lie. Others, such as your own tensor, are replaced by a copy, because they may share pages with other memory:
        that takes the memory of both for as long as you keep yours. Pickling moves what is not in shared memory yet to
        memory that is not page-locked, so pin it after that.

        Raises:
            RuntimeError: torch finds no CUDA device, or CUDA refuses the memory.
            ValueError: The tensor is not on the CPU.
        """
        check_can_pin("pin_memory_")
        locked = self._lock(self._tensor)
        self._tensor, self._read_only = locked, self._read_only and locked is self._tensor
        return self

    @checked
    def to(self, device: torch.device | str) -> Self:
        """Return a feature with the tensor on a device; "pinned" stands for page-locked CPU memory."""
        pins = str(device) == "pinned" and self._tensor.is_cpu
        # What was locked is locked for this feature; another one locks for itself.
        moved = type(self)(self._tensor if pins else move(self._tensor, device), self._metadata)
        moved._read_only = self._read_only and moved._tensor is self._tensor
        return moved.pin_memory_() if pins else moved

    def may_read_in_threads(self) -> bool:
        """Tell whether the tensor lies on the CPU and is not pinned: a GPU reads pinned rows from the main thread."""
        return self._tensor.device.type == "cpu" and not is_page_locked(self._tensor)

    def is_constant(self) -> bool:
        """Tell whether the rows are those of a read-only array, and `update` was never called."""
        return self._read_only and not self._is_updated

    def __repr__(self) -> str:
        return f"TorchBasedFeature({dtype_and_shape(self._tensor.dtype, self._tensor.shape)})"
