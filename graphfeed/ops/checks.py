"""Checks that several ops make of their arguments; each error names the argument, what it got and what is right."""

import torch

ID_DTYPES = (torch.int32, torch.int64)
FEW = 1 << 14


def check_vector(name: str, tensor: object, dtypes: tuple[torch.dtype, ...] = ID_DTYPES) -> None:
    """Raise unless a value is a 1-D tensor of one of the dtypes."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, but is a {type(tensor).__name__}")
    if tensor.dim() != 1:
        raise ValueError(f"{name} must have 1 dimension, but has shape {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must be {allowed}, but is {tensor.dtype}; convert it with .to(...)")


def bounds(ids: torch.Tensor) -> tuple[int, int]:
    """Return the least and the greatest id; few are looked through quicker by NumPy."""
    if ids.numel() <= FEW and ids.device.type == "cpu":
        array = ids.numpy()
        return int(array.min()), int(array.max())
    # Together, for each alone would wait for a GPU.
    low, high = torch.stack(torch.aminmax(ids)).tolist()
    return low, high


def check_ids(name: str, ids: torch.Tensor, bound: int, error: type[Exception] = ValueError) -> None:
    """Raise unless every id lies in `0 .. bound - 1`."""
    if ids.numel() == 0:
        return
    low, high = bounds(ids)
    if low < 0 or high >= bound:
        wrong = low if low < 0 else high
        raise error(f"{name} must lie in 0 .. {bound - 1}, but holds {wrong}; check the ids against the number of rows")


def check_can_pin(name: str) -> None:
    """Raise unless there is a CUDA device to pin memory for."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"{name} needs a CUDA device to pin memory for, and torch finds none; leave it out: the CPU is as fast "
            "without"
        )
