"""Print the Python functions that a mini-batch calls before its first kernel: `python -m benchmarks.first_kernel`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch

import graphfeed as gf

NUM_NODES, EDGES = 1000, torch.randint(1000, (2, 20_000))

PACKAGE = str(Path(gf.__file__).parent)
PROGRAM = ("ops/cpu/compiler/program.py", "run")
Functions: TypeAlias = list[tuple[str, str]]
"""By file and name, without duplicates."""


def functions_before(last: tuple[str, str], make: Callable[[], Any]) -> Functions:
    """Return the functions of the package that a call runs before it reaches a last one."""
    make()  # one-time work is done
    found: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        # A comprehension is part of its function.
        is_function = event == "call" and file.startswith(PACKAGE) and not name.startswith("<")
        if is_function and last not in found:
            found[file.removeprefix(PACKAGE)[1:], name] = None

    sys.setprofile(note)
    try:
        make()
    finally:
        sys.setprofile(None)
    return [own for own in found if own != last]


def minibatches_of(graph: gf.SamplingGraph) -> Callable[[], Any]:
    """Return a call that computes the next mini-batch of a pipeline."""
    items = gf.ItemSampler(gf.ItemSet(torch.arange(NUM_NODES), names="seeds"), batch_size=64)
    batches = iter(items.sample_neighbor(graph, [10, 10]).with_seed(1))
    return lambda: next(batches)


if __name__ == "__main__":
    functions = functions_before(PROGRAM, minibatches_of(gf.from_coo(EDGES, NUM_NODES)))
    lines = [f"{file:50} {name}" for file, name in functions]
    count = f"{len(lines)} functions in {len({file for file, _ in functions})} files\n"
    sys.stdout.write("\n".join([*lines, count]))
