"""Compiles the CPU kernels in advance, for example in a container image, so that no process waits for them."""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, ItemSampler
from graphfeed.ops import KernelLoad, load_kernels
from graphfeed.ops.arguments import checked
from graphfeed.storage import HeteroItemSet, ItemSet, from_coo

NODES = 8


@checked
def warm_up(pipe: Datapipe | None = None) -> tuple[KernelLoad, ...]:
    """Compile the CPU kernels, and store their machine code on disk. The names of compiled kernels go to stderr.

    This function, like the command `graphfeed warm-up`, is optional: a process compiles a kernel at its first call, and
    stores it for later processes. It moves the waiting time to a place of your choice, such as the build of a container
    image, or before a job that starts many processes.

    The machine code is for this processor, this version of LLVM and this version of graphfeed. Build an image on the
    same kind of machine that runs it, or set NUMBA_CPU_NAME=generic both in the image and during its build. The code is
    stored in the package's own folder, or in GRAPHFEED_CACHE_DIR if that is set.

    Args:
        pipe: A pipeline whose first mini-batch is computed, so that only its kernels are compiled, which takes a few
            seconds. None compiles all kernels in one process per core, which takes less than a minute on two cores.

    Returns:
        The kernels, with the dtypes of their arguments, the seconds that each took, and whether it was compiled or
        found on disk. With a pipeline, only kernels that this process had not used before.

    Raises:
        RuntimeError: A kernel could not be compiled.

    Example:
        >>> import graphfeed as gf
        >>> slowest = max(gf.warm_up(), key=lambda kernel: kernel.seconds)  # doctest: +SKIP
    """
    loads: list[KernelLoad] = []
    start = time.monotonic()

    def note(kernel: KernelLoad) -> None:
        loads.append(kernel)
        if kernel.compiled:
            sys.stderr.write(f"graphfeed: compiled {kernel.kernel} in {kernel.seconds:.1f} s\n")

    if pipe is None:
        for kernel in load_kernels("cpu", "compiler.ahead").compile_all():
            note(kernel)
    else:
        with load_kernels("cpu", "compiler.store").watch_kernels(note):
            next(iter(pipe), None)
    compiled = sum(kernel.compiled for kernel in loads)
    sys.stderr.write(
        f"graphfeed: {compiled} kernels compiled and {len(loads) - compiled} found on disk "
        f"in {time.monotonic() - start:.1f} s\n"
    )
    return tuple(loads)


def small_pipe(stage: str, *, typed: bool = False, **options: Any) -> Datapipe:
    """Return a small pipeline with a sampler, whose seeds are nodes with timestamps."""
    ends = torch.arange(NODES, device="cpu"), torch.arange(NODES, device="cpu").flip(0)
    edge_types = ("user:likes:item", "item:liked_by:user")
    attributes = {"weight": torch.ones(NODES, device="cpu"), "time": torch.arange(NODES, device="cpu")}
    items: Any = ItemSet((torch.arange(4, device="cpu"), torch.full((4,), NODES, device="cpu")), ("seeds", "timestamp"))
    if typed:
        by_type = {name: dict.fromkeys(edge_types, values) for name, values in attributes.items()}
        graph = from_coo(dict.fromkeys(edge_types, ends), {"user": NODES, "item": NODES}, edge_attributes=by_type)
        items = HeteroItemSet({"user": items})
    else:
        graph = from_coo(ends, NODES, edge_attributes=attributes)
    pipe: Datapipe = getattr(ItemSampler(items, 2, shuffle=True), stage)(graph, [2, 2], **options)
    return pipe


def negatives_pipe() -> Datapipe:
    ends = torch.arange(NODES, device="cpu"), torch.arange(NODES, device="cpu").flip(0)
    graph = from_coo(ends, NODES)
    pairs = ItemSampler(ItemSet(torch.stack(ends, dim=1), "seeds"), 2, shuffle=True)
    pipe: Datapipe = pairs.sample_uniform_negative(graph, 1).sample_neighbor(graph, [2, 2]).exclude_seed_edges()
    return pipe


NEIGHBOR, LABOR = "sample_neighbor", "sample_layer_neighbor"
IN_TIME = partial(small_pipe, f"temporal_{NEIGHBOR}", edge_timestamp_attr_name="time")
USES: dict[str, Callable[[], Datapipe]] = {
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
"""Pipelines for `graphfeed warm-up --for`; node ids are int64."""


def add_warm_up_arguments(parser: argparse.ArgumentParser) -> None:
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
        warm_up(USES[name]())
    if options.uses is None:
        warm_up()
