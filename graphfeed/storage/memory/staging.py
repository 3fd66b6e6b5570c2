"""Page-locked memory of a fixed size through which rows pass on their way to a GPU."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import NamedTuple

import torch

BLOCK_BYTES = 1 << 22
NUM_BLOCKS = 4
TAKE_TIMEOUT_SECONDS = 600.0

Start = Callable[[int, int, torch.Tensor], Callable[[], object]]
"""Begins to write the rows from one place to another into a tensor, and returns what waits for them."""


class Block:
    """A piece of page-locked memory, and the end of the last copy out of it."""

    def __init__(self, num_bytes: int) -> None:
        self.memory = torch.empty(num_bytes, dtype=torch.uint8).pin_memory()
        self.copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self.is_used = False


class Filling(NamedTuple):
    """A block that is being filled with some rows."""

    begin: int
    end: int
    block: Block
    rows: torch.Tensor
    wait: Callable[[], object]


class Staging:
    """Blocks of page-locked memory that threads take in turn.

    While one block is copied to a GPU on the current stream, the next one is filled. Memory that is not page-locked
    would first be copied to memory that is, by CUDA and while the caller waits.

    Args:
        block_bytes: The size of a block.
        num_blocks: How many blocks there are.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES, num_blocks: int = NUM_BLOCKS) -> None:
        self.block_bytes = block_bytes
        self._free: SimpleQueue[Block] = SimpleQueue()
        for _ in range(num_blocks):
            self._free.put(Block(block_bytes))

    def send(
        self, start: Start, count: int, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return rows on a GPU, for the current stream: their last copies may not be done yet.

        Args:
            start: Called for each block in turn; it begins to write some of the rows into page-locked memory.
            count: The number of rows.
            shape: The shape of a row, which must take a byte or more and fit into a block.
            dtype: The dtype of the rows.
            device: The GPU.
        """
        out = torch.empty((count, *shape), dtype=dtype, device=device)
        row_bytes = shape.numel() * dtype.itemsize
        step = self.block_bytes // row_bytes
        filling: deque[Filling] = deque()
        try:
            for begin in range(0, count, step):
                end = min(begin + step, count)
                block = self._take(wait=not filling)
                if block is None:
                    # Other threads have them all. Whoever waits for a block must hold none.
                    self._copy(filling, out)
                    block = self._take(wait=True)
                assert block is not None
                rows = block.memory[: (end - begin) * row_bytes].view(dtype).view(end - begin, *shape)
                filling.append(Filling(begin, end, block, rows, _nothing))
                filling[-1] = filling[-1]._replace(wait=start(begin, end, rows))
                if len(filling) > 1:
                    self._copy(filling, out)
            while filling:
                self._copy(filling, out)
        finally:
            # Only after a failure; nobody may write into a block that another thread takes.
            for left in filling:
                with suppress(Exception):
                    left.wait()
                self._free.put(left.block)
        return out

    def _take(self, wait: bool) -> Block | None:
        """Return a free block whose last copy is done; None if there is none and none is to be waited for."""
        try:
            block = self._free.get(wait, TAKE_TIMEOUT_SECONDS)
        except Empty as error:
            if not wait:
                return None
            raise TimeoutError(
                f"no block of page-locked memory was free for {TAKE_TIMEOUT_SECONDS:.0f} s; do other threads that read "
                "features for a GPU still run?"
            ) from error
        if block.is_used:
            block.copied.synchronize()
        return block

    def _copy(self, filling: deque[Filling], out: torch.Tensor) -> None:
        """Wait for the oldest block to be filled, and begin to copy it."""
        filling[0].wait()
        own = filling.popleft()
        out[own.begin : own.end].copy_(own.rows, non_blocking=True)
        own.block.copied.record(torch.cuda.current_stream(out.device))
        own.block.is_used = True
        self._free.put(own.block)


def _nothing() -> None:
    """Stand for a read that has not begun."""


@cache
def staging(device: torch.device) -> Staging:  # noqa: ARG001
    """Return the blocks that the threads of this process share for a GPU; events belong to one device."""
    return Staging()
