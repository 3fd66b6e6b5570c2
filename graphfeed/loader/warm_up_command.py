"""Compiles the kernels for the CPU ahead, so that no process waits for them; for container images."""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, ItemSampler
from graphfeed.ops import KernelLoad, load
from graphfeed.ops.arguments import checked
from graphfeed.storage import HeteroItemSet, ItemSet, from_coo

NODES = 8


@checked
def warm_up(pipe: Datapipe | None = None) -> tuple[KernelLoad, ...]:
    """Compile the kernels for the CPU, and keep their machine code on disk; it says on stderr what it compiles.

    A process compiles a kernel at its first call and keeps it for those that come after, so nothing needs this
    function, or the command `graphfeed warm-up`. It moves the wait to a place of your choice: into the build of a
    container image, or ahead of a job that starts many processes.

    The machine code is for this processor, this version of LLVM and this version of graphfeed. Build an image on a
    machine of the kind that runs it, or set NUMBA_CPU_NAME=generic both in the image and while it is built. It lies in
    the package's own folder, or in GRAPHFEED_CACHE_DIR if that is set.

    Args:
        pipe: A pipeline, whose first mini-batch is made: only what it needs is compiled, which takes a few seconds.
            None compiles all kernels, in as many processes as there are cores: less than a minute on two.

    Returns:
        The kernels, with the dtypes of their arguments, the seconds that each took, and whether it was compiled or
        found on disk. With a pipeline, those that were not in use in this process before.

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
        for kernel in load("cpu", "compiler.ahead").compile_all():
            note(kernel)
    else:
        with load("cpu", "compiler.store").watch_kernels(note):
            next(iter(pipe), None)
    compiled = sum(kernel.compiled for kernel in loads)
    sys.stderr.write(
        f"graphfeed: {compiled} kernels compiled and {len(loads) - compiled} found on disk "
        f"in {time.monotonic() - start:.1f} s\n"
    )
    return tuple(loads)


def small_pipe(stage: str, *, typed: bool = False, **options: Any) -> Datapipe:
    """Return a small pipeline of a stage that samples around nodes with times."""
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for",
        dest="uses",
        metavar="USES",
        help=f"compile only what some pipelines need, a list separated by commas of {', '.join(USES)}",
    )


def run(options: Any) -> None:
    names = [name.strip() for name in options.uses.split(",")] if options.uses is not None else []
    for name in names:
        if name not in USES:
            raise ValueError(f"--for must be a list of {', '.join(USES)}, but has {name!r}")
    for name in names:
        warm_up(USES[name]())
    if options.uses is None:
        warm_up()
