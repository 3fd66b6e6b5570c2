"""Print which functions a mini-batch goes through in Python before its first kernel: `python -m tests.first_kernel`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import graphfeed as gf

PACKAGE = str(Path(gf.__file__).parent)
PROGRAM = ("ops/cpu/compiler/program.py", "run")


def before_first_kernel(make: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return the functions of the package that a call goes through until kernels run, by file and name, once each."""
    make()  # what is done once is done
    found: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        # A comprehension is part of its function.
        is_function = event == "call" and file.startswith(PACKAGE) and not name.startswith("<")
        if is_function and PROGRAM not in found:
            found[file.removeprefix(PACKAGE)[1:], name] = None

    sys.setprofile(note)
    try:
        make()
    finally:
        sys.setprofile(None)
    return [own for own in found if own != PROGRAM]


def minibatch() -> Callable[[], Any]:
    """Return a call that makes the next mini-batch of a pipeline."""
    graph = gf.from_coo(torch.randint(1000, (2, 20_000)), 1000)
    items = gf.ItemSampler(gf.ItemSet(torch.arange(1000), names="seeds"), batch_size=64)
    batches = iter(items.sample_neighbor(graph, [10, 10]).with_seed(1))
    return lambda: next(batches)


if __name__ == "__main__":
    functions = before_first_kernel(minibatch())
    lines = [f"{file:50} {name}" for file, name in functions]
    sys.stdout.write("\n".join([*lines, f"{len(lines)} functions in {len({file for file, _ in functions})} files\n"]))
