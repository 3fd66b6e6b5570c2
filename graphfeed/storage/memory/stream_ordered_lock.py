"""Memory on a device that several threads use, each on a stream of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StreamOrderedLock:
    """Lets one thread at a time use some tensors; on a GPU its stream waits until the one before is done with them.

    No thread waits for a device, only for other threads while they start their kernels.

    Args:
        tensors: What is used; all on one device. They last until every stream is done with them.

    Example:
        >>> held = torch.zeros(2)
        >>> turns = StreamOrderedLock(held)
        >>> with turns.take():
        ...     held += 1
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.lock = threading.Lock()
        self.last: torch.cuda.Event | None = None
        """When the one before is done, on a GPU."""

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for the tensors, and keep them for as long as the block lasts."""
        with self.lock:
            if self.tensors[0].device.type != "cuda":
                yield
                return
            stream = torch.cuda.current_stream(self.tensors[0].device)
            if self.last is not None:
                stream.wait_event(self.last)
            for tensor in self.tensors:
                tensor.record_stream(stream)
            try:
                yield
            finally:
                self.last = stream.record_event()
