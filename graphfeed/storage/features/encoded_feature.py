"""A feature whose rows are stored as codes of a few bits and decoded on read."""

import copy
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Literal, Self, TypeGuard

import torch

from graphfeed.ops import is_gpu, is_readable
from graphfeed.ops.arguments import as_ids, brief, check_length, check_tensors, check_vector, checked
from graphfeed.ops.rows import decode_rows
from graphfeed.storage.features.feature import (
    DeferredRead,
    Feature,
    ReadsAhead,
    TorchBasedFeature,
    dtype_and_shape,
    row_type,
)
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.stream_order import Published

HALVES = (torch.float16, torch.bfloat16)


class EncodedFeature(Shareable, Feature):
    """A feature of rows of float32 or bfloat16, each number of which is stored in 4, 8 or 16 bits.

    Codes of 8 or 4 bits have a scale and an offset for each column: a number is `code * scale + offset`. Rows are
    decoded as they are gathered, so a read copies a fraction of the bytes. `Feature.encode` creates such a feature, and
    no number is clipped: `bound` is the largest error that it measured. Caches, windows and partitions in front of this
    feature hold codes: `with_stored` puts one in between, as do `cpu_cached_feature` and `open_part`.

    Args:
        stored: The codes. For 8 bits, uint8 of shape (rows, columns); for 4 bits, uint8 with two codes per byte, the
            low nibble first; or rows of float16 or bfloat16.
        bits: Size of a code: 8, 4, or 16 for float16 and bfloat16.
        scale: float32, one number per column; none for 16 bits, and with `per="row"`.
        offset: Like `scale`.
        size: Shape of a row; one dimension by default.
        per: With "row", each row has its own scale and offset at its end, as in FBGEMM: float32 for 8 bits, and float16
            for 4 bits.
        dtype: torch.float32 or torch.bfloat16, to which decoded rows are rounded.
        bound: Largest absolute error of each column, float32, if it is known.

    Raises:
        TypeError: A tensor has another dtype.
        ValueError: The shapes don't fit each other, or `bits` is another number.

    Example:
        >>> feature = TorchBasedFeature(torch.tensor([[0.0, 5.0], [1.0, 7.0], [0.3, 6.0]])).encode(bits=8)
        >>> feature
        EncodedFeature(float32[3, 2], 8 bits, 6 bytes, error at most 0.00392)
        >>> feature.read(torch.tensor([1, 0])).tolist()
        [[1.0, 7.0], [0.0, 5.0]]
    """

    plain_read = True

    @checked
    def __init__(
        self,
        stored: Feature,
        bits: int = 8,
        scale: torch.Tensor | None = None,
        offset: torch.Tensor | None = None,
        *,
        size: torch.Size | tuple[int, ...] | None = None,
        bound: torch.Tensor | None = None,
        per: Literal["column", "row"] = "column",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        arrays = {"scale": scale, "offset": offset, "bound": bound}
        check_tensors(**{name: own for name, own in arrays.items() if own is not None})
        kind = row_type(stored)
        if kind not in (HALVES if bits == 16 else (torch.uint8,)):
            wanted = "float16 or bfloat16" if bits == 16 else "uint8"
            raise TypeError(f"stored must have rows of {wanted} for {bits} bits, but has {kind}")
        if per not in ("column", "row"):
            raise ValueError(f"per must be 'column' or 'row', but is {brief(per)}")
        by_column, by_row = bits != 16 and per == "column", bits != 16 and per == "row"
        if by_column and (scale is None or offset is None):
            raise ValueError(f"codes of {bits} bits need scale and offset; give one number per column, or per='row'")
        if not by_column and not (scale is None and offset is None):
            raise ValueError("scale and offset are for 4 or 8 bits per column; leave them out here")
        if by_row and size is None:
            raise ValueError("codes with a scale per row need size; give the shape of a row")
        self.stored = stored
        """The feature of the codes."""
        self.bits, self.per, self._dtype = bits, per, dtype
        self._scale, self._offset = scale, offset
        self._on_gpus: dict[torch.device, tuple[tuple[torch.Tensor, torch.Tensor], Published]] = {}
        columns = stored.size().numel() if scale is None else scale.numel()
        self._size = torch.Size((columns,) if size is None else size)
        columns = self._size.numel() if by_row else columns
        if self._size.numel() != columns or min(self._size, default=0) < 0:
            raise ValueError(f"size {tuple(self._size)} must have as many numbers as there are columns: {columns}")
        if bound is not None:
            check_vector("bound", bound, (torch.float32,))
            check_length("bound", bound, columns, "column")
        self.bound = bound
        """Largest absolute error of each column, float32; None if it is unknown."""
        # Everything else is checked by decoding no rows.
        self.decode(stored.read(torch.empty(0, dtype=torch.int64, device="cpu")))

    def decode(self, codes: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of some codes, at an index, or all in order, on the device of the index or the codes."""
        place, factors = (codes if index is None else index).device, (self._scale, self._offset)
        if self._scale is not None and self._offset is not None and place.type != "cpu":
            if place not in self._on_gpus:
                made = self._scale.to(place), self._offset.to(place)
                self._on_gpus[place] = made, Published(torch.cuda.current_stream(place))
            factors, published = self._on_gpus[place]
            published.wait(factors)
        columns = self._size.numel()
        codes = codes.reshape(codes.shape[0], columns) if self.bits == 16 else codes
        rows = decode_rows(codes, index, self.bits, columns, *factors, dtype=self._dtype)
        return rows.view(rows.shape[0], *self._size)

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, decoded into `dtype`, or all rows if None.

        With ids on a GPU, the rows are returned there, and only codes cross the bus. Ids outside of the rows raise an
        IndexError.
        """
        if ids is None:
            return self.decode(self.stored.read())
        ids = as_ids("ids", ids)
        if self._is_in_memory() and is_readable(codes := self.stored.read(), ids.device):
            return self.decode(codes, ids)
        return self._decode_on(ids.device, self.stored.read(ids))

    def _decode_on(self, device: torch.device, codes: torch.Tensor) -> torch.Tensor:
        """Return the rows of codes that were read for ids on a device."""
        return self.decode(codes.to(device) if codes.is_cpu and is_gpu(device) else codes)

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield the stages of reading the codes. Waiting for the last one decodes them."""
        ids = as_ids("ids", ids)
        if self._is_in_memory():
            yield DeferredRead(partial(self.read, ids))
            return
        pending = self.stored.read_async(ids)
        for _ in range(self.stored.read_async_num_stages(ids.device) - 1):
            yield next(pending)
        last = next(pending)
        yield DeferredRead(lambda: self._decode_on(ids.device, last.wait()))

    def read_async_num_stages(self, ids_device: torch.device) -> int:
        """Return the number of stages of reading the codes."""
        return 1 if self._is_in_memory() else self.stored.read_async_num_stages(ids_device)

    def _is_in_memory(self) -> bool:
        return isinstance(self.stored, TorchBasedFeature) and type(self.stored).read is TorchBasedFeature.read

    def coding(self) -> dict[str, Any]:
        """Return the arguments that are not arrays, as JSON types; those with other values than by default."""
        found = {"bits": self.bits, "size": [*self._size], "per": self.per, "dtype": dtype_name(self._dtype)}
        return {key: value for key, value in found.items() if value not in ("column", "float32")}

    def arrays(self) -> dict[str, torch.Tensor]:
        """Return the arrays with one number per column: "scale", "offset" and "bound", except those that are None."""
        found = {"scale": self._scale, "offset": self._offset, "bound": self.bound}
        return {name: array for name, array in found.items() if array is not None}

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._size

    def count(self) -> int:
        """Return the number of rows."""
        return self.stored.count()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of decoded rows."""
        return self._dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Raise a NotImplementedError: codes are only read."""
        raise NotImplementedError(
            "encoded rows are only read; encode the new rows: TorchBasedFeature(rows).encode(bits)"
        )

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the codes."""
        return self.stored.metadata()

    def to(self, device: torch.device | str) -> Self:
        """Return the feature with its codes on a device or "pinned"; see `TorchBasedFeature.to`."""
        return self.with_stored(self.stored.to(device))

    def pin_memory_(self) -> Self:
        """Page-lock the codes in place, so that a GPU can decode them; see `TorchBasedFeature.pin_memory_`."""
        self.stored.pin_memory_()
        return self

    def is_pinned(self) -> bool:
        """Return whether the codes are in page-locked memory."""
        return self.stored.is_pinned()

    def delivers_to_gpu(self) -> bool:
        """Return True: rows are decoded on the device of the ids."""
        return True

    def may_read_in_threads(self) -> bool:
        """Return whether all threads can read the codes."""
        return self.stored.may_read_in_threads()

    def is_constant(self) -> bool:
        """Return whether the codes never change."""
        return self.stored.is_constant()

    def list_caches(self) -> Any:
        """Return the caches of codes."""
        return self.stored.list_caches()

    def slow_source(self) -> ReadsAhead | None:
        """Return the slow source of the codes."""
        return self.stored.slow_source() if self.stored.reads_plainly() else None

    def in_place_of_source(self, rows: Feature) -> Feature:
        """Return the feature with codes that were read ahead."""
        result = copy.copy(self)
        result.stored = self.stored.in_place_of_source(rows)
        return result

    @checked
    def with_stored(self, stored: Feature) -> Self:
        """Return the feature with the same codes stored elsewhere, such as in a cache in front of them.

        Raises:
            ValueError: `stored` has rows of another shape or dtype.

        Example:
            >>> from graphfeed.storage import cpu_cached_feature
            >>> feature = TorchBasedFeature(torch.eye(2)).encode(8)
            >>> feature.with_stored(cpu_cached_feature(feature.stored, 1000)).read(torch.tensor([1])).tolist()
            [[0.0, 1.0]]
        """
        own, other = [dtype_and_shape(row_type(codes), codes.size()) for codes in (self.stored, stored)]
        if own != other:
            raise ValueError(f"stored must have the same codes, rows of {own}, but has rows of {other}")
        result = copy.copy(self)
        result.stored = stored
        return result

    def describe_codes(self) -> str:
        """Return the bits, the bytes and the largest error, as in "8 bits, 600 bytes, error at most 0.004"."""
        num_bytes = self.count() * self.stored.size().numel() * row_type(self.stored).itemsize
        # A row without numbers has no error.
        most = "unknown" if self.bound is None else f"at most {max(self.bound.tolist(), default=0.0):.3g}"
        each = " per row" if self.per == "row" else ""
        return f"{self.bits} bits{each}, {num_bytes:,} bytes, error {most}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_on_gpus": {}}

    def __repr__(self) -> str:
        kind = dtype_and_shape(self._dtype, torch.Size([self.count(), *self._size]))
        return f"EncodedFeature({kind}, {self.describe_codes()})"


def open_codes(stored: Feature, coding: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> EncodedFeature:
    """Return the feature of some codes, with the values that `coding` and `arrays` returned."""
    given: dict[str, Any] = {**coding, **arrays}
    if "dtype" in given:
        given["dtype"] = getattr(torch, str(given["dtype"]), None)
    return EncodedFeature(stored, **given)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def is_encoded(feature: object) -> TypeGuard[EncodedFeature]:
    """Return whether the rows of a feature are decoded codes, and nothing else: a subclass may read them otherwise."""
    return isinstance(feature, EncodedFeature) and feature.reads_plainly()


def stored_rows(feature: Feature) -> Feature:
    """Return the feature of the codes, or the feature itself if it has none."""
    return feature.stored if is_encoded(feature) else feature


def wrap_stored(feature: Feature, wrap: Callable[[Feature], Feature]) -> Feature:
    """Return a feature that reads through `wrap(rows)`, such as a cache. If rows are codes, it decodes them last."""
    wrapped = wrap(stored_rows(feature))
    return feature.with_stored(wrapped) if is_encoded(feature) else wrapped
