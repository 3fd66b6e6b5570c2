"""Checks this machine: cores, memory, limits, versions, kernels and GPUs; prints recommended changes.

This is the command `graphfeed doctor`.
"""

import argparse
import importlib.metadata
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphfeed
from graphfeed import ops
from graphfeed.cuda_report import Finding, cuda_check, find_driver, gpu_table, is_wrong, look_around
from graphfeed.loader import bytes_text
from graphfeed.loader.executors import available_cores, cpu_quotas
from graphfeed.ops.memory import SharedMemory, populate
from graphfeed.storage.memory import available_memory, memory_limit

NEWEST_NUMBA = "0.68.1"
"""Newest release of Numba with which all tests were run."""
NEEDED = ("torch", "numpy", "numba", "torchdata", "pyyaml", "tqdm")
EXTRAS = ("cloudpickle", "cupy-cuda12x", "cupy-cuda13x", "pyarrow", "pymetis", "prometheus-client", "torch-geometric")
SHOWN = 3
"""Number of names in a list that may be long."""
PROBED = 1 << 22
"""Size of a few huge pages."""
SMALL = 1 << 30
"""Less memory than this is reported."""
DESCRIPTORS = 1024
"""The usual limit. Each large array in shared memory uses a descriptor, and each worker process several."""


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cuda",
        action="store_true",
        help="also compile the CUDA kernels, and run one; fail without a GPU",
    )


def run_doctor(options: Any) -> None:
    findings = [*look_at_machine(Machine()), *look_at_gpus(options.cuda)]
    sys.stdout.write("\n".join(gpu_table(findings)) + "\n")
    wrong = [finding.subject for finding in findings if is_wrong(finding)]
    # The command then exits with 1.
    if wrong:
        raise ValueError(f"this will fail: {', '.join(dict.fromkeys(wrong))}")


@dataclass(frozen=True)
class Machine:
    """Properties of a machine on which the advice depends. The defaults are those of this machine."""

    versions: Mapping[str, str] = field(default_factory=lambda: find_versions((*NEEDED, *EXTRAS)))
    """The versions of the installed packages."""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    usable_cores: float = field(default_factory=lambda: min([available_cores(), *cpu_quotas()]))
    threads: int = field(default_factory=torch.get_num_threads)
    """Threads that torch computes with."""
    memory: tuple[float, float] = field(default_factory=lambda: (available_memory(), memory_limit()))
    """Bytes that are available, and that this process may use in total."""
    shared_folder: Path = Path("/dev/shm")
    shared_bytes: int | None = None
    """Free bytes for graphs that are shared by name. None: query the system."""
    huge_pages: bool | None = None
    """Whether shared memory is on huge pages. None: allocate some."""
    descriptors: tuple[int, int] | None = field(default_factory=lambda: find_descriptors())
    """Files that this process may open, and that it may raise this to; -1: no limit. None: the system has none."""
    code_folders: tuple[Sequence[Path], Path | None] = field(
        default_factory=lambda: ops.load_kernels("cpu", "compiler.folders").folders()
    )
    """Folders from which kernels are loaded, and the one where they are saved, if any is writable."""
    library: tuple[str, Sequence[str]] = field(default_factory=lambda: look_at_library())
    """Why no kernel comes from the library of this installation, if none does, and the kernels that it lacks."""

    @property
    def has_all_kernels(self) -> bool:
        return not any(self.library)


def find_versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def find_descriptors() -> tuple[int, int] | None:
    try:
        import resource  # noqa: PLC0415
    except ImportError:
        return None
    soft, hard = (-1 if own == resource.RLIM_INFINITY else own for own in resource.getrlimit(resource.RLIMIT_NOFILE))
    return soft, hard


def look_at_library() -> tuple[str, Sequence[str]]:
    library = ops.load_kernels("cpu", "compiler.library")
    if library.is_ignored():
        return "is ignored, because GRAPHFEED_KERNELS=compile is set", ()
    opened = library.open_library()
    if opened.code is None:
        return opened.reason, ()
    found = ops.load_kernels("cpu", "compiler.build").all_kernels()
    name = ops.load_kernels("cpu", "compiler.store").function_name
    return "", sorted({kernel.name for kernel, dtypes in found if library.find_function(name(kernel, dtypes)) is None})


def look_at_machine(machine: Machine) -> Iterator[Finding]:
    yield check_versions(machine)
    yield check_cores(machine)
    yield report_memory(machine)
    yield check_shared_memory(machine)
    yield check_huge_pages(machine)
    yield check_descriptors(machine)
    yield check_kernels()
    yield check_library(machine)
    yield check_machine_code(machine)


def check_versions(machine: Machine) -> Finding:
    """Name the required packages that are missing, or all that are installed."""
    needed = [name for name in NEEDED if name != "numba" or not machine.has_all_kernels]
    missing = [name for name in needed if name not in machine.versions]
    if missing:
        return Finding("missing", "packages", f"pip install {' '.join(missing)}")
    found = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    said = f"graphfeed {graphfeed.__version__}, Python {platform.python_version()}, {found}"
    return Finding("ok", "packages", f"{said}; the newest tested Numba is {NEWEST_NUMBA}")


def check_cores(machine: Machine) -> Finding:
    """Compare torch's number of threads with the cores that this process may use."""
    said, most = f"{machine.usable_cores:g} of {machine.cores} may be used", math.ceil(machine.usable_cores)
    if machine.threads > most:
        said += f", but torch computes with {machine.threads} threads; set OMP_NUM_THREADS={most}"
        return Finding("change", "cores", said)
    return Finding("ok", "cores", said)


def report_memory(machine: Machine) -> Finding:
    left, limit = machine.memory
    if math.isinf(left):
        return Finding("ok", "memory", "the system does not report its size")
    said = f"{bytes_text(left)} of {bytes_text(limit)} are available"
    if left < SMALL:
        return Finding("change", "memory", f"{said}; use worker threads, which share memory, rather than processes")
    return Finding("ok", "memory", said)


def check_shared_memory(machine: Machine) -> Finding:
    """Check the space for graphs that are shared by name; other shared memory has no file."""
    folder = machine.shared_folder
    if not folder.is_dir():
        return Finding("ok", "/dev/shm", "does not exist; graphs shared by name are stored in the temporary folder")
    if not os.access(folder, os.W_OK):
        return Finding("failed", "/dev/shm", "is not writable, so graphs can't be shared by name")
    free = shutil.disk_usage(folder).free if machine.shared_bytes is None else machine.shared_bytes
    said = f"{bytes_text(free)} are free"
    if free < SMALL:
        said += " for graphs shared by name; a container can have more (--shm-size)"
        return Finding("change", "/dev/shm", said)
    return Finding("ok", "/dev/shm", said)


def check_huge_pages(machine: Machine) -> Finding:
    """Allocate huge pages in the same way as graphs and features in shared memory."""
    worked = machine.huge_pages
    try:
        worked = populate(np.asarray(SharedMemory.create(PROBED))) if worked is None else worked
    except OSError as error:
        return Finding("failed", "shared memory", f"can't be created: {error}")
    if worked:
        return Finding("ok", "huge pages", "are used by shared memory")
    return Finding(
        "change", "huge pages", "shared memory has none, which makes random reads slower; they need Linux 6.1 or later"
    )


def check_descriptors(machine: Machine) -> Finding:
    """Check the limit of open files."""
    if machine.descriptors is None:
        return Finding("ok", "descriptors", "have no limit on this system")
    soft, hard = machine.descriptors
    if 0 <= soft < DESCRIPTORS:
        return Finding(
            "change", "descriptors", f"at most {soft}, too few to share many arrays; raise it to {hard} by ulimit -n"
        )
    return Finding("ok", "descriptors", "no limit" if soft < 0 else f"at most {soft}")


def check_kernels(run: Callable[[list[torch.Tensor]], Any] = ops.unique_and_compact) -> Finding:
    """Run a kernel, which compiles it if it is not on disk."""
    start = time.perf_counter()
    try:
        # Few ids would be relabelled without a kernel.
        given = torch.arange(1 << 10, device="cpu")
        ids = run([torch.cat([given, given])])[0]
        said = f"one ran, in {time.perf_counter() - start:.1f} s"
        return Finding("ok" if torch.equal(ids, given) else "failed", "kernels", said)
    except Exception as error:
        return Finding("failed", "kernels", f"{type(error).__name__}: {error}")


def check_library(machine: Machine) -> Finding:
    """Name the kernels that don't come compiled with the installation."""
    reason, missing = machine.library
    if reason:
        return Finding("change" if "install graphfeed again" in reason else "ok", "library", reason)
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        said = f"was built from other sources, so these are compiled: {', '.join(missing[:SHOWN])}{more}"
        return Finding("ok", "library", said)
    return Finding("ok", "library", "has all kernels, so none is compiled")


def check_machine_code(machine: Machine) -> Finding:
    readable, writable = machine.code_folders
    count = len({path.name for folder in readable for path in folder.glob("*.code")})
    said = f"{count} kernels are on disk"
    if writable is None and not machine.has_all_kernels:
        more = "no folder is writable, so each process compiles the others; set GRAPHFEED_CACHE_DIR"
        return Finding("change", "machine code", f"{said}, but {more}")
    return Finding("ok", "machine code", f"{said}; new ones are saved in {writable or 'no folder'}")


def look_at_gpus(with_kernels: bool, has_driver: bool | None = None) -> Iterator[Finding]:
    """Check the requirements of GPUs if torch can use one, or if `with_kernels`, which also runs a kernel."""
    if with_kernels:
        yield from cuda_check().findings
    elif torch.cuda.is_available():
        yield from look_around()
    elif has_driver or (has_driver is None and find_driver().status == "ok"):
        yield Finding(
            "change", "GPU", f"there is a driver, but torch {torch.__version__} can't use a GPU; `--cuda` shows why"
        )
    else:
        yield Finding("ok", "GPU", "there is none, so everything runs on the CPU")
