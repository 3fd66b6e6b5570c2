"""The devices on which the laws of operations hold: the CPU, and a GPU or what stands for one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

from tests.stand_ins.compiled_kernels import COMPILER
from tests.stand_ins.emulated_cuda import ON_THE_CPU, Cuda, EmulatedCuda, RealCuda

Put = Callable[[torch.Tensor], torch.Tensor]
"""Brings a tensor to a device."""


class Cpu:
    """Runs ops where tensors are."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor."""
        return tensor

    def each_order(self) -> Iterator[AbstractContextManager[object]]:
        """Yield one context: a kernel has one thread."""
        yield nullcontext()

    def running(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


Device = Cpu | Cuda
GPUS = [
    pytest.param("emulated", marks=pytest.mark.compile),
    pytest.param("gpu", marks=[pytest.mark.compile, pytest.mark.gpu]),
]


def gpu_of(name: str) -> Cuda:
    """Return a GPU, or what stands for one."""
    if name == "gpu":
        return RealCuda()
    if COMPILER is None:
        pytest.skip("no g++ to compile the kernels for the CPU")
    return EmulatedCuda()


def results(device: Device, run: Callable[[Put], Any], *, each_order: bool = False) -> Iterator[Any]:
    """Yield what an operation returns on a device, brought to the CPU; perhaps in each order in which threads may come.

    Args:
        device: The device.
        run: Calls the operation, given a function that brings tensors to the device.
        each_order: Whether to run it once for each order.
    """
    for order in device.each_order() if each_order else [nullcontext()]:
        with order, device.running():
            found = brought(device, run(device.put))
        yield found


def brought(device: Device, result: Any, name: str = "") -> Any:
    """Return a result on the CPU; raise unless it lies on the device, but for its sizes."""
    if isinstance(result, torch.Tensor):
        if not isinstance(device, Cpu):
            assert device.is_there(result) == (name not in ON_THE_CPU), f"{name} lies on {result.device}"
        return result.cpu()
    if isinstance(result, dict):
        return {key: brought(device, part) for key, part in result.items()}
    if isinstance(result, (list, tuple)):
        names = getattr(result, "_fields", [""] * len(result))
        parts = [brought(device, part, own) for own, part in zip(names, result, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result
