"""Select kernels by the device of a tensor: Numba kernels on the CPU, CuPy kernels on a GPU."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from graphfeed.ops.memory.buffers import is_plain_memory
from graphfeed.ops.memory.pinned import is_page_locked
from graphfeed.ops.process import install_hint

PACKAGES = {"cpu": "cpu", "cuda": "cuda"}
"""The kernel package for each device type."""


def cuda_extra() -> str:
    # The extra with CuPy for torch's CUDA version.
    return "cuda12" if (torch.version.cuda or "").startswith("12") else "cuda13"


@cache
def load_kernels(package: str, op: str) -> ModuleType:
    """Import a kernel module at its first use, so that importing graphfeed compiles nothing and needs no CuPy."""
    name = f"graphfeed.ops.{package}.{op}"
    op = op.rpartition(".")[2]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            raise ImportError(
                f"{op} was given a tensor on a GPU, and the GPU's kernels need CuPy: {install_hint(cuda_extra())}; "
                "run graphfeed doctor --cuda to find out what is missing"
            ) from error
        # The module itself is missing, not one of its imports.
        if error.name == name:
            raise ValueError(
                f"{op} has kernels for the CPU only, but was given a tensor on a GPU; move it with .cpu()"
            ) from error
        raise


def on_gpu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on a device that CUDA kernels support."""
    return not tensor.is_cpu and PACKAGES.get(tensor.device.type) == "cuda"


def is_gpu(device: torch.device | str) -> bool:
    """Return whether CUDA kernels support a device type. The device need not exist."""
    return PACKAGES.get(torch.device(device).type) == "cuda"


def check_device(name: str, device: torch.device | str) -> None:
    """Raise a RuntimeError if a device is a GPU that doesn't exist."""
    if not is_gpu(device):
        return
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"{name} needs the device {str(device)!r}, and torch {torch.__version__} finds no CUDA device: install a "
            "torch that is built for CUDA and a driver, or omit the copy to it"
        )
    count = torch.cuda.device_count()
    if (torch.device(device).index or 0) >= count:
        raise RuntimeError(
            f"{name} needs the device {str(device)!r}, but torch finds {count} CUDA device{'s' if count > 1 else ''}; "
            "they are numbered from 'cuda:0'"
        )


def kernels(op: str, tensor: torch.Tensor, **others: torch.Tensor) -> ModuleType:
    """Return the kernel module of an op, such as "structure.compact", for the device of a tensor.

    `others` are the other tensors that the kernels read, by argument name. They must be on the same device, or pinned
    and contiguous for a GPU; otherwise a ValueError is raised. CUDA kernels without CuPy raise an ImportError.
    """
    return load_kernels(package_for(op, tensor, **others), op)


def package_for(op: str, tensor: torch.Tensor, **others: torch.Tensor) -> str:
    """Return the name of the kernel package for the device of a tensor; errors are those of `kernels`."""
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
                f"{name_of_op} works on {tensor.device}, but {name} is on {other.device}; move one to the other with "
                f".to(...){', or page-lock it with pin_memory_()' if package == 'cuda' else ''}"
            )
        if other.is_cpu and not is_plain_memory(other):
            raise ValueError(
                f"{name_of_op} reads {name} in pinned memory, where it must be contiguous, but it has "
                f"strides {other.stride()}; give {name}.contiguous().pin_memory()"
            )
    return package


def is_readable(tensor: torch.Tensor, device: torch.device) -> bool:
    """Return whether kernels on a device can read a tensor without a copy."""
    if tensor.device == device or tensor.numel() == 0:
        return True
    return is_page_locked(tensor)


def as_int64(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return contiguous integers, such as column starts: converted to int64 if `like` is on the CPU."""
    return (values.to(torch.int64) if like.is_cpu else values).contiguous()


def as_types(types: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return contiguous edge types: if `like` is on the CPU, dtypes other than uint8 are converted to int32."""
    wide = like.is_cpu and types.dtype not in (torch.uint8, torch.int32)
    return (types.to(torch.int32) if wide else types).contiguous()
