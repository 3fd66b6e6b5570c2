"""Checks the requirements of graphfeed for a GPU, and whether kernels compile and run on this machine.

`graphfeed.cuda_check()` returns a report, and the command `graphfeed doctor --cuda` prints it.
"""

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import graphfeed
from graphfeed import ops
from graphfeed.ops.backend import cuda_extra, load_kernels
from graphfeed.ops.memory import SharedMemory
from graphfeed.ops.memory.pinned import DRIVER, reads_locked_memory
from graphfeed.ops.process import install_hint

PINNED_BYTES = 1 << 26
OLDEST = (8, 0)
"""The lowest compute capability for which tests compile the kernels."""


class Finding(NamedTuple):
    """One line of a report."""

    status: str
    """ok, missing or failed; or change if it works, but could be improved."""
    subject: str
    said: str


def gpu_table(findings: Sequence[Finding]) -> list[str]:
    width = max(len(finding.subject) for finding in findings)
    return [f"{status:<8} {subject:<{width}}  {said}" for status, subject, said in findings]


@dataclass(frozen=True)
class CudaReport:
    """Requirements that are met, missing or failed. Print it for a bug report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing and nothing failed."""
        return not any(map(is_wrong, self.findings))

    def __str__(self) -> str:
        counts = [(status, sum(own.status == status for own in self.findings)) for status in ("missing", "failed")]
        wrong = " and ".join(f"{count} {status}" for status, count in counts if count)
        return "\n".join([*gpu_table(self.findings), f"CUDA is {f'not ready: {wrong}' if wrong else 'ready'}"])

    __repr__ = __str__


def is_wrong(finding: Finding) -> bool:
    return finding.status in ("missing", "failed")


def cuda_check() -> CudaReport:
    """Report which requirements of a GPU this machine meets; if there is a GPU, compile the kernels and run one on it.

    The first call on a GPU takes a minute to compile the kernels, later calls take seconds. Errors are not raised, but
    are part of the report. `graphfeed doctor --cuda` prints it, and exits with 1 if something is missing or failed.
    To test that all kernels give the results of the CPU, run `pytest -m gpu tests` in a clone of the repository.

    Example:
        >>> cuda_check().findings[0].subject  # graphfeed.cuda_check()
        'graphfeed'
    """
    return report_of(list(look_around()))


def report_of(findings: Sequence[Finding], device: torch.device | None = None) -> CudaReport:
    """Return a report of findings and, if nothing is wrong, of kernels on a device, by default the current one."""
    wrong = [finding.subject for finding in findings if is_wrong(finding)]
    if wrong:
        more = [Finding("missing", "kernels", f"were not run because of: {', '.join(wrong)}")]
    else:
        more = list(report_device(device or torch.device("cuda", torch.cuda.current_device())))
    return CudaReport((*findings, *more))


def look_around() -> Iterator[Finding]:
    """Find the installed software and devices, without using a GPU."""
    versions = f"{graphfeed.__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield Finding("ok", "graphfeed", versions)
    yield find_driver()
    yield from find_device()
    yield from find_cupy()
    yield find_headers(header_folders())
    if not reads_locked_memory():
        said = (
            "a GPU can't read it at the CPU's addresses, so pin_memory_() raises; copy graphs and features to the GPU"
        )
        yield Finding("change", "pinned memory", said)
    yield find_limit()


def find_driver() -> Finding:
    version = ctypes.c_int()
    try:
        ctypes.CDLL(DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return Finding("missing", "driver", f"{DRIVER} is not found; install NVIDIA's driver")
    # The version is 12040 for CUDA 12.4.
    return Finding("ok", "driver", f"supports CUDA up to {version.value // 1000}.{version.value % 1000 // 10}")


def find_device(cuda: Any = torch.cuda, built: str | None = torch.version.cuda) -> Iterator[Finding]:
    """Find the GPUs that torch can use."""
    if built is None:
        yield Finding("missing", "torch", f"{torch.__version__} is built without CUDA; install a build with CUDA")
    else:
        yield Finding("ok", "torch", f"{torch.__version__}, built for CUDA {built}")
    if not cuda.is_available():
        yield Finding("missing", "GPU", "torch finds no CUDA device")
        return
    for index in range(cuda.device_count()):
        try:
            own = cuda.get_device_properties(index)
        except RuntimeError as error:
            yield Finding("failed", "GPU", f"cuda:{index}: {error}")
            continue
        said = f"cuda:{index} is {own.name}, sm_{own.major}{own.minor}, {own.total_memory >> 20} MiB"
        older = (own.major, own.minor) < OLDEST
        yield Finding("ok", "GPU", f"{said}; the kernels are tested for sm_80 and later" if older else said)


def find_cupy(
    load: Callable[..., Any] = load_kernels, cuda: Any = torch.cuda, versions: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Find CuPy, and the compiler that it loads. `versions` are those of the installed packages with CuPy."""
    if versions is None:
        versions = {name: version(name) for name in packages_distributions().get("cupy", ())}
    names, remedy = sorted(versions), install_hint(cuda_extra())
    # CuPy's packages share a folder, so one for another CUDA version must be removed before the right one is installed.
    if set(names) - {f"cupy-{cuda_extra()}x"}:
        remedy = f"pip uninstall {' '.join(names)}, then {remedy}"
    try:
        launch = load("cuda", "launch")
    except ImportError as error:
        # CuPy may be installed, but not one of its dependencies.
        reason = "is not installed" if find_spec("cupy") is None else f"can't be imported: {error.__cause__ or error}"
        yield Finding("missing", "CuPy", f"{reason}; {remedy}")
        yield Finding("missing", "NVRTC", "can't be found without CuPy, which loads it")
        return
    except OSError as error:  # CuPy creates the folder for its code when it is imported
        yield Finding("failed", "CuPy", f"{error}; set CUPY_CACHE_DIR to a writable folder")
        return
    said = ", ".join(f"{name} {versions[name]}" for name in names)
    if cuda.is_available() and not launch.finds_device():
        yield Finding("missing", "CuPy", f"{said} finds no CUDA device; {remedy}")
    elif len(names) > 1:
        yield Finding("failed", "CuPy", f"{said} share a folder and break each other; {remedy}")
    else:
        yield Finding("ok", "CuPy", said)
    try:
        yield Finding("ok", "NVRTC", launch.compiler_version())
    except Exception as error:
        yield Finding("missing", "NVRTC", f"{error}; {remedy}")


def header_folders() -> list[Path]:
    """Return the folders that may have CUDA's headers."""
    places = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX") if name in os.environ]
    folders = [folder for place in places for folder in (place / "include", *place.glob("targets/*/include"))]
    folders.append(Path("/usr/local/cuda/include"))
    spec = find_spec("nvidia")
    for place in [] if spec is None else list(spec.submodule_search_locations or []):
        folders += sorted(Path(place).glob("*/include"))
    return folders


def find_headers(folders: Sequence[Path]) -> Finding:
    """Find CUDA's headers, which CuPy needs to compile, although it may find them elsewhere."""
    found = [folder for folder in folders if (folder / "cuda_runtime.h").exists()]
    if not found:
        return Finding(
            "change", "headers", f"cuda_runtime.h is not found; if CuPy needs it, {install_hint(cuda_extra())}"
        )
    return Finding("ok", "headers", f"in {found[0]}")


def find_limit() -> Finding:
    """Check the limit of page-locked memory."""
    with suppress(ImportError):  # not on Windows
        import resource  # noqa: PLC0415

        soft, hard = (
            "no limit" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
            for limit in resource.getrlimit(resource.RLIMIT_MEMLOCK)
        )
        return Finding("ok", "locked memory", f"RLIMIT_MEMLOCK is {soft} (ulimit -l), and at most {hard}")
    return Finding("ok", "locked memory", "has no RLIMIT_MEMLOCK on this system")


def report_device(device: torch.device) -> Iterator[Finding]:
    yield check_compiler(device)
    yield report_gpu_memory(device)


def check_compiler(device: torch.device) -> Finding:
    start = time.perf_counter()
    try:
        launch: Any = load_kernels("cuda", "launch")
        with torch.cuda.device(device):
            for kernel in launch.file_of_kernel():
                launch.function_of(device.index or 0, kernel)
    except Exception as error:
        return Finding("failed", "compiler", f"{type(error).__name__}: {error}")
    return Finding("ok", "compiler", f"all kernels in {time.perf_counter() - start:.1f} s")


def report_gpu_memory(device: torch.device) -> Finding:
    """Page-lock memory in place, and read it in a kernel."""
    memory = np.asarray(SharedMemory.create(PINNED_BYTES))  # does not share pages with other memory
    values = torch.from_numpy(memory).view(torch.int64).reshape(-1, 8)
    torch.arange(values.numel(), out=values.view(-1), device="cpu")
    index = torch.arange(0, len(values), 1001, device="cpu")

    class Owner:
        """Keeps the lock until the check has ended."""

    owner = Owner()
    try:
        ops.pin_in_place(values, owner)
        same = torch.equal(ops.gather_rows(values, index.to(device)).cpu(), values[index])
    except Exception as error:
        return Finding("failed", "locked memory", f"{type(error).__name__}: {error}")
    said = f"{PINNED_BYTES >> 20} MiB were locked in place; a kernel read {'them' if same else 'other values'}"
    return Finding("ok" if same else "failed", "locked memory", said)
