"""Side streams, and handing tensors from one CUDA stream to another.

The consuming stream waits for an event that the producing stream recorded behind its work. And torch's allocator is
told that the consuming stream uses the memory; otherwise it could give it away while it is still being read.
"""

from contextlib import suppress
from typing import Any

import torch

from graphfeed.storage.memory import parts_of

SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""The methods that return the dense tensors of which a sparse tensor consists."""


SIDE_STREAMS: dict[tuple[torch.device, str], torch.cuda.Stream] = {}


def side_stream(device: torch.device, name: str) -> torch.cuda.Stream:
    # One per process, as the allocator keeps separate memory per stream.
    # Threads that come at once get the same. Otherwise one could wait for a stream that nobody works on.
    key = device, name
    return SIDE_STREAMS.get(key) or SIDE_STREAMS.setdefault(key, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def with_index(device: torch.device | str) -> torch.device:
    device = torch.device(device)
    index: int | None = device.index
    # "cuda" becomes the calling thread's current device.
    return torch.device(device.type, torch.cuda.current_device()) if index is None else device


def hand_over(value: Any, event: torch.cuda.Event, device: torch.device) -> None:
    stream = torch.cuda.current_stream(device)
    # The stream waits, but not the calling thread; the event was recorded behind the work that computes the value.
    stream.wait_event(event)
    for part in parts_on_streams(value):
        # Otherwise the allocator could give the memory away while this stream still reads it.
        part.record_stream(stream)


def parts_on_streams(value: Any) -> list[Any]:
    """Return everything in a value whose use by a stream can be recorded, each once."""
    parts: list[Any] = []
    memory = {0}
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # Kept alive: once an object is gone, another one may have its id.
        if isinstance(part, torch.Tensor) and part.layout in SPARSE_PARTS:
            waiting.extend(getattr(part, name)() for name in SPARSE_PARTS[part.layout])
        elif isinstance(part, torch.Tensor):
            # Of tensors that share memory, one is enough.
            address = 0 if part.is_cpu else address_of(part)
            if address not in memory:
                memory.add(address)
                parts.append(part)
        # An object of another library, such as DGL's graphs and PyG's data.
        elif callable(getattr(part, "record_stream", None)):
            parts.append(part)
        else:
            waiting.extend(parts_of(part))
    return parts


def address_of(tensor: torch.Tensor) -> int:
    with suppress(RuntimeError):
        return tensor.untyped_storage().data_ptr()
    # Some show no memory, such as nested tensors; any other number does.
    return -id(tensor)
