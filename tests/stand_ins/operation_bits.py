"""A program that prints digests of the results of all operations, and where their kernels came from."""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.memory import as_bytes
from tests.kinds import calls

LEFT_OUT = {"pin_in_place", "seed", "set_max_uva_threads"}
"""Calls without kernels, which change the process."""


def parts(value: Any, depth: int = 6) -> Iterator[bytes]:
    """Yield what a value consists of: tensors, arrays and numbers, in containers and objects."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = as_bytes(value) if isinstance(value, torch.Tensor) else value
        yield f"{value.dtype}{list(value.shape)}".encode() + array.tobytes()
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from parts(part, depth - 1)
    elif isinstance(value, dict):
        for name, part in sorted(value.items(), key=lambda item: str(item[0])):
            yield str(name).encode()
            yield from parts(part, depth - 1)
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield repr(value).encode()
    elif depth and hasattr(value, "__dict__"):
        yield from parts(vars(value), depth - 1)


def narrow(value: Any) -> Any:
    """Convert ids of 64 bits to 32."""
    return value.to(torch.int32) if isinstance(value, torch.Tensor) and value.dtype == torch.int64 else value


def measure() -> dict[str, str]:
    """Return a digest of the results of each call of an operation, with ids of 64 and of 32 bits, or its error."""
    found = {}
    for name, call in calls.calls().items():
        if name.split()[0] in LEFT_OUT:
            continue
        for number, change in enumerate(call.changes):
            given = {**call.arguments, **change}
            for bits, arguments in ((64, given), (32, {key: narrow(value) for key, value in given.items()})):
                try:
                    content = b"".join(parts([call.run(**arguments), arguments]))
                except (TypeError, ValueError) as error:
                    content = type(error).__name__.encode()
                found[f"{name}/{number}/{bits}"] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    loads: list[KernelLoad] = []
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch, watch_kernels(loads.append):
        os.chdir(scratch)
        results = measure()
        os.chdir("/")
    report = {
        "bits": results,
        "kernels": sorted({load.kernel for load in loads}),
        "compiled": [load.kernel for load in loads if load.compiled],
        "modules": sorted({"numba", "llvmlite"} & sys.modules.keys()),
    }
    sys.stdout.write(json.dumps(report))
