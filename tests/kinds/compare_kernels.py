"""Runs every kernel on a GPU and compares the bits of its results with those of the CPU's kernels."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from graphfeed import ops
from graphfeed.ops.rows import CacheSets
from tests.kinds.gpu_calls import Call, Inputs, calls
from tests.kinds.hops import given_arrays


class Comparison(NamedTuple):
    """Outcome of one operation on a GPU."""

    case: str
    same: bool
    """Whether all bits are those of the CPU."""
    said: str
    """How many values were compared, or what went wrong."""


def compare_kernels(
    device: torch.device, inputs: Inputs, group: Callable[[Inputs], dict[str, Call]] | None = None
) -> Iterator[Comparison]:
    """Make each call on a GPU, with its graph there and in page-locked memory, and compare it with the CPU.

    A call that fails does not end the others. But after an illegal access to memory, CUDA refuses all that follows, so
    that a process for each `group` of calls, such as `calls_on_rows`, tells more than one for all of them.
    """
    for name, call in (group or calls)(inputs).items():
        yield compare(name, call, device, ())
        if call.over_the_bus:
            yield compare(f"{name}, from page-locked memory", call, device, call.over_the_bus)


def compare(title: str, call: Call, device: torch.device, page_locked: tuple[str, ...]) -> Comparison:
    """Compare bit by bit what a call returns on a GPU and on the CPU, and what it writes to its arguments."""
    count = 0
    for change in call.changes:
        given = {**call.arguments, **change}
        expected = run(call, {name: moved(value, torch.clone) for name, value in given.items()})
        try:
            found = [tensor.cpu() for tensor in run(call, on_gpu(given, device, call.on_cpu, page_locked))]
        except Exception as error:
            return Comparison(title, False, f"{type(error).__name__}: {error}")
        shapes = [[(tensor.dtype, tuple(tensor.shape)) for tensor in side] for side in (expected, found)]
        if shapes[0] != shapes[1]:
            return Comparison(title, False, f"the CPU's results are {shapes[0]}, but the GPU's are {shapes[1]}")
        size = sum(tensor.numel() for tensor in expected)
        if differ := sum(int((mine != its).sum()) for mine, its in zip(found, expected, strict=True)):
            return Comparison(title, False, f"{differ} of {size} values differ from the CPU's")
        count += size
    return Comparison(title, True, f"{count} values are the CPU's")


def run(call: Call, arguments: dict[str, Any]) -> list[torch.Tensor]:
    """Make a call, and return all tensors of its result and then of its arguments."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    moved([call.run(**arguments), *arguments.values()], note)
    return found


def on_gpu(
    given: dict[str, Any], device: torch.device, on_cpu: tuple[str, ...], page_locked: tuple[str, ...]
) -> dict[str, Any]:
    """Return the arguments of a call where it takes them on a GPU."""

    def put(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device)

    there = {}
    for name, value in given.items():
        if name in page_locked:
            there[name] = moved(value, torch.Tensor.pin_memory)
        else:
            there[name] = value if name in on_cpu else moved(value, put)
    return there


def moved(value: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a value with all of its tensors moved, also those inside of tuples and lists."""
    if isinstance(value, torch.Tensor):
        return move(value)
    if isinstance(value, ops.Graph):
        return ops.Graph.unchecked(**{name: moved(own, move) for name, own in given_arrays(value).items()})
    if isinstance(value, CacheSets):
        return CacheSets(move(value.keys), move(value.uses))
    if isinstance(value, (list, tuple)):
        parts = [moved(part, move) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
