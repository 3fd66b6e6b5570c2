"""Page-locked memory of a fixed size through which rows pass on their way to a GPU."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

import torch

from graphfeed.ops.memory import flat_bytes

BLOCK_BYTES = 1 << 22
TAKE_TIMEOUT_SECONDS = 600.0

Wait = Callable[[], object]
Start = Callable[[int, int, torch.Tensor], Wait]
"""Begins to write the rows from one place to another into a tensor, and returns what waits for them."""
StartPart = Callable[[int, int, torch.Tensor], Wait]
"""Begins to write bytes of the row at a place into a uint8 tensor, from one of its bytes on."""


class PinnedBlock:
    """A piece of page-locked memory, and the end of the last copy out of it."""

    def __init__(self, num_bytes: int) -> None:
        self.memory = torch.empty(num_bytes, dtype=torch.uint8, device="cpu").pin_memory()
        # Who waits for a blocking event sleeps, and takes no core from those that read.
        self.copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]


class Filling(NamedTuple):
    """A block that is being filled with some bytes of the result."""

    begin: int
    end: int
    block: PinnedBlock
    memory: torch.Tensor
    wait: Wait


class Staging:
    """Blocks of page-locked memory that threads take in turn, each made when it is first taken."""

    def __init__(self, block_bytes: int = BLOCK_BYTES, num_blocks: int = 4) -> None:
        # While one block is copied to a GPU on the current stream, the next one is filled. Memory that is not
        # page-locked would first be copied by CUDA to memory that is, while the caller waits.
        self.block_bytes = block_bytes
        self._free: SimpleQueue[PinnedBlock | None] = SimpleQueue()
        for _ in range(num_blocks):
            # None stands for a block that is still to be made.
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
        """Return rows on a GPU, for the current stream: their last copies may not be done yet."""
        # `start` begins to write some rows into the memory of a block; `start_part` does so for parts of a row that is
        # larger than a block. What they raise, or what they return raises, is passed on.
        out = torch.empty((count, *shape), dtype=dtype, device=device)
        target = flat_bytes(out)
        filling: deque[Filling] = deque()
        try:
            for begin, end, fill in self._pieces(start, start_part, out):
                block = self._take(wait=not filling)
                if block is None:
                    # Other threads have them all. Whoever waits for a block must hold none.
                    self._copy(filling, target)
                    block = self._take(wait=True)
                assert block is not None
                memory = block.memory[: end - begin]
                # It is noted before it is filled, so that a failure of `fill` gives the place of the block back.
                filling.append(Filling(begin, end, block, memory, do_nothing))
                filling[-1] = filling[-1]._replace(wait=fill(memory))
                if len(filling) > 1:
                    self._copy(filling, target)
            while filling:
                self._copy(filling, target)
        finally:
            # Only after a failure. What was to fill these blocks, or to read them, may still do so: others take their
            # places.
            for _ in filling:
                self._free.put(None)
        return out

    def _pieces(
        self, start: Start, start_part: StartPart, out: torch.Tensor
    ) -> Iterator[tuple[int, int, Callable[[torch.Tensor], Wait]]]:
        """Yield bounds of bytes of the result that fit into a block, and what begins to write them."""
        if not out.numel():
            return
        count, row_bytes = out.shape[0], out[0].nbytes
        step = self.block_bytes // row_bytes
        # As many whole rows as fit into a block, or parts of one row if it is larger.
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
        try:
            if block is None:
                return PinnedBlock(self.block_bytes)
            block.copied.synchronize()
        except BaseException:
            # The place of the block stays, even if no memory could be locked for it.
            self._free.put(None)
            raise
        return block

    def _copy(self, filling: deque[Filling], target: torch.Tensor) -> None:
        """Wait for the oldest block to be filled, begin to copy it, and let others take it."""
        own = filling[0]
        own.wait()
        target[own.begin : own.end].copy_(own.memory, non_blocking=True)
        # The copy may still run when the block is put back: whoever takes it waits for this event.
        own.block.copied.record(torch.cuda.current_stream(target.device))
        filling.popleft()
        self._free.put(own.block)


def _fill_rows(start: Start, row: int, like: torch.Tensor, memory: torch.Tensor) -> Wait:
    return start(row, row + len(like), memory.view(like.dtype).view(like.shape))


def do_nothing() -> None:
    """Stand for waiting where there is nothing to wait for."""


STAGING: dict[torch.device, Staging] = {}


def staging(device: torch.device) -> Staging:
    # Threads that come at once get the same.
    # One for each GPU, shared by all threads of this process: events belong to one device.
    return STAGING.get(device) or STAGING.setdefault(device, Staging())
