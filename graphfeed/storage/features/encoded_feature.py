"""A feature whose rows are stored as codes of a few bits and decoded on read."""

import copy
import math
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Self

import torch

from graphfeed.ops import is_gpu, is_readable
from graphfeed.ops.arguments import as_ids, brief, check_vector, checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.rows import decode_halves, decode_rows
from graphfeed.storage.features.feature import (
    DeferredRead,
    Feature,
    ReadsAhead,
    TorchBasedFeature,
    dtype_and_shape,
    row_type,
)
from graphfeed.storage.memory.shareable import Shareable

HALVES = (torch.float16, torch.bfloat16)


class EncodedFeature(Shareable, Feature):
    """A feature of float32 rows, each number of which is stored in 4, 8 or 16 bits.

    Codes of 8 or 4 bits have a scale and an offset for each column: a number is `code * scale + offset`. Rows are
    decoded as they are gathered, so a read copies a fraction of the bytes. `Feature.encode` creates such a feature, and
    no number is clipped: `bound` is the largest error that it measured. Caches, windows and partitions in front of this
    feature hold codes: `with_stored` puts one in between, as do `cpu_cached_feature` and `open_part`.

    Args:
        stored: The codes. For 8 bits, uint8 of shape (rows, columns); for 4 bits, uint8 with two codes per byte, the
            low nibble first; or rows of float16 or bfloat16.
        bits: Size of a code: 8, 4, or 16 for float16 and bfloat16.
        scale: float32, one number per column; none for 16 bits.
        offset: Like `scale`.
        size: Shape of a row; one dimension by default.
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
    ) -> None:
        kind = row_type(stored)
        if bits not in (4, 8, 16):
            raise ValueError(f"bits must be 4, 8 or 16, but is {brief(bits)}")
        if kind not in (HALVES if bits == 16 else (torch.uint8,)):
            wanted = "float16 or bfloat16" if bits == 16 else "uint8"
            raise TypeError(f"stored must have rows of {wanted} for {bits} bits, but has {kind}")
        if bits == 16 and not (scale is None and offset is None):
            raise ValueError("scale and offset are for 4 or 8 bits; leave them out, since numbers of 16 bits have none")
        if bits != 16 and (scale is None or offset is None):
            raise ValueError(f"codes of {bits} bits need scale and offset; give one number per column")
        self.stored = stored
        """The feature of the codes."""
        self.bits = bits
        self._scale, self._offset = scale, offset
        self._on_gpus: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}
        columns = stored.size().numel() if scale is None else scale.numel()
        self._size = torch.Size((columns,) if size is None else size)
        if self._size.numel() != columns:
            raise ValueError(f"size {tuple(self._size)} must have as many numbers as there are columns: {columns}")
        if bound is not None and bound.numel() != columns:
            raise ValueError(f"bound must have {columns} values, one per column, but has {bound.numel()}")
        self.bound = bound
        """Largest absolute error of each column, float32; None if it is unknown."""
        # Everything else is checked by decoding no rows.
        self.decode(stored.read(torch.empty(0, dtype=torch.int64, device="cpu")))

    def decode(self, codes: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of some codes, at an index, or all in order, on the device of the index or the codes."""
        if index is None:
            index = torch.arange(codes.shape[0], device=codes.device)
        if self._scale is None or self._offset is None:
            rows = decode_halves(codes.reshape(codes.shape[0], self._size.numel()), index)
        else:
            factors = self._scale, self._offset
            if not index.is_cpu:
                if index.device not in self._on_gpus:
                    self._on_gpus[index.device] = self._scale.to(index.device), self._offset.to(index.device)
                factors = self._on_gpus[index.device]
            rows = decode_rows(codes, index, self.bits, *factors)
        return rows.view(index.numel(), *self._size)

    def encode_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the codes of some rows, float64, shape (rows, columns), which must be in the range of each column."""
        if self._scale is None or self._offset is None:
            return rows.to(row_type(self.stored)).reshape(len(rows), *self._size)
        scale = self._scale.double()
        codes = (rows - self._offset) / torch.where(scale > 0, scale, 1.0)
        packed = codes.round_().clamp_(0, (1 << self.bits) - 1).to(torch.uint8)
        if self.bits == 4:
            padded = torch.nn.functional.pad(packed, (0, packed.shape[1] % 2))
            packed = padded[:, ::2] | padded[:, 1::2] << 4
        return packed

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, float32, or all rows if None.

        With ids on a GPU, the rows are returned there, and only codes cross the bus. Ids outside of the rows raise an
        IndexError.
        """
        if ids is None:
            return self.decode(self.stored.read())
        ids = self._checked(ids)
        if self._is_in_memory() and is_readable(codes := self.stored.read(), ids.device):
            return self.decode(codes, ids)
        return self._decode_on(ids.device, self.stored.read(ids))

    def _decode_on(self, device: torch.device, codes: torch.Tensor) -> torch.Tensor:
        """Return the rows of codes that were read for ids on a device."""
        return self.decode(codes.to(device) if codes.is_cpu and is_gpu(device) else codes)

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield the stages of reading the codes. Waiting for the last one decodes them."""
        ids = self._checked(ids)
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

    def _checked(self, ids: torch.Tensor) -> torch.Tensor:
        ids = as_ids("ids", ids)
        check_vector("ids", ids)
        return ids

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
        """The dtype of decoded rows: float32."""
        return torch.float32

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

    def is_in_page_cache(self) -> bool:
        """Return whether recent reads of a file of codes were served from the system's page cache."""
        return self.stored.is_in_page_cache()

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
        return f"{self.bits} bits, {num_bytes:,} bytes, error {most}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_on_gpus": {}}

    def __repr__(self) -> str:
        return f"EncodedFeature(float32{[self.count(), *self._size]}, {self.describe_codes()})"


def stored_rows(feature: Feature) -> Feature:
    """Return the feature of the codes, or the feature itself if it has none."""
    return feature.stored if isinstance(feature, EncodedFeature) else feature


def wrap_stored(feature: Feature, wrap: Callable[[Feature], Feature]) -> Feature:
    """Return a feature that reads through `wrap(rows)`, such as a cache. If rows are codes, it decodes them last."""
    wrapped = wrap(stored_rows(feature))
    return feature.with_stored(wrapped) if isinstance(feature, EncodedFeature) else wrapped


def in_memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return buffers.empty_long_lived(shape, dtype, buffers.CPU)


def encode(feature: Feature, bits: int | torch.dtype, new: Callable[..., torch.Tensor] = in_memory) -> EncodedFeature:
    """Encode all rows of a feature into a tensor that `new(shape, dtype)` returns; see `Feature.encode`."""
    if bits not in (4, 8, *HALVES):
        raise ValueError(f"bits must be 4, 8, torch.float16 or torch.bfloat16, but is {brief(bits)}")
    if not row_type(feature).is_floating_point:
        raise TypeError(
            f"rows must be floats, but are {row_type(feature)}; convert them with .float(), then encode them"
        )
    count, columns, size = feature.count(), feature.size().numel(), feature.size()
    scale = offset = None
    if isinstance(bits, int):
        scale, offset = find_scale(feature, (1 << bits) - 1)
        codes = new((count, (columns * bits + 7) // 8), torch.uint8)
    else:
        codes = new((count, *size), bits)
    bound = torch.zeros(columns, dtype=torch.float64, device="cpu")
    stored = TorchBasedFeature(codes, feature.metadata())
    encoded = EncodedFeature(stored, bits if isinstance(bits, int) else 16, scale, offset, size=size)
    for begin, rows in parts_of(feature):
        part = encoded.encode_rows(rows)
        errors = (encoded.decode(part).reshape(rows.shape) - rows).abs()
        # Both float16 and bfloat16 have infinity and NaN. The difference of two of them is NaN.
        errors.masked_fill_(~rows.isfinite(), 0.0)
        refuse_first(errors.isinf(), rows, begin, f"beyond the range of {bits}; use torch.bfloat16, or 8 bits")
        codes[begin : begin + len(rows)] = part
        bound = torch.maximum(bound, errors.amax(0))
    # Rounded up, because float32 and the differences above are rounded.
    above = torch.nextafter(bound.float(), torch.full_like(bound, math.inf, dtype=torch.float32))
    encoded.bound = torch.where(bound > 0, above, 0.0)
    return encoded


def parts_of(feature: Feature) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the first id and the rows of each part of a feature, float64, shape (rows, columns)."""
    count, columns = feature.count(), feature.size().numel()
    step = max(current_limits().part_values // max(columns, 1), 1)
    for begin in range(0, count, step):
        rows = feature.read(torch.arange(begin, min(begin + step, count), device="cpu"))
        yield begin, rows.cpu().double().reshape(len(rows), columns)


def find_scale(feature: Feature, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale and the offset of each column, with which its numbers have codes in `0 .. most`."""
    lows, highs = [], []
    for begin, rows in parts_of(feature):
        refuse_first(
            ~rows.isfinite(), rows, begin, "which has no code; replace it, or use torch.bfloat16, which keeps it"
        )
        lows.append(rows.amin(0))
        highs.append(rows.amax(0))
    if not lows:
        nothing = torch.zeros(feature.size().numel(), device="cpu")
        return nothing, nothing.clone()
    low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    scale, offset = ((high - low) / most).float(), low.float()
    # A scale near the smallest float32 may be rounded down too much.
    scale = torch.where(high - low > (most + 0.5) * scale.double(), torch.nextafter(scale, scale + 1), scale)
    wide = ~(most * scale + offset.abs()).isfinite()
    if wide.any():
        column = int(wide.nonzero()[0])
        raise ValueError(
            f"column {column} of the rows has numbers from {float(low[column]):.3g} to {float(high[column]):.3g}, too "
            "far apart for float32; divide them by a constant"
        )
    return scale, offset


def refuse_first(wrong: torch.Tensor, rows: torch.Tensor, begin: int, why: str) -> None:
    """Raise a ValueError that names the first row and column where a number is wrong."""
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(f"row {begin + row} of the feature has {float(rows[row, column]):g} in column {column}, {why}")
