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
from collections.abc import Iterator
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

ROOT = Path("/")
NEWEST_NUMBA = "0.68.1"
"""Newest release of Numba with which all tests were run."""
NEEDED = ("torch", "numpy", "numba", "torchdata", "pyyaml", "tqdm")
EXTRAS = ("cloudpickle", "cupy-cuda12x", "cupy-cuda13x", "pyarrow", "pymetis", "prometheus-client", "torch-geometric")
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
    findings = [*look_at_machine(), *look_at_gpus(options.cuda)]
    sys.stdout.write("\n".join(gpu_table(findings)) + "\n")
    wrong = [finding.subject for finding in findings if is_wrong(finding)]
    # The command then exits with 1.
    if wrong:
        raise ValueError(f"this will fail: {', '.join(dict.fromkeys(wrong))}")


def look_at_machine() -> Iterator[Finding]:
    yield check_versions()
    yield check_cores()
    yield report_memory()
    yield check_shared_memory()
    yield check_huge_pages()
    yield check_descriptors()
    yield check_kernels()
    yield check_machine_code()


def check_versions() -> Finding:
    """Find the required packages, and the optional packages that are installed."""
    found, missing = [], []
    for name in (*NEEDED, *EXTRAS):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    needed = [name for name in NEEDED if name in missing]
    said = (
        f"graphfeed {graphfeed.__version__}, Python {platform.python_version()}, {', '.join(found)}; "
        f"the newest tested Numba is {NEWEST_NUMBA}"
    )
    return (
        Finding("missing", "packages", f"pip install {' '.join(needed)}") if needed else Finding("ok", "packages", said)
    )


def check_cores() -> Finding:
    """Compare torch's number of threads with the cores that this process may use."""
    there = os.cpu_count() or 1
    cores = min([available_cores(), *cpu_quotas()])
    said = f"{cores:g} of {there} may be used"
    threads = torch.get_num_threads()
    if threads > math.ceil(cores):
        return Finding(
            "change",
            "cores",
            f"{said}, but torch computes with {threads} threads; set OMP_NUM_THREADS={math.ceil(cores)}",
        )
    return Finding("ok", "cores", said)


def report_memory() -> Finding:
    left, limit = available_memory(), memory_limit()
    if math.isinf(left):
        return Finding("ok", "memory", "the system does not report its size")
    said = f"{bytes_text(left)} of {bytes_text(limit)} are available"
    if left < SMALL:
        return Finding("change", "memory", f"{said}; use worker threads, which share memory, rather than processes")
    return Finding("ok", "memory", said)


def check_shared_memory() -> Finding:
    """Check the space for graphs that are shared by name; other shared memory has no file."""
    folder = ROOT / "dev/shm"
    if not folder.is_dir():
        return Finding("ok", "/dev/shm", "does not exist; graphs shared by name are stored in the temporary folder")
    if not os.access(folder, os.W_OK):
        return Finding("failed", "/dev/shm", "is not writable, so graphs can't be shared by name")
    free = shutil.disk_usage(folder).free
    if free < SMALL:
        return Finding(
            "change",
            "/dev/shm",
            f"{bytes_text(free)} are free for graphs shared by name; a container can have more (--shm-size)",
        )
    return Finding("ok", "/dev/shm", f"{bytes_text(free)} are free")


def check_huge_pages() -> Finding:
    """Allocate huge pages in the same way as graphs and features in shared memory."""
    try:
        worked = populate(np.asarray(SharedMemory.create(PROBED)))
    except OSError as error:
        return Finding("failed", "shared memory", f"can't be created: {error}")
    if worked:
        return Finding("ok", "huge pages", "are used by shared memory")
    return Finding(
        "change", "huge pages", "shared memory has none, which makes random reads slower; they need Linux 6.1 or later"
    )


def check_descriptors() -> Finding:
    """Check the limit of open files."""
    try:
        import resource  # noqa: PLC0415
    except ImportError:
        return Finding("ok", "descriptors", "have no limit on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        return Finding(
            "change", "descriptors", f"at most {soft}, too few to share many arrays; raise it to {hard} by ulimit -n"
        )
    return Finding("ok", "descriptors", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def check_kernels() -> Finding:
    """Run a kernel, which compiles it if it is not on disk."""
    start = time.perf_counter()
    try:
        ids = ops.unique_and_compact([torch.tensor([7, 7, 3], device="cpu")])[0]
        said = f"one ran, in {time.perf_counter() - start:.1f} s"
        return Finding("ok" if ids.tolist() == [7, 3] else "failed", "kernels", said)
    except Exception as error:
        return Finding("failed", "kernels", f"{type(error).__name__}: {error}")


def check_machine_code() -> Finding:
    readable, writable = ops.load_kernels("cpu", "compiler.folders").folders()
    count = sum(1 for folder in readable for _ in folder.glob("*.code"))
    said = f"{count} kernels are on disk"
    if writable is None:
        more = "no folder is writable, so each process compiles the others; set GRAPHFEED_CACHE_DIR"
        return Finding("change", "machine code", f"{said}, but {more}")
    return Finding("ok", "machine code", f"{said}, in {writable}")


def look_at_gpus(with_kernels: bool) -> Iterator[Finding]:
    """Check the requirements of GPUs if torch can use one, or if `with_kernels`, which also runs a kernel."""
    if with_kernels:
        yield from cuda_check().findings
    elif torch.cuda.is_available():
        yield from look_around()
    elif find_driver().status == "ok":
        yield Finding(
            "change", "GPU", f"there is a driver, but torch {torch.__version__} can't use a GPU; `--cuda` shows why"
        )
    else:
        yield Finding("ok", "GPU", "there is none, so everything runs on the CPU")
