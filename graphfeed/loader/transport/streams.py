"""Side streams, and passing tensors from one CUDA stream to another.

The consuming stream waits for an event that the producing stream recorded after its work. In addition, `record_stream`
registers the use with torch's allocator, which could otherwise reuse the memory while it is still being read.
"""

from typing import Any

import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.storage.graph import CSCFormatBase, SampledSubgraph
from graphfeed.storage.memory import child_values

SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""Methods that return the dense tensors of a sparse tensor, by its layout."""
CONTAINERS = {dict, MiniBatch, SampledSubgraph, CSCFormatBase}
"""Types without `record_stream`, for which asking takes long."""
SIDE_STREAMS: dict[tuple[torch.device, str], torch.cuda.Stream] = {}


def side_stream(device: torch.device, name: str) -> torch.cuda.Stream:
    # One per process, because the allocator keeps separate memory per stream. Concurrent threads get the same stream,
    # so that none waits for an unused stream.
    key = device, name
    return SIDE_STREAMS.get(key) or SIDE_STREAMS.setdefault(key, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def with_index(device: torch.device | str) -> torch.device:
    device = torch.device(device)
    index: int | None = device.index
    # "cuda" becomes the calling thread's current device.
    return torch.device(device.type, torch.cuda.current_device()) if index is None else device


def hand_over(value: Any, event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
    # The stream waits, but not the calling thread; the event was recorded after the work that computes the value.
    stream.wait_event(event)
    for part in parts_on_streams(value):
        # Otherwise the allocator could reuse the memory while this stream still reads it.
        part.record_stream(stream)


def parts_on_streams(value: Any) -> list[Any]:
    """Return all parts of a value that have `record_stream`, without duplicates."""
    parts: list[Any] = []
    memory = {0}
    seen: set[int] = set()
    # The loop appends to the list, which also keeps all parts alive: after one is freed, another may have its id.
    waiting = [value]
    for part in waiting:
        if part is None:
            continue
        kind = type(part)
        if kind is torch.Tensor or (kind not in CONTAINERS and isinstance(part, torch.Tensor)):
            if part.layout in SPARSE_PARTS:
                waiting.extend(getattr(part, name)() for name in SPARSE_PARTS[part.layout])
                continue
            # One of several tensors that share memory is enough.
            try:
                address = 0 if part.is_cpu else part.untyped_storage().data_ptr()
            except RuntimeError:  # some tensors, such as nested ones, have no storage; any unique number will do
                address = -id(part)
            if address not in memory:
                memory.add(address)
                parts.append(part)
        elif (number := id(part)) not in seen:
            seen.add(number)
            if kind in CONTAINERS:
                waiting.extend((part if kind is dict else vars(part)).values())
            # An object of another library, such as a graph of DGL or data of PyG.
            elif callable(getattr(part, "record_stream", None)):
                parts.append(part)
            else:
                waiting.extend(child_values(part))
    return parts
