"""A program that calls operations with whatever arguments there are, and ends by a signal if one reaches too far.

`python -m tests.ops.attack NAMES EXAMPLES FILE` writes each call to the file before it makes it. With
NUMBA_DISABLE_JIT=1 the kernels are plain Python, and the program also finds each index that lies outside of its array.
"""

import faulthandler
import json
import resource
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfeed.ops.cpu import jit
from graphfeed.ops.cpu.compiler import kernel as kernel_module
from tests.ops.calls import calls

LIMITS = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**32, 2**58 + 1, 2**62, 2**63 - 1]
NUMBERS = [*LIMITS, -(2**64), 2**63, 2**64, 1.5, float("nan"), None, "2", True]
DTYPES = [
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64,
]  # fmt: skip
MEMORY_BYTES = 3 << 30
"""Enough for the valid calls; more would only be filled with zeros, which takes minutes."""
KERNELS = str(Path(jit.__file__).parent)
COMPILER = str(Path(kernel_module.__file__).parent)


class Bounded(np.ndarray):
    """An array whose negative indexes don't count from the end: in machine code they lie in front of it."""

    def check(self, where: Any) -> None:
        """Raise if a number is negative."""
        for part in where if isinstance(where, tuple) else (where,):
            if isinstance(part, (int, np.integer)) and part < 0:
                raise IndexError(f"{part} lies in front of an array")

    def __getitem__(self, where: Any) -> Any:
        self.check(where)
        return super().__getitem__(where)

    def __setitem__(self, where: Any, value: Any) -> None:
        self.check(where)
        super().__setitem__(where, value)


def bound(argument: Any) -> Any:
    """Return the arrays of a kernel's argument as `Bounded`."""
    if isinstance(argument, np.ndarray):
        return argument.view(Bounded)
    if isinstance(argument, tuple):
        parts = [bound(part) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument


def in_bounds(value: Any, kind: Any) -> Any:
    """Return an argument of a kernel that runs as Python, with bounds."""
    return bound(as_python(value, kind))


as_python = kernel_module.as_python
kernel_module.as_python = in_bounds


@st.composite
def other_tensors(draw: st.DrawFn, tensor: torch.Tensor) -> Any:
    """Return a tensor with other values, of another length, dtype, shape or stride."""
    how = draw(st.sampled_from(["value", "value", "value", "cut", "grow", "empty", "dtype", "stride", "shape", "none"]))
    if how == "value" and tensor.numel():
        other = tensor.clone()
        flat = other.view(-1)
        for _ in range(draw(st.integers(1, 2))):
            position = draw(st.integers(0, flat.numel() - 1))
            near = int(flat[position]) + draw(st.sampled_from([-1, 1, 7]))
            value = draw(st.sampled_from([near, *LIMITS]))
            if other.dtype == torch.bool:
                flat[position] = not flat[position]
            elif other.is_floating_point():
                flat[position] = float(value)
            else:
                low, high = torch.iinfo(other.dtype).min, torch.iinfo(other.dtype).max
                flat[position] = min(max(value, low), high)
        return other
    if how == "cut":
        return tensor[draw(st.integers(0, 1)) : draw(st.integers(0, max(tensor.shape[0], 1)))]
    if how == "grow":
        return torch.cat([tensor, tensor[-1:] if draw(st.booleans()) else tensor])
    if how == "empty":
        return tensor[:0]
    if how == "dtype":
        return tensor.to(draw(st.sampled_from(DTYPES)))
    if how == "stride":
        repeated = torch.stack([tensor, tensor], dim=-1)
        return draw(st.sampled_from([repeated[..., 0], tensor[:1].expand(tensor.shape), tensor.flip(0)[::2]]))
    if how == "shape":
        return draw(st.sampled_from([tensor.view(1, *tensor.shape), tensor.sum(), tensor.unsqueeze(-1)]))
    return draw(st.sampled_from([None, tensor.tolist(), tensor.numpy()]))


@st.composite
def others(draw: st.DrawFn, value: Any) -> Any:
    """Return something else in the place of an argument."""
    if isinstance(value, torch.Tensor):
        return draw(other_tensors(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name = draw(st.sampled_from(value._fields))
        return value._replace(**{name: draw(others(getattr(value, name)))})  # type: ignore[attr-defined]
    if hasattr(value, "keys") and hasattr(value, "uses"):
        return type(value)(draw(others(value.keys)), value.uses if draw(st.booleans()) else draw(others(value.uses)))
    if isinstance(value, (list, tuple)):
        parts = list(value)
        position = draw(st.integers(0, len(parts) - 1))
        parts[position : position + draw(st.integers(0, 1))] = [draw(others(parts[position]))]
        return draw(st.sampled_from([parts, parts[:-1], tuple(parts)]))
    if isinstance(value, bool) and draw(st.booleans()):
        return not value
    if isinstance(value, str):
        return draw(st.sampled_from(["lru", "clock", "s3-fifo", "", None, 3]))
    return draw(st.sampled_from(NUMBERS))


@st.composite
def arguments(draw: st.DrawFn, valid: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a valid call with one to three of them replaced."""
    names = draw(st.lists(st.sampled_from(sorted(valid)), min_size=1, max_size=3, unique=True))
    return {**valid, **{name: draw(others(valid[name])) for name in names}}


def is_of_a_kernel(error: BaseException) -> bool:
    """Tell whether a kernel itself raised: it read or wrote outside of an array."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return (last.startswith(KERNELS) and not last.startswith(COMPILER)) or last == __file__


def attack(name: str, examples: int, record: Path) -> None:
    """Call an operation many times; whatever it raises is fine, unless a kernel raises it."""
    call = calls()[name]

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(arguments(call.arguments))
    def run(given: dict[str, Any]) -> None:
        record.write_text(f"{name}: {given}")
        copies = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        try:
            call.run(**copies)
        except Exception as error:
            if jit.INTERPRETED and is_of_a_kernel(error):
                raise

    run()


if __name__ == "__main__":
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for attacked in json.loads(sys.argv[1]):
        attack(attacked, int(sys.argv[2]), Path(sys.argv[3]))
