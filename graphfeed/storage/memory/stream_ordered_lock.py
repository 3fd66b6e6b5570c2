"""A lock for tensors on a device that several threads use, each thread on a stream of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphfeed.ops import is_gpu


class StreamOrderedLock:
    """Lets one thread at a time use tensors of one device; its stream waits for that of the last holder."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.device = tensors[0].device
        self.lock = threading.Lock()
        # The first holder waits for the stream that is current here, where the tensors get their values.
        self.last = torch.cuda.current_stream(self.device).record_event() if is_gpu(self.device) else None
        """On a GPU, the event recorded behind the work of the last holder."""

    @contextmanager
    def acquire(self) -> Iterator[None]:
        with self.lock:
            if self.last is None:
                yield
                return
            # Only the stream waits for the device. A thread waits for other threads alone, while they launch their
            # kernels.
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self.last)
            for tensor in self.tensors:
                # The tensors' memory lives until every stream is done with them.
                tensor.record_stream(stream)
            try:
                yield
            finally:
                self.last = stream.record_event()
