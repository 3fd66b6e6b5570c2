"""Encode the rows of a feature as codes of a few bits."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch

from graphfeed.ops.arguments import brief
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.storage.features.encoded_feature import HALVES, EncodedFeature
from graphfeed.storage.features.feature import Feature, TorchBasedFeature, row_type

NO_CODE = "which has no code; replace it, or use float16 or bfloat16, which keep it"


def in_memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return buffers.empty_long_lived(shape, dtype, buffers.CPU)


def encode(
    feature: Feature,
    bits: int | torch.dtype,
    per: Literal["column", "row"] = "column",
    dtype: torch.dtype = torch.float32,
    new: Callable[..., torch.Tensor] = in_memory,
) -> EncodedFeature:
    """Encode all rows of a feature into a tensor that `new(shape, dtype)` returns; see `Feature.encode`."""
    if bits not in (4, 8, *HALVES):
        raise ValueError(f"bits must be 4, 8, torch.float16 or torch.bfloat16, but is {brief(bits)}")
    bits = bits if isinstance(bits, torch.dtype) else int(bits)  # an integer of NumPy, too
    if not row_type(feature).is_floating_point:
        raise TypeError(
            f"rows must be floats, but are {row_type(feature)}; convert them with .float(), then encode them"
        )
    count, columns, size = feature.count(), feature.size().numel(), feature.size()
    scale = offset = None
    if isinstance(bits, torch.dtype):
        codes = new((count, *size), bits)
    else:
        if per == "column":
            scale, offset = find_scale(feature, (1 << bits) - 1)
        # A scale and an offset per row have `bits // 2` bytes each.
        codes = new((count, (columns * bits + 7) // 8 + bits * (per == "row")), torch.uint8)
    bound = torch.zeros(columns, dtype=torch.float64, device="cpu")
    stored = TorchBasedFeature(codes, feature.metadata())
    given = bits if isinstance(bits, int) else 16
    encoded = EncodedFeature(stored, given, scale, offset, size=size, per=per, dtype=dtype)
    for begin, rows in parts_of(feature):
        part = encode_rows(rows, bits, begin, scale, offset).reshape(len(rows), *codes.shape[1:])
        errors = (encoded.decode(part).reshape(rows.shape).double() - rows).abs()
        # Both float16 and bfloat16 have infinity and NaN. The difference of two of them is NaN.
        errors.masked_fill_(~rows.isfinite(), 0.0)
        beyond = f"beyond the range of {dtype if isinstance(bits, int) else bits}; use 8 bits and torch.float32"
        refuse_first(errors.isinf(), rows, begin, beyond)
        codes[begin : begin + len(rows)] = part
        bound = torch.maximum(bound, errors.amax(0))
    # Rounded up, because float32 and the differences above are rounded.
    above = torch.nextafter(bound.float(), torch.full_like(bound, math.inf, dtype=torch.float32))
    encoded.bound = torch.where(bound > 0, above, 0.0)
    return encoded


def encode_rows(
    rows: torch.Tensor,
    bits: int | torch.dtype,
    begin: int,
    scale: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the codes of some rows, float64, the first of which is row `begin`; without a scale, with one per row."""
    if not isinstance(bits, int):
        return rows.to(bits)
    factors = torch.empty(len(rows), 0, dtype=torch.uint8, device="cpu")
    if scale is None or offset is None:
        scale, offset = scale_of_rows(rows, bits, begin)
        factors = torch.cat([scale, offset], 1).view(torch.uint8)
    steps = scale.double()
    codes = (rows - offset) / torch.where(steps > 0, steps, 1.0)
    packed = codes.round_().clamp_(0, (1 << bits) - 1).to(torch.uint8)
    if bits == 4:
        padded = torch.nn.functional.pad(packed, (0, packed.shape[1] % 2))
        packed = padded[:, ::2] | padded[:, 1::2] << 4
    return torch.cat([packed, factors], 1)


def scale_of_rows(rows: torch.Tensor, bits: int, begin: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale and the offset of each row, with which its numbers have codes; float16 for 4 bits."""
    refuse_first(~rows.isfinite(), rows, begin, NO_CODE)
    kind = torch.float32 if bits == 8 else torch.float16
    if not rows.shape[1]:
        return tuple(torch.zeros(len(rows), 1, dtype=kind, device="cpu") for _ in range(2))  # type: ignore[return-value]
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    offset = rounded_down(low, kind)
    scale = -rounded_down((offset - high) / ((1 << bits) - 1), kind)
    wide = ~(((1 << bits) - 1) * scale.float() + offset.float().abs()).isfinite()
    refuse_first(
        wide.expand(rows.shape), rows, begin, f"too far from the others of its row for {kind}; encode per column"
    )
    return scale, offset


def rounded_down(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of float64, rounded to the next lower one of float32 or float16."""
    near = numbers.to(dtype)
    lower = np.nextafter(near.numpy(), near.numpy().dtype.type(-math.inf))
    return torch.where(near.double() > numbers, torch.from_numpy(lower), near)


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
        refuse_first(~rows.isfinite(), rows, begin, NO_CODE)
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
