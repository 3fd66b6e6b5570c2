"""Torch's operations as a GPU may do them: what has no order in another one, and only what is known to be there."""

import re
from typing import Any

import torch

WORDS = re.compile(r"\w+")
MOVING = {*WORDS.findall("_to_copy as_strided clone copy detach empty empty_like new_empty select slice view")}
KNOWN = MOVING | {
    *WORDS.findall("""
    _local_scalar_dense _unique2 add all amin aminmax any arange bincount bitwise_and bitwise_not bitwise_or cat
    clamp cumsum div eq equal expand fill flip floor_divide full full_like ge gt index index_copy index_fill
    index_put index_select isin le lt masked_fill masked_select max maximum min minimum mm mul ne new_full new_ones
    new_zeros nonzero ones ones_like remainder repeat repeat_interleave scalar_tensor scatter scatter_add
    scatter_reduce searchsorted sort split_with_sizes stack sub sum unbind unique_consecutive unique_dim
    unsafe_split_with_sizes unsqueeze where zero zeros
    """)
}
"""Of which somebody has looked that torch has them on a GPU, for numbers of 8 to 64 bits."""
UNUSUAL = {torch.uint16, torch.uint32, torch.uint64}
"""Dtypes whose values a GPU can only move."""


def carry_out(func: Any, args: Any, kwargs: Any) -> Any:
    """Do an operation on tensors of the CPU as a GPU may; refuse what it lacks, or may do in several ways."""
    name = func.__name__.partition(".")[0].removesuffix("_")
    dtypes = {part.dtype for part in args if isinstance(part, torch.Tensor)}
    assert name in (MOVING if dtypes & UNUSUAL else KNOWN), f"see whether torch has {name} of {dtypes} on a GPU"
    if func.__name__ == "sort.default":
        return sort_with_ties_reversed(*args, **kwargs)
    if name == "index_put" and not any(args[3:4]):
        check_places(*args[1:3])
    if name in ("index_copy", "scatter"):
        check_places([args[2]], args[3])
    return func(*args, **kwargs)


def sort_with_ties_reversed(values: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Sort as a sort that is not stable may."""
    sort = torch.ops.aten.sort.stable
    found, places = sort(values.flip(dim), stable=True, dim=dim, descending=descending)
    return found, values.shape[dim] - 1 - places


def check_places(indices: Any, values: torch.Tensor) -> None:
    """Raise if several values go to one place, where a GPU leaves any of them."""
    given = [part for part in indices if part is not None]
    if values.numel() > 1 and not any(part.dtype in (torch.bool, torch.uint8) for part in given):
        shape = torch.broadcast_shapes(*(part.shape for part in given))  # type: ignore[no-untyped-call]
        places = [*zip(*(part.expand(shape).flatten().tolist() for part in given), strict=True)]
        assert len({*places}) == len(places), "several values are put to one place"
