"""Picks the kernels by where a tensor lies: the only place that asks."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch


@cache
def load(package: str, op: str) -> ModuleType:
    """Import a kernel module at its first use, so that importing graphfeed compiles nothing."""
    return import_module(f"graphfeed.ops.{package}.{op}")


def kernels(op: str, tensor: torch.Tensor) -> ModuleType:
    """Return the kernel module of an op for the device of a tensor.

    Raises:
        ValueError: The tensor lies where there are no kernels.
    """
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{op} has kernels for the CPU, but was given a tensor on {tensor.device}; move it with .cpu(), "
            "and put copy_to() at the end of the pipeline"
        )
    return load("cpu", op)
