"""Lets what may fail on a GPU fail: memory that is asked for, or the start of a kernel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves

from tests.stand_ins import emulated_cuda
from tests.stand_ins.emulated_cuda import DEVICE, Pretended, import_launch
from tests.stand_ins.late_work import EMPTY, arguments_of
from tests.stand_ins.strict_cupy import OWN


class NotStartedError(RuntimeError):
    """Stands for the error of a kernel that does not start."""


def takes_memory(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether an operation of torch allocates tensors on the pretended device."""
    here = any(isinstance(leaf, Pretended) for leaf in tree_leaves((args, kwargs)))
    named = arguments_of(func)
    makes = func.__name__.startswith(EMPTY) or (named is not None and not any(named.values()))
    return makes and (here or torch.device(kwargs.get("device") or "cpu").type == DEVICE.type)


@contextmanager
def failing_at(number: int) -> Iterator[list[str]]:
    """Make only the n-th operation fail; yield the names of the operations so far."""
    launch, run, seen = import_launch(), emulated_cuda.run, []
    start = launch.start_driver

    def count(name: str, error: Exception) -> None:
        seen.append(name)
        if len(seen) == number:
            OWN.given.clear()
            raise error

    def counted_run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if len(seen) < number and takes_memory(func, args, kwargs):
            count(func.__name__, torch.cuda.OutOfMemoryError("no memory is left"))
        return run(func, args, kwargs)

    def counted_start(function: Any, *given: Any) -> None:
        if len(seen) < number:
            count(function.name, NotStartedError())
        start(function, *given)

    with patch.object(emulated_cuda, "run", counted_run), patch.object(launch, "start_driver", counted_start):
        yield seen
