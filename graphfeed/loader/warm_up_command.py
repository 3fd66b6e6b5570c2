"""Compiles the CPU kernels in advance, for example in a container image, so that no process waits for them."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, ItemSampler
from graphfeed.ops import KernelLoad, load_kernels
from graphfeed.ops.arguments import checked
from graphfeed.storage import BasicFeatureStore, HeteroItemSet, ItemSet, TorchBasedFeature, from_coo

SIZES = 8, 20_000
"""Numbers of nodes, and of items, of the pipelines. Few items and rows need other kernels than many."""

FANOUTS = [2, 2, 64]
"""Fan-outs of the pipelines. LABOR picks many neighbours of a node by another kernel than a few."""


@checked
def warm_up(pipe: Datapipe | None = None) -> tuple[KernelLoad, ...]:
    """Compile the CPU kernels, and store their machine code on disk. The names of compiled kernels go to stderr.

    This function, like the command `graphfeed warm-up`, is optional: a process compiles a kernel at its first call, and
    stores it for later processes. It moves the waiting time to a place of your choice, such as the build of a container
    image, or before a job that starts many processes. With the wheel for a platform, no kernel has to be compiled.

    The machine code is for this processor, this version of LLVM and this version of graphfeed. Build an image on the
    same kind of machine that runs it, or set NUMBA_CPU_NAME=generic both in the image and during its build. The code is
    stored in the first writable folder of GRAPHFEED_CACHE_DIR, if that is set, and the package's own folder, among
    others; docs/how-to/containers.md lists them. It is read from all of them.

    Args:
        pipe: A pipeline whose first mini-batch is computed, so that only its kernels are compiled, which takes a few
            seconds. None compiles all kernels, which takes some two minutes; with NUMBA_DISABLE_JIT=1, it does nothing.

    Returns:
        The kernels that this process had not used before, with the dtypes of their arguments, the seconds that each
        took, and whether it was compiled or found on disk.

    Raises:
        ImportError: A kernel must be compiled, and Numba is not installed.

    Example:
        >>> import graphfeed as gf
        >>> slowest = max(gf.warm_up(), key=lambda kernel: kernel.seconds)  # doctest: +SKIP
    """
    if pipe is not None:
        return reported([lambda: next(iter(pipe), None)])
    if load_kernels("cpu", "jit").INTERPRETED:
        sys.stderr.write("graphfeed: NUMBA_DISABLE_JIT is set, so kernels run as Python, and none is compiled\n")
        return ()
    kernels = load_kernels("cpu", "compiler.build").all_kernels()
    return reported(partial(kernel.code, dtypes) for kernel, dtypes in kernels)


def reported(tasks: Iterable[Callable[[], object]]) -> tuple[KernelLoad, ...]:
    """Run tasks; list the kernels that they compile or load, also on stderr."""
    loads: list[KernelLoad] = []
    start = time.monotonic()

    def note(kernel: KernelLoad) -> None:
        loads.append(kernel)
        if kernel.compiled:
            sys.stderr.write(f"graphfeed: compiled {kernel.kernel} in {kernel.seconds:.1f} s\n")

    with load_kernels("cpu", "compiler.store").watch_kernels(note):
        for task in tasks:
            task()
    compiled = sum(kernel.compiled for kernel in loads)
    sys.stderr.write(
        f"graphfeed: {compiled} kernels compiled and {len(loads) - compiled} found on disk "
        f"in {time.monotonic() - start:.1f} s\n"
    )
    return tuple(loads)


def take_first(use: str, size: int) -> None:
    next(iter(USES[use](size)), None)


def edges_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sources and destinations of a graph with `size` nodes; if it is large, some have high in-degrees."""
    sources = torch.arange(size if size == SIZES[0] else 16 * size, device="cpu") % size
    return sources, sources**2 // size


def with_features(pipe: Datapipe, size: int, node_types: Sequence[str | None] = (None,)) -> Datapipe:
    """Fetch features of nodes, whose rows have 4, 8 and 128 bytes: each width is read by another kernel."""
    widths = {"narrow": 1, "pair": 2, "wide": 32}
    rows = {name: TorchBasedFeature(torch.zeros(size, width, device="cpu")) for name, width in widths.items()}
    store = BasicFeatureStore({("node", kind, name): rows[name] for kind in node_types for name in widths})
    keys: Any = list(widths) if None in node_types else {kind: list(widths) for kind in node_types}
    fetched: Datapipe = pipe.fetch_feature(store, keys)
    return fetched


def small_pipe(stage: str, size: int, *, typed: bool = False, **options: Any) -> Datapipe:
    """Return a pipeline with a sampler, whose seeds are `size` nodes with timestamps, and with features."""
    ends = edges_of(size)
    edge_types = ("user:likes:item", "item:liked_by:user")
    attributes = {"weight": torch.ones(len(ends[0]), device="cpu"), "time": ends[0] * 31 % size}
    nodes = torch.arange(size, device="cpu")
    items: Any = ItemSet((nodes, torch.full((size,), size, device="cpu")), ("seeds", "timestamp"))
    if typed:
        by_type = {name: dict.fromkeys(edge_types, values) for name, values in attributes.items()}
        graph = from_coo(dict.fromkeys(edge_types, ends), {"user": size, "item": size}, edge_attributes=by_type)
        items = HeteroItemSet({"user": items})
    else:
        graph = from_coo(ends, size, edge_attributes=attributes)
    pipe: Datapipe = getattr(ItemSampler(items, size // 4, shuffle=True), stage)(graph, FANOUTS, **options)
    return with_features(pipe, size, ("user", "item") if typed else (None,))


def negatives_pipe(size: int) -> Datapipe:
    ends = edges_of(size)
    graph = from_coo(ends, size)
    pairs = ItemSampler(ItemSet(torch.stack(ends, dim=1)[:size], "seeds"), size // 4, shuffle=True)
    pipe: Datapipe = pairs.sample_uniform_negative(graph, 1).sample_neighbor(graph, FANOUTS).exclude_seed_edges()
    return with_features(pipe, size)


NEIGHBOR, LABOR = "sample_neighbor", "sample_layer_neighbor"
IN_TIME = partial(small_pipe, f"temporal_{NEIGHBOR}", edge_timestamp_attr_name="time")
USES: dict[str, Callable[[int], Datapipe]] = {
    "uniform": partial(small_pipe, NEIGHBOR),
    "weighted": partial(small_pipe, NEIGHBOR, prob_name="weight"),
    "labor": partial(small_pipe, LABOR),
    "negatives": negatives_pipe,
    "in-time": IN_TIME,
    "typed": partial(small_pipe, NEIGHBOR, typed=True),
    "typed-weighted": partial(small_pipe, NEIGHBOR, typed=True, prob_name="weight"),
    "typed-labor": partial(small_pipe, LABOR, typed=True),
    "typed-in-time": partial(IN_TIME, typed=True),
}
"""Pipelines for `graphfeed warm-up --for`, each for a number of nodes; node ids are int64."""


def add_warm_up_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Machine code is for the processor of this machine. For an image that runs on others, set "
        "NUMBA_CPU_NAME=generic here and where it runs. It is saved in the package's folder, or in GRAPHFEED_CACHE_DIR "
        "if that is set."
    )
    parser.add_argument(
        "--for",
        dest="uses",
        metavar="USES",
        help=f"compile only the kernels of some pipelines: a comma-separated list of {', '.join(USES)}",
    )


def run_warm_up(options: Any) -> None:
    names = [name.strip() for name in options.uses.split(",")] if options.uses is not None else []
    for name in names:
        if name not in USES:
            raise ValueError(f"--for must be a list of {', '.join(USES)}, but has {name!r}")
    for name in names:
        reported([partial(take_first, name, size) for size in SIZES])
    if options.uses is None:
        warm_up()
