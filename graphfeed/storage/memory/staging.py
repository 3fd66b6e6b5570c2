"""Staging buffers in page-locked memory for copies of rows to a GPU."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

import torch

from graphfeed.ops.memory import flat_bytes
from graphfeed.ops.process import current_limits

BLOCK_BYTES = 1 << 22

Wait = Callable[[], object]
Start = Callable[[int, int, torch.Tensor], Wait]
"""Starts to write the rows `begin .. end - 1` into a tensor; returns a function that waits for them."""
StartPart = Callable[[int, int, torch.Tensor], Wait]
"""Starts to write bytes of a row into a uint8 tensor. Arguments: position of the row, first byte of the row, tensor."""


class PinnedBlock:
    """A page-locked buffer, and the event of the last copy from it."""

    def __init__(self, num_bytes: int) -> None:
        self.memory = torch.empty(num_bytes, dtype=torch.uint8, device="cpu").pin_memory()
        # A thread that waits for a blocking event sleeps, and leaves its core to the threads that read.
        self.copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


class Filling(NamedTuple):
    """A block that is being filled with the bytes `begin .. end - 1` of the result."""

    begin: int
    end: int
    block: PinnedBlock
    memory: torch.Tensor
    wait: Wait


class Staging:
    """A pool of page-locked blocks, shared by threads and allocated on first use."""

    def __init__(self, block_bytes: int = BLOCK_BYTES, num_blocks: int = 4) -> None:
        # While one block is copied to a GPU on the current stream, the next one is filled. CUDA would first copy
        # pageable memory to page-locked memory, and block the caller.
        self.block_bytes = block_bytes
        self._free: SimpleQueue[PinnedBlock | None] = SimpleQueue()
        for _ in range(num_blocks):
            # None stands for a block that isn't allocated yet.
            self._free.put(None)

    def send(
        self,
        start: Start,
        start_part: StartPart,
        count: int,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
    ) -> torch.Tensor:
        """Return `count` rows on a GPU, ready on the current stream: the last copies may still be running."""
        # `start` starts to write rows into the memory of a block, `start_part` a part of a row that is larger than a
        # block. Their exceptions, and those of the functions that they return, propagate.
        out = torch.empty((count, *shape), dtype=dtype, device=device)
        target = flat_bytes(out)
        filling: deque[Filling] = deque()
        try:
            for begin, end, fill in self._pieces(start, start_part, out):
                block = self._take(wait=not filling)
                if block is None:
                    # Other threads have them all. A thread that waits for a block must hold none.
                    self._copy(filling, target)
                    block = self._take(wait=True)
                assert block is not None
                memory = block.memory[: end - begin]
                # Appended before it is filled, so that the block is replaced if `fill` fails.
                filling.append(Filling(begin, end, block, memory, do_nothing))
                filling[-1] = filling[-1]._replace(wait=fill(memory))
                if len(filling) > 1:
                    self._copy(filling, target)
            while filling:
                self._copy(filling, target)
        finally:
            # Only after a failure. These blocks may still be written or read, so new ones replace them.
            for _ in filling:
                self._free.put(None)
        return out

    def _pieces(
        self, start: Start, start_part: StartPart, out: torch.Tensor
    ) -> Iterator[tuple[int, int, Callable[[torch.Tensor], Wait]]]:
        """Yield byte ranges of the result that fit into a block, and functions that start to write them."""
        if not out.numel():
            return
        count, row_bytes = out.shape[0], out[0].nbytes
        step = self.block_bytes // row_bytes
        # As many rows as fit into a block, or parts of a row that is larger than a block.
        if step:
            for row in range(0, count, step):
                end = min(row + step, count)
                yield row * row_bytes, end * row_bytes, partial(_fill_rows, start, row, out[row:end])
            return
        for row in range(count):
            for skipped in range(0, row_bytes, self.block_bytes):
                end = min(skipped + self.block_bytes, row_bytes)
                yield row * row_bytes + skipped, row * row_bytes + end, partial(start_part, row, skipped)

    def _take(self, wait: bool) -> PinnedBlock | None:
        """Return a free block whose last copy is complete; None if no block is free and `wait` is False."""
        seconds = current_limits().read_seconds
        try:
            block = self._free.get(wait, seconds)
        except Empty as error:
            if not wait:
                return None
            raise TimeoutError(
                f"no block of page-locked memory was free for {seconds:.0f} s; do other threads that read "
                "features for a GPU still run?"
            ) from error
        try:
            if block is None:
                return PinnedBlock(self.block_bytes)
            block.copied.synchronize()
        except BaseException:
            # The pool keeps its size, even if no memory could be locked.
            self._free.put(None)
            raise
        return block

    def _copy(self, filling: deque[Filling], target: torch.Tensor) -> None:
        """Wait until the oldest block is filled, start to copy it, and return it to the pool."""
        own = filling[0]
        own.wait()
        target[own.begin : own.end].copy_(own.memory, non_blocking=True)
        # The copy may still run when the block is returned: the next user waits for this event.
        own.block.copied.record(torch.cuda.current_stream(target.device))
        filling.popleft()
        self._free.put(own.block)


def _fill_rows(start: Start, row: int, like: torch.Tensor, memory: torch.Tensor) -> Wait:
    return start(row, row + len(like), memory.view(like.dtype).view(like.shape))


def do_nothing() -> None:
    """Placeholder where there is nothing to wait for."""


STAGING: dict[torch.device, Staging] = {}


def staging(device: torch.device) -> Staging:
    # One for each GPU, since events belong to a device. Concurrent threads get the same one.
    return STAGING.get(device) or STAGING.setdefault(device, Staging())
