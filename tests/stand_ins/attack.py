"""Calls operations with whatever arguments there are: each result or error must be of use, and no kernel reach too far.

As a program, `python -m tests.stand_ins.attack NAMES EXAMPLES FILE` prints what is wrong. With NUMBA_DISABLE_JIT=1 the
kernels are plain Python, and each index is found that lies outside of its array.
"""

import faulthandler
import json
import re
import resource
import sys
import traceback
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from graphfeed.ops.cpu import jit
from graphfeed.ops.cpu.compiler import kernel as kernel_module
from tests.kinds.calls import calls
from tests.kinds.refusals import MOST_LETTERS

LIMITS = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**32, 2**58 + 1, 2**62, 2**63 - 1]
NUMBERS = [*LIMITS, -(2**64), 2**63, 2**64, 1.5, float("nan"), None, "2", True]
DTYPES = [
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64,
]  # fmt: skip
MEMORY_BYTES = 1 << 30
"""Enough for the valid calls; more would only be filled with zeros, which takes minutes."""
KNOWN_AS = {"types": "type_per_edge", "count": "max_uva_threads", "indptr": "csc_indptr"}
"""Public names of arguments, which errors use."""
NO_MEMORY = "can't allocate memory"
"""Torch's message instead of a MemoryError. Neither names the argument that caused it."""
FILE_ENDS = (OSError, EOFError)
MISSING: dict[str, tuple[type[Exception], ...]] = {
    "pin_in_place": (RuntimeError,), "read_blocks": FILE_ENDS, "read_bytes": FILE_ENDS, "read_rows": FILE_ENDS,
}  # fmt: skip
"""Errors that name no argument: there is no GPU, or a file ends."""
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


as_python = kernel_module.as_python


@st.composite
def other_tensors(draw: st.DrawFn, tensor: torch.Tensor) -> Any:
    """Return a tensor with other values, of another length, dtype, shape or stride."""
    how = draw(st.sampled_from(["value", "value", "value", "cut", "grow", "empty", "dtype", "stride", "shape", "none"]))
    if how == "value" and tensor.numel():
        other = tensor.clone()
        flat = other.view(-1)
        for _ in range(draw(st.integers(1, 2))):
            position = draw(st.integers(0, flat.numel() - 1))
            # A limit that was drawn before may be infinity in float16.
            near = int(flat[position].nan_to_num()) + draw(st.sampled_from([-1, 1, 7]))
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
    """Return another value for an argument."""
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
    """Return whether a kernel itself raised: it read or wrote outside of an array."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return (last.startswith(KERNELS) and not last.startswith(COMPILER)) or last == __file__


def names_in(values: Any) -> set[str]:
    """Return the names of the fields of all named tuples and dataclasses in the arguments of a call."""
    found = set()
    names = getattr(values, "_fields", ()) or getattr(values, "__dataclass_fields__", ())
    for name in names:
        found |= {name} | names_in(getattr(values, name))
    if isinstance(values, (list, tuple)) and not names:
        found = found.union(*map(names_in, values))
    return found


def words_for(arguments: Mapping[str, Any]) -> set[str]:
    """Return the words of which an error must have one: an argument, a field of one, or what all people call it."""
    names = set(arguments).union(*map(names_in, arguments.values()))
    single = {name.removesuffix("s") for name in names}
    return names | single | {known for name, known in KNOWN_AS.items() if name in names}


def fault_of(name: str, words: Set[str], error: Exception) -> str | None:
    """Say what is wrong with an error: its kind, that it names no argument, or that it is long."""
    text = str(error)
    if jit.INTERPRETED and is_of_a_kernel(error):
        return "a kernel reached outside of an array"
    if isinstance(error, MemoryError) or NO_MEMORY in text or isinstance(error, MISSING.get(name, ())):
        return None
    if not isinstance(error, (TypeError, ValueError, IndexError, KeyError)):
        return "an error of another kind"
    if not words & set(re.findall(r"\w+", text)):
        return "no argument is named"
    return f"{len(text)} characters" if len(text) > MOST_LETTERS else None


def attack(name: str, examples: int, record: Path) -> list[str]:
    """Call an operation many times; return what is wrong with its errors.

    Each call is written to a file before it is made: it may end the process.
    """
    call, found = calls()[name], dict[str, str]()
    words = words_for(call.arguments)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(arguments(call.arguments))
    def run(given: dict[str, Any]) -> None:
        record.write_text(f"{name}: {given}")
        copies = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        try:
            call.run(**copies)
        except Exception as error:
            if fault := fault_of(name, words, error):
                changed = {key: value for key, value in given.items() if value is not call.arguments[key]}
                where = "\n".join(traceback.format_tb(error.__traceback__)[-2:])
                found.setdefault(fault, f"{name}: {fault}: {error!r}\n{where}with {changed}")

    run()
    return list(found.values())


def attack_all(names: Sequence[str], examples: int, record: Path) -> list[str]:
    """Attack operations in a process that is there for it, each with little memory; return what is wrong."""
    faulthandler.enable()
    torch.set_num_threads(1)
    found = []
    for name in names:
        # Of each operation, because threads and programs that earlier ones leave have memory, too.
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        found += attack(name, examples, record)
    return found


if __name__ == "__main__":
    kernel_module.as_python = lambda value, kind: bound(as_python(value, kind))
    sys.stdout.write("\n".join(attack_all(json.loads(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
