"""Copies of rows to a GPU through page-locked blocks."""

from collections import deque
from collections.abc import Callable

import torch

BLOCK_BYTES = 1 << 22
MOST_COPIES = 2
"""Maximum number of blocks that are being copied while others are filled."""

Wait = Callable[[], object]
Start = Callable[[int, int, torch.Tensor], Wait]
"""Starts to write the rows `begin .. end - 1` into a tensor; returns a function that waits for them."""


def send_rows(start: Start, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return rows on a GPU, ready on the current stream: the last copies may still be running.

    While one block is copied, the next one is filled. CUDA would first copy pageable memory to page-locked memory, and
    block the caller. Torch reuses the blocks, but neither during a copy nor before `start` has dropped the tensor.

    Args:
        start: Writes the rows of a block. Its exceptions, and those of the functions that it returns, propagate.
        shape, dtype, device: The result's. A row that is larger than 4 MiB has a larger block.
    """
    out = torch.empty(shape, dtype=dtype, device=device)
    if not out.numel():
        return out
    filling: deque[tuple[torch.Tensor, torch.Tensor, Wait]] = deque()
    copied: deque[torch.cuda.Event] = deque()

    def copy_oldest() -> None:
        target, rows, wait = filling.popleft()
        wait()
        target.copy_(rows, non_blocking=True)
        # A thread that waits for a blocking event sleeps, and leaves its core to the threads that read.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        copied.append(torch.cuda.current_stream(device).record_event(event))

    step = max(BLOCK_BYTES // out[0].nbytes, 1)
    for begin in range(0, len(out), step):
        if len(copied) == MOST_COPIES:
            copied.popleft().synchronize()
        target = out[begin : begin + step]
        rows = torch.empty(target.shape, dtype=dtype, device="cpu", pin_memory=True)
        filling.append((target, rows, start(begin, begin + len(target), rows)))
        if len(filling) > 1:
            copy_oldest()
    while filling:
        copy_oldest()
    return out


def do_nothing() -> None:
    """Placeholder where there is nothing to wait for."""
