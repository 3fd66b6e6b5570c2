"""Argument checks for several operations. Each error reports the argument, its value and what is allowed."""

import re
from collections.abc import Mapping
from numbers import Real
from operator import index

import torch

from graphfeed.ops.arguments.facts import are_below, mark_below
from graphfeed.ops.arguments.texts import brief, join_or, kind_of

MOST_SECONDS = 1e8
"""The longest timeout, three years, which all of the system's waiting functions accept."""
ID_DTYPES = (torch.int32, torch.int64)
LARGEST = (1 << 63) - 1
"""The largest integer that kernels accept."""
MOST_VALUES = 1 << 48
"""Upper limit for numbers of values, beyond any machine's memory. Their size in bytes still fits in 64 bits."""
UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("", "k", "m", "g", "t"))}
BY_NUMPY = range(1 << 15, (1 << 20) + 1)
"""Numbers of ids whose bounds are found by NumPy, in at most 0.2 ms. For fewer ids, torch is 1.7 times as fast.

In this range, torch would use all of its threads. Waking them takes 20 ms or more if the cores are busy, for example
with training: excluding the edges of seeds took 5 times as long.
"""


def check_tensors(**values: object) -> None:
    """Raise unless each value, given by argument name, is a tensor."""
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, but is {kind_of(value)}; convert it with torch.as_tensor")


def check_vector(name: str, tensor: object, dtypes: tuple[torch.dtype, ...] = ID_DTYPES) -> None:
    """Raise unless a value is a 1-D tensor with one of the dtypes."""
    if not isinstance(tensor, torch.Tensor):
        check_tensors(**{name: tensor})
        return
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have 1 dimension, but has shape {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        allowed = join_or([str(dtype) for dtype in dtypes])
        raise TypeError(f"{name} must be {allowed}, but is {tensor.dtype}; convert it with .to(...)")


def check_length(name: str, tensor: torch.Tensor, count: int, per: str) -> None:
    """Raise unless a tensor has `count` values, one per node, edge or other object."""
    if tensor.numel() != count:
        raise ValueError(f"{name} must have {count} values, one per {per}, but has {tensor.numel()}")


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise unless a value is an integer from `least` to `most`."""
    try:
        count = index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, but is {brief(value)}; convert it with int(...)") from error
    if count < least:
        raise ValueError(f"{name} must be {least} or more, but is {brief(count)}")
    if most is not None and count > most:
        raise ValueError(f"{name} must be {most} or less, but is {brief(count)}")


def parse_bytes(name: str, size: object) -> int:
    """Return a number of bytes, 1 or more, from a number or a string with a unit. Units are powers of 1024.

    Example:
        >>> parse_bytes("size", "512M"), parse_bytes("size", "0.5 GiB"), parse_bytes("size", 1000)
        (536870912, 536870912, 1000)
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([kmgt]?)(i?b)?", str(size).strip().lower())
    if found is None:
        raise ValueError(f"{name} must be a number of bytes, such as '512M' or '4G', but is {brief(size)}")
    count = int(float(found[1]) * UNITS[found[2]])
    if count < 1:
        raise ValueError(f"{name} must be 1 byte or more, but is {brief(size)}")
    return count


def check_seconds(name: str, value: object) -> None:
    """Raise unless a value is a valid timeout in seconds: above 0, and at most `MOST_SECONDS`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number of seconds, but is {brief(value)}")
    seconds = float(value)
    if not seconds > 0:
        raise ValueError(f"{name} must be more than 0 seconds, but is {value}")
    if seconds > MOST_SECONDS:
        raise ValueError(f"{name} must be {MOST_SECONDS:g} seconds or less, but is {value}")


def check_seed(name: str, value: object) -> int:
    """Return a seed as an int, or raise unless it is an integer, with a hint if it is a generator."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError as error:
        is_generator = isinstance(value, torch.Generator)
        given = "a torch.Generator; give its initial_seed()" if is_generator else brief(value)
        raise TypeError(f"{name} must be an integer, but is {given}") from error


def check_position(seed: object, epoch: object, start: object) -> int:
    """Return the seed as an int; raise unless it has at most 64 bits, and `epoch` and `start` are 0 or more."""
    check_count("epoch", epoch, 0)
    check_count("start", start, 0)
    seed = check_seed("seed", seed)
    # Draws use 64 bits, and would ignore the rest of a longer seed.
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be in -2**63 .. 2**64 - 1, but is {seed}")
    return seed


def bounds(ids: torch.Tensor) -> tuple[int, int]:
    """Return the smallest and the largest id."""
    if ids.is_cpu and ids.numel() in BY_NUMPY:
        array = ids.numpy()
        return int(array.min()), int(array.max())
    ends = torch.aminmax(ids)
    # One transfer for both numbers, because each transfer synchronizes.
    low, high = ends if ids.is_cpu else torch.stack(ends).tolist()
    return int(low), int(high)


def check_ids(name: str, ids: torch.Tensor, bound: int, error: type[Exception] = ValueError) -> None:
    """Raise unless all ids are in `0 .. bound - 1`. Ids that `mark_below` recorded need no synchronization."""
    if ids.numel() > 0 and not are_below(ids, bound):
        check_bounds(name, bounds(ids), bound, error)


def mark_copied_below(ids: object, copied: object) -> None:
    """Record the bound of ids that were copied from the CPU to a GPU, found on the CPU without synchronizing."""
    if not isinstance(ids, torch.Tensor) or not isinstance(copied, torch.Tensor):
        return
    if ids.is_cpu and not copied.is_cpu and ids.dtype in ID_DTYPES and ids.numel():
        low, high = bounds(ids)
        if low >= 0:
            mark_below(copied, high + 1)


def check_ids_of_each(parts: Mapping[str, torch.Tensor], sizes: Mapping[str, int], name: str) -> None:
    """Raise unless the ids of each part are in `0 .. size - 1`. Synchronizes with a GPU only once."""
    filled = {part: ids for part, ids in parts.items() if ids.numel() > 0 and not are_below(ids, sizes[part])}
    if all(ids.is_cpu for ids in filled.values()):
        found = [bounds(ids) for ids in filled.values()]
    else:
        found = torch.stack([torch.stack(torch.aminmax(ids)) for ids in filled.values()]).tolist()
    for part, (low, high) in zip(filled, found, strict=True):
        check_bounds(f"{name} {part!r}", (low, high), sizes[part], ValueError)


def check_bounds(name: str, found: tuple[int, int], bound: int, error: type[Exception]) -> None:
    """Raise unless the smallest and the largest id are in `0 .. bound - 1`."""
    low, high = found
    if low < 0 or high >= bound:
        wrong = low if low < 0 else high
        raise error(f"{name} must be in 0 .. {bound - 1}, but holds {wrong}; check the ids against the number of rows")


def check_can_pin(name: str) -> None:
    """Raise unless there is a CUDA device to pin memory for."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"{name} needs a CUDA device to pin memory for, and torch finds none; leave it out: the CPU is as fast "
            "without it"
        )
