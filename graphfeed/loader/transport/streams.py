"""Streams beside the caller's, and how what one of them made passes to another.

Two things make that safe: the stream that takes a tensor waits for the event that the other recorded behind its work,
and torch's allocator is told that it uses the memory, or it would give that away while it is still read.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch

SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""The tensors with memory that a sparse one is made of."""


@cache
def side_stream(device: torch.device, name: str) -> torch.cuda.Stream:  # noqa: ARG001
    """Return the stream of that name on a device; one a process, for the allocator keeps memory apart for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def with_index(device: torch.device | str) -> torch.device:
    """Return a device with its index: "cuda" is the one that is current for the calling thread."""
    device = torch.device(device)
    index: int | None = device.index
    return torch.device(device.type, torch.cuda.current_device()) if index is None else device


def hand_over(value: Any, event: torch.cuda.Event, device: torch.device) -> None:
    """Let the current stream use what another one made, without waiting for it here.

    Args:
        value: Tensors, inside of whatever `parts_on_streams` looks into.
        event: WithCudaEvent behind the work that makes them.
        device: Where the streams are.
    """
    stream = torch.cuda.current_stream(device)
    stream.wait_event(event)
    for part in parts_on_streams(value):
        part.record_stream(stream)


def parts_on_streams(value: Any) -> list[Any]:
    """Return what can be told which stream uses it, each once.

    That is every tensor on a device, in dicts, lists, tuples and the attributes of objects, and objects of other
    libraries with a `record_stream` of their own, as graphs of DGL and data of PyG.
    """
    found: list[Any] = []
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # kept, for an id is another's once its object is gone
        if isinstance(part, torch.Tensor) and part.layout in SPARSE_PARTS:
            waiting.extend(getattr(part, name)() for name in SPARSE_PARTS[part.layout])
        elif isinstance(part, torch.Tensor):
            if not part.is_cpu:
                found.append(part)
        elif callable(getattr(part, "record_stream", None)):
            found.append(part)
        else:
            waiting.extend(inside(part))
    return found


def inside(value: Any) -> Iterator[Any]:
    """Yield what a container or an object is made of."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set)):
        yield from value
    elif not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).values()
