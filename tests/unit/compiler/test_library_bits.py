"""Operations give the same bits by the library of kernels, by kernels that are compiled here, and in plain Python."""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.ops.cpu.compiler import build, library
from graphfeed.ops.cpu.compiler.ahead import all_kernels
from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.kernel_load import KernelLoad
from tests.kinds import calls
from tests.stand_ins.scripts import REPOSITORY, run

FOLDER = "KERNELS_OF_TEST"
"""Environment variable with the folder of the library."""
LEFT_OUT = {"pin_in_place", "seed", "set_max_uva_threads"}
"""Calls without kernels, which change the process."""


def parts(value: Any, depth: int = 6) -> Iterator[bytes]:
    """Yield what a value consists of: tensors, arrays and numbers, in containers and objects."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = value.numpy() if isinstance(value, torch.Tensor) else value
        yield f"{array.dtype}{list(array.shape)}".encode() + array.tobytes()
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a library of all kernels."""
    if not library.levels():
        pytest.skip("no libraries are built for this architecture")
    found = build.current_library() or build.build_library(tmp_path_factory.mktemp("library"))
    return found.parent


def measured(**settings: str) -> dict[str, Any]:
    done = run("-m", "tests.unit.compiler.test_library_bits", cwd=REPOSITORY, seconds=600, **settings)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_operations_give_the_same_bits_by_the_library_compiled_and_in_plain_python(folder: Path) -> None:
    by_library = measured(**{FOLDER: str(folder)})
    compiled = measured(GRAPHFEED_KERNELS="compile")
    assert by_library["bits"] == compiled["bits"] == measured(NUMBA_DISABLE_JIT="1")["bits"]
    assert by_library["compiled"] == []
    assert by_library["modules"] == []
    kernels = {kernel.name for kernel, _ in all_kernels()}
    missing = kernels - {name for name, _ in by_library["loaded"]}
    assert len(missing) < len(kernels) / 4, sorted(missing)


if __name__ == "__main__":
    loads: list[KernelLoad] = []
    if given := os.environ.get(FOLDER):
        opened = library.open_library(Path(given))
        library.open_library = lambda: opened  # type: ignore[assignment]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch, watch_kernels(loads.append):
        os.chdir(scratch)
        results = measure()
        os.chdir("/")
    found = {
        "bits": results,
        "loaded": [(load.kernel, load.signature) for load in loads],
        "compiled": [load.kernel for load in loads if load.compiled],
        "modules": sorted({"numba", "llvmlite"} & sys.modules.keys()),
    }
    sys.stdout.write(json.dumps(found))
