"""The CPU's time for a mini-batch on a GPU, without a GPU: `python -m benchmarks.gpu_host_time gpu-gpu`.

The real PyTorch runs on `tests/stand_ins/null_cuda.c`, a CUDA that does nothing, and calls are counted. This needs
Linux on x86-64, gcc with binutils, and 2 GB of disk for PyTorch without the libraries of CUDA that it is linked with,
which are replaced by empty ones. CuPy is not needed::

    python -m venv venv
    venv/bin/pip install --no-deps torch torchdata "nvidia-cuda-runtime==13.*" "nvidia-cuda-crt==13.*"
    venv/bin/pip install numba tqdm pyyaml typing-extensions filelock fsspec jinja2 networkx sympy setuptools requests
    venv/bin/python -m benchmarks.gpu_host_time gpu-gpu

The time of the driver is missing: add 2 to 5 us for each launch, copy, event and wait. Compare commits on one machine,
in turn: counts are exact, and times depend on the machine. Releases of the GIL are those of compiled modules, and 0 if
Python has no shared library.
"""

import argparse
import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "tests" / "stand_ins" / "null_cuda.c"
CASES = {"gpu-gpu": "gpu", "pinned-pinned": "pinned", "typed-gpu-gpu": "gpu", "typed-pinned-pinned": "pinned"}
"""Where the graph and the features lie; with types, edges have weights."""
COUNTS = ("launches by torch", "launches", "copies", "events", "events asked", "stream waits", "waits", "GIL releases")
NODES, SIZES, WARM_UP, COUNTED, ROUNDS = 500_000, 2, 50, 100, 5
NEEDED = re.compile(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl)[^\]]+)\]")
DRIVER, OTHERS, UNVERSIONED = re.compile("cu[A-Z]"), re.compile(r"cu[a-zF]|p?nccl|nvshmem"), "any"
"""Names of functions of the driver, and of other libraries of CUDA."""


def output_of(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def build(folder: Path) -> list[Path]:
    """Compile the CUDA that does nothing, and empty libraries for those that PyTorch lacks; return their paths."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    packages = Path(found.origin).parents[1]
    runtime = next(packages.glob("nvidia/*/lib/libcudart.so.*")).name
    include = next(packages.glob("nvidia/*/include/driver_types.h")).parent
    needed, wanted = {runtime}, defaultdict[str, set[str]](set)
    for file in packages.glob("torch/lib/*.so"):
        needed.update(NEEDED.findall(output_of("readelf", "-d", file)))
        for line in output_of("nm", "-D", "--undefined-only", file).splitlines():
            name, _, version = line.split()[-1].partition("@")
            # Functions of the driver, and of some libraries, have no version.
            unversioned = runtime if DRIVER.match(name) else UNVERSIONED if OTHERS.match(name) else ""
            wanted[version.strip("@") or unversioned].add(name)
    there = {file.name for file in packages.glob("nvidia/**/lib/*.so*")} | {"libcuda.so.1"}
    wanted[runtime] -= set(re.findall(r"\b(\w+)\(", SOURCE.read_text()))
    flags = [SOURCE, f"-I{include}", f"-DVERSION={runtime.rpartition('.')[2]}000", "-ldl"]
    made = [make_library(folder / runtime, runtime, wanted[runtime], flags)]
    (folder / "libcuda.so.1").symlink_to(runtime)
    for name in sorted(needed - there):
        version = "NVSHMEM" if "nvshmem" in name else name
        made.append(make_library(folder / name, version, wanted[version] | wanted.pop(UNVERSIONED, set())))
    return made


def make_library(path: Path, version: str, functions: set[str], flags: Sequence[object] = ()) -> Path:
    """Compile a library with functions that return 0."""
    text, script = path.with_suffix(".c"), path.with_suffix(".map")
    text.write_text("\n".join(f"int {name}(void) {{ return 0; }}" for name in sorted(functions)))
    script.write_text(f"{version} {{ global: *; }};")
    linked = f"-Wl,-soname,{path.name},--version-script={script}"
    output_of("gcc", "-O2", "-w", "-fno-builtin", "-shared", "-fPIC", text, *flags, "-o", path, linked)
    return path


class NullCuda:
    """The CUDA of this process, which does nothing."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.counts = (ctypes.c_uint64 * len(COUNTS)).in_dll(self.library, "null_cuda_counts")

    def cupy(self) -> types.ModuleType:
        """Return what Graphfeed needs of CuPy at the first launch of a kernel."""

        class RawModule:
            def __init__(self, **_: object) -> None:
                """Compile nothing."""

            @staticmethod
            def get_function(name: str) -> types.SimpleNamespace:
                handle = ctypes.c_void_p()
                self.library.cuModuleGetFunction(ctypes.byref(handle), None, name.encode())
                return types.SimpleNamespace(kernel=types.SimpleNamespace(ptr=handle.value))

        module = types.ModuleType("cupy")
        vars(module).update(RawModule=RawModule, cuda=types.SimpleNamespace(is_available=lambda: True))
        return module

    def write(self, kernel: str, parameter: str, offset: int, values: Sequence[int]) -> None:
        """Make the launches of a kernel write numbers in turn, at an offset from the address in a parameter."""
        from graphfeed.ops.cuda.source import INTS, device_code, file_of_kernel, parameters_of  # noqa: PLC0415

        parts = parameters_of(device_code(file_of_kernel()[kernel]))[kernel]
        before = parts[: [part.name for part in parts].index(parameter)]
        word = len(before) + sum(part.kind in INTS for part in before)
        given = (ctypes.c_int64 * len(values))(*values)
        self.library.null_cuda_write(kernel.encode(), word, offset, given, len(values))

    def write_sizes(self, minibatches: Sequence[Any]) -> None:
        """Make kernels write the sizes of these mini-batches, which the CPU reads."""
        from graphfeed.storage.graph import to_type_dict  # noqa: PLC0415

        hops = [hop for minibatch in minibatches for hop in reversed(minibatch.sampled_subgraphs)]
        edges = [[len(ids) for ids in to_type_dict(hop.original_edge_ids).values()] for hop in hops]
        rows = [sum(map(len, to_type_dict(hop.original_row_node_ids).values())) for hop in hops]
        self.write("place_nodes", "edge_ends", 8, [sum(own) for own in edges])
        self.write("place_nodes", "row_ends", 8, rows)
        self.write("place_nodes", "next_ends", 8, [own + 1 for own in rows])
        self.write("count_rows", "row_starts", 8, rows)
        for place, ends in enumerate(zip(*map(accumulate, edges), strict=True), start=1):
            self.write("count_rows", "neighbor_starts", 8 * place, ends)
            self.write("count_rows", "next_parts", 8 * place, [place * (own + 1) for own in rows])


def measure(loader: Any, cuda: NullCuda) -> Iterator[tuple[str, float]]:
    """Yield what a mini-batch of a loader costs."""
    import torch  # noqa: PLC0415 - after the stand-in for CuPy

    calls, times = Counter[str](), list[float]()

    def note(_frame: object, event: str, _argument: object) -> None:
        calls[event] += 1

    def take(minibatches: Iterator[Any], count: int) -> None:
        for _ in islice(minibatches, count):
            pass

    minibatches = chain.from_iterable(repeat(loader))
    take(minibatches, WARM_UP)
    for _ in range(ROUNDS):
        begin = time.process_time()
        take(minibatches, COUNTED)
        times.append(1e3 * (time.process_time() - begin) / COUNTED)
    yield "CPU time, ms", sorted(times)[ROUNDS // 2]
    minibatches, allocated = iter(loader), "allocation.all.allocated"
    take(minibatches, WARM_UP)
    before = [*cuda.counts, torch.cuda.memory_stats()[allocated]]
    take(minibatches, COUNTED)
    after = [*cuda.counts, torch.cuda.memory_stats()[allocated]]
    for name, first, last in zip((*COUNTS, "device allocations"), before, after, strict=True):
        yield name, (last - first) / COUNTED
    threading.setprofile(note)
    minibatches = iter(loader)
    take(minibatches, WARM_UP)
    sys.setprofile(note)
    calls.clear()
    take(minibatches, COUNTED)
    sys.setprofile(None)
    threading.setprofile(None)
    yield "Python calls", calls["call"] / COUNTED
    yield "C calls", calls["c_call"] / COUNTED


def run(case: str) -> None:
    """Measure a case in this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cuda = NullCuda()
    sys.modules["cupy"] = cuda.cupy()
    import torch  # noqa: PLC0415

    import graphfeed as gf  # noqa: PLC0415
    from benchmarks.gpu_speed import Sizes, sampled  # noqa: PLC0415

    where, typed, sizes = CASES[case], "typed" in case, Sizes(NODES)
    torch.manual_seed(0)
    here = sampled("cpu", "cpu", torch.device("cpu"), typed, sizes)
    cuda.write_sizes(list(islice(gf.DataLoader(here, seed=0), SIZES)))
    torch.manual_seed(0)
    there = sampled(where, where, torch.device("cuda", 0), typed, sizes)
    ways: list[dict[str, Any]] = [{"overlap_feature_fetch": False}, {}]
    loop, shipped = (dict(measure(gf.DataLoader(there, seed=0, **options), cuda)) for options in ways)
    sys.stdout.write(f"{case:<20} {'in a loop':>12} {'as shipped':>12}\n")
    for name, value in loop.items():
        sys.stdout.write(f"{name:<20} {value:12.3f} {shipped[name]:12.3f}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what stands in for CUDA, and measure a case in a process that has loaded it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", choices=CASES)
    case = parser.parse_args(arguments).case
    if "null_cuda" in os.environ.get("LD_PRELOAD", ""):
        run(case)
        return
    with tempfile.TemporaryDirectory(prefix="null_cuda") as folder:
        # A process looks libraries up when it starts.
        preloaded = ":".join(map(str, build(Path(folder))))
        env = {**os.environ, "LD_PRELOAD": preloaded, "LD_LIBRARY_PATH": folder}
        subprocess.run([sys.executable, "-m", "benchmarks.gpu_host_time", case], env=env, check=True)


if __name__ == "__main__":
    main()
