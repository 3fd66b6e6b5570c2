"""Operations of torch that a stream does later: their results are there at once, but not their values."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.stand_ins.emulated_runtime import OTHER_VALUE, Stream
from tests.stand_ins.strict_torch import carry_out

EMPTY = ("empty", "new_empty")
"""Operations that give memory without values."""


@cache
def arguments_of(func: Any) -> dict[str, bool] | None:
    """Return the arguments of an operation, and which are written; None if it gives a view, or memory as it is."""
    schema = func._schema
    # "unsafe" views are not views for autograd.
    if func.__name__.startswith((*EMPTY, "unsafe_split")) or any(
        part.alias_info is not None and not part.alias_info.is_write for part in schema.returns
    ):
        return None
    return {part.name: part.alias_info is not None and part.alias_info.is_write for part in schema.arguments}


def without_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape and dtype, for torch to find the shapes of results with."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def put_off(
    stream: Stream, func: Any, args: Any, kwargs: dict[str, Any], source_of: Callable[[torch.Tensor], torch.Tensor]
) -> Any:
    """Enqueue an operation on a stream, to run as late as possible.

    Args:
        stream: The stream.
        func: The operation.
        args, kwargs: What it is given; pretended tensors have an attribute `held`. What it writes is not copied.
        source_of: Returns a tensor of the CPU as a copy on a device will find it.

    Returns:
        The results, tensors of the CPU; None if their shapes depend on values.
    """
    leaves, form = tree_flatten((args, kwargs))
    given: list[Any] = []
    shapes: list[Any] = []
    own: dict[int, torch.Tensor] = {}
    for place, leaf in enumerate(leaves):
        shape = leaf
        if isinstance(leaf, torch.Tensor):
            held = getattr(leaf, "held", leaf)
            kept = held is not leaf or (place == 0 and func.__name__.startswith("copy_"))  # the target of a copy
            given.append(held if kept else source_of(leaf))
            shape = without_values(held)
            own[id(shape)] = held
        else:
            given.append(leaf)
        shapes.append(shape)
    shaped_args, shaped_kwargs = tree_unflatten(shapes, form)
    if "device" in shaped_kwargs:
        shaped_kwargs["device"] = "meta"
    try:
        shaped = func(*shaped_args, **shaped_kwargs)
    except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError):
        return None  # And if the operation is wrong, it says so when it is done.

    def result_of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) in own:
            return own.get(id(leaf), leaf)
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype).fill_(OTHER_VALUE)

    results = tree_map(result_of, shaped)

    def work() -> None:
        late_args, late_kwargs = tree_unflatten(given, form)
        found = carry_out(func, late_args, late_kwargs)
        for made, value in zip(tree_flatten(results)[0], tree_flatten(found)[0], strict=True):
            if isinstance(made, torch.Tensor) and made is not value:
                made.copy_(value)

    stream.add(work)
    return results
