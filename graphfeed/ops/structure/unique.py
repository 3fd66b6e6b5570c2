"""Unique node ids, and tensors relabelled to positions among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np
import torch

from graphfeed.ops.arguments import bounds, brief, check_flags, check_vector
from graphfeed.ops.structure.compact import compact, compact_marked

Result = TypeVar("Result")
Lists = Sequence[torch.Tensor]
Unique = tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]
UniqueByType = tuple[dict[str, torch.Tensor], dict[str, list[torch.Tensor]], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class CompletedFuture(Generic[Result]):
    """The return value of calls with `async_op=True`, with a result that is already complete.

    Example:
        >>> CompletedFuture(5).wait()
        5
    """

    result: Result

    def wait(self) -> Result:
        """Return the result; may be called repeatedly."""
        return self.result


def check_one_rank(rank: object, world_size: object) -> None:
    """Raise unless there is a single rank, because ids are not distributed among ranks here."""
    # Test `int` first: testing `Integral` calls Python code.
    of_numbers = isinstance(rank, (int, Integral)) and isinstance(world_size, (int, Integral))
    if not of_numbers or bool in (type(rank), type(world_size)) or (rank, world_size) != (0, 1):
        raise ValueError(
            f"rank and world_size must be 0 and 1, but are {rank} and {world_size}; ids are not distributed among "
            "ranks here, so each rank compacts its own"
        )


@overload
def unique_and_compact(
    nodes: Lists, rank: int = 0, world_size: int = 1, async_op: Literal[False] = False
) -> Unique: ...


@overload
def unique_and_compact(
    nodes: Mapping[str, Lists], rank: int = 0, world_size: int = 1, async_op: Literal[False] = False
) -> UniqueByType: ...


@overload
def unique_and_compact(
    nodes: Lists, rank: int = 0, world_size: int = 1, *, async_op: Literal[True]
) -> CompletedFuture[Unique]: ...


@overload
def unique_and_compact(
    nodes: Mapping[str, Lists], rank: int = 0, world_size: int = 1, *, async_op: Literal[True]
) -> CompletedFuture[UniqueByType]: ...


def unique_and_compact(
    nodes: Lists | Mapping[str, Lists], rank: int = 0, world_size: int = 1, async_op: bool = False
) -> Any:
    """Return the distinct ids of several tensors in order of first appearance, and the tensors relabelled to positions.

    Args:
        nodes: A list of 1-D tensors of ids of one dtype, or a dict of such lists by node type.
        rank, world_size: Must be 0 and 1: ids are not distributed among ranks.
        async_op: Whether to return an object whose `wait()` returns the result, which is computed immediately.

    Returns:
        The unique ids, a list like `nodes` with positions in them, and `tensor([0, number of unique ids])`. Each is a
        dict by node type if `nodes` is a dict.

    Raises:
        ValueError: A list is empty, a tensor is not 1-D, an id is negative, or there is more than one rank.

    Example:
        >>> unique_and_compact([torch.tensor([7, 3]), torch.tensor([3, 9, 7])])[:2]
        (tensor([7, 3, 9]), [tensor([0, 1]), tensor([1, 2, 0])])
    """
    check_one_rank(rank, world_size)
    check_flags(async_op=async_op)
    result: Any
    if isinstance(nodes, Mapping):
        parts = {kind: unique_in_lists(f"nodes[{kind!r}]", lists) for kind, lists in nodes.items()}
        result = tuple({kind: part[place] for kind, part in parts.items()} for place in range(3))
    else:
        result = unique_in_lists("nodes", nodes)
    return CompletedFuture(result) if async_op else result


def unique_in_lists(name: str, lists: Lists) -> Unique:
    """Like `unique_and_compact`, for one node type."""
    given: Any = lists
    if not isinstance(given, (Sequence, torch.Tensor)) or isinstance(given, str):
        raise TypeError(f"{name} must be a list of tensors, but is {brief(lists)}")
    if len(lists) == 0:
        raise ValueError(f"{name} is an empty list; give at least one tensor of ids, which may be empty")
    for place, ids in enumerate(lists):
        check_vector(f"{name}[{place}]", ids)
    if len({ids.dtype for ids in lists}) > 1:
        raise TypeError(f"{name} must have one dtype, but has {[ids.dtype for ids in lists]}; convert with .to(...)")
    joined = torch.cat(list(lists)) if len(lists) > 1 else lists[0]
    if joined.is_cpu:
        least = bounds(joined)[0] if joined.numel() else 0
        rows, _, local = compact(joined[:0], joined) if least >= 0 else (joined,) * 3
    else:  # on a GPU, the smallest id is transferred together with the counts
        _, rows, local, least = compact_marked(joined)
    if least < 0:
        raise ValueError(f"{name} must hold ids of 0 or more, but holds {least}")
    parts = [local] if len(lists) == 1 else list(torch.split(local, [ids.numel() for ids in lists]))
    return rows, parts, torch.from_numpy(np.array([0, rows.numel()]))
