"""Selects the kernels for the device of a tensor: Numba's on the CPU, CuPy's on a GPU."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from graphfeed.ops.memory.pinned import is_page_locked
from graphfeed.ops.process import install_hint

PACKAGES = {"cpu": "cpu", "cuda": "cuda"}
"""The package of kernels for each type of device."""


def cuda_extra() -> str:
    # With the CuPy that fits torch's CUDA.
    return "cuda12" if (torch.version.cuda or "").startswith("12") else "cuda13"


@cache
def load(package: str, op: str) -> ModuleType:
    """Import a kernel module at its first use, so that importing graphfeed compiles nothing and needs no CuPy."""
    name = f"graphfeed.ops.{package}.{op}"
    op = op.rpartition(".")[2]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            raise ImportError(
                f"{op} was given a tensor on a GPU, and the GPU's kernels need CuPy: {install_hint(cuda_extra())}; "
                "graphfeed doctor --cuda tells what is missing"
            ) from error
        # The module itself is missing, rather than one that it imports.
        if error.name == name:
            raise ValueError(
                f"{op} has kernels for the CPU alone, but was given a tensor on a GPU; move it with .cpu()"
            ) from error
        raise


def on_gpu(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies on a device that the CUDA kernels work on."""
    return not tensor.is_cpu and PACKAGES.get(tensor.device.type) == "cuda"


def is_gpu(device: torch.device | str) -> bool:
    """Tell whether the CUDA kernels work on a type of device, which may be absent."""
    return PACKAGES.get(torch.device(device).type) == "cuda"


def check_device(name: str, device: torch.device | str) -> None:
    """Raise a RuntimeError if a device is a GPU that torch doesn't find."""
    if not is_gpu(device):
        return
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"{name} needs the device {str(device)!r}, and torch {torch.__version__} finds no CUDA device: install a "
            "torch that is built for CUDA and a driver, or leave the copy to it out"
        )
    count = torch.cuda.device_count()
    if (torch.device(device).index or 0) >= count:
        raise RuntimeError(
            f"{name} needs the device {str(device)!r}, but torch finds {count} CUDA device{'s' if count > 1 else ''}; "
            "count from 'cuda:0' on"
        )


def kernels(op: str, tensor: torch.Tensor, **others: torch.Tensor) -> ModuleType:
    """Return the kernel module of an op, such as "structure.compact", for the device of a tensor.

    `others` are what else the kernels read, by the names of the caller's arguments: on that device, or pinned and
    without gaps for a GPU; else that is a ValueError. CUDA kernels without CuPy are an ImportError.
    """
    return load(package_for(op, tensor, **others), op)


def package_for(op: str, tensor: torch.Tensor, **others: torch.Tensor) -> str:
    """Return the package of kernels for the device of a tensor, or raise as `kernels` does."""
    if tensor.is_cpu and all(other.is_cpu for other in others.values()):
        return "cpu"
    package = PACKAGES.get(tensor.device.type)
    name_of_op = op.rpartition(".")[2]
    if package is None:
        raise ValueError(
            f"{name_of_op} has kernels for the CPU and CUDA, but was given a tensor on {tensor.device}; move it with "
            ".cpu(), and put copy_to() at the end of the pipeline"
        )
    for name, other in others.items():
        if not is_readable(other, tensor.device):
            raise ValueError(
                f"{name_of_op} works on {tensor.device}, but {name} lies on {other.device}; move one to the other with "
                f".to(...){', or page-lock it with pin_memory_()' if package == 'cuda' else ''}"
            )
        if other.is_cpu and not lies_as_it_reads(other):
            raise ValueError(
                f"{name_of_op} reads {name} in pinned memory, where its values must lie without gaps, but it has "
                f"strides {other.stride()}; give {name}.contiguous().pin_memory()"
            )
    return package


def is_readable(tensor: torch.Tensor, device: torch.device) -> bool:
    """Tell whether kernels on a device can read a tensor where it lies."""
    if tensor.device == device or tensor.numel() == 0:
        return True
    return is_page_locked(tensor)


def lies_as_it_reads(tensor: torch.Tensor) -> bool:
    """Tell whether the bytes of a tensor are its values in their order, so that kernels need no copy of them."""
    return tensor.numel() == 0 or (tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def as_int64(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return numbers, such as column starts, contiguous: as int64 for a tensor on the CPU, as they are for a GPU."""
    return (values.to(torch.int64) if like.is_cpu else values).contiguous()


def as_types(types: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return edge types, contiguous: as uint8 or int32 for a tensor on the CPU, as they are for a GPU."""
    wide = like.is_cpu and types.dtype not in (torch.uint8, torch.int32)
    return (types.to(torch.int32) if wide else types).contiguous()
