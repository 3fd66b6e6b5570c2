"""A lock for tensors on a device that several threads use, each thread on a stream of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphfeed.ops import is_gpu


class StreamOrderedLock:
    """Lets one thread at a time use some tensors. On a GPU, its stream also waits for the stream of the last holder.

    The first holder waits for the stream that was current when the lock was made, where the tensors get their values.

    A thread never waits for the device here. It waits only for other threads while they launch their kernels.

    Args:
        tensors: The tensors to protect, all on one device. They live until every stream is done with them.

    Example:
        >>> total = torch.zeros(2)
        >>> lock = StreamOrderedLock(total)
        >>> with lock.acquire():
        ...     total += 1
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.device = tensors[0].device
        self.lock = threading.Lock()
        self.last = torch.cuda.current_stream(self.device).record_event() if is_gpu(self.device) else None
        """On a GPU, the event recorded behind the work of the last holder."""

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold the lock for the length of a `with` block."""
        with self.lock:
            if self.last is None:
                yield
                return
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self.last)
            for tensor in self.tensors:
                tensor.record_stream(stream)
            try:
                yield
            finally:
                self.last = stream.record_event()
