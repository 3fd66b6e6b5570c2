"""GPU tensors that several threads use, each on its own CUDA stream."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch

from graphfeed.ops import is_gpu, on_gpu


class Published:
    """The CUDA event after which tensors written on a stream are ready. If `stream` is None, they are ready already."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        # Kernels run asynchronously, so another thread may see tensors that are not written yet.
        self.event = None if stream is None else stream.record_event()

    @classmethod
    def on_gpu(cls, tensors: Sequence[torch.Tensor | None]) -> list[Self]:
        device = next((tensor.device for tensor in tensors if tensor is not None and on_gpu(tensor)), None)
        return [] if device is None else [cls(torch.cuda.current_stream(device))]

    def wait(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """Make the current stream wait for the tensors, and keep their memory until the stream is done with them."""
        if self.stream is None or self.event is None:
            return
        # The stream waits, not the thread.
        stream = torch.cuda.current_stream(self.stream.device)
        if stream == self.stream:
            return
        stream.wait_event(self.event)
        for tensor in tensors:
            if tensor is not None and on_gpu(tensor):
                # Their memory is not reused before this stream is done with them.
                tensor.record_stream(stream)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process receives tensors that are ready.
        return type(self), (None,)


class StreamOrderedLock:
    """A lock on tensors of one device. The holder's stream waits for the work of the previous holder."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.device = tensors[0].device
        self.lock = threading.Lock()
        # The first holder waits for the current stream, on which the tensors are initialized.
        self.last = torch.cuda.current_stream(self.device).record_event() if is_gpu(self.device) else None
        """On a GPU, the event recorded after the work of the last holder."""

    @contextmanager
    def acquire(self) -> Iterator[None]:
        with self.lock:
            if self.last is None:
                yield
                return
            # Only the stream waits for the device; a thread waits only while other threads launch their kernels.
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self.last)
            for tensor in self.tensors:
                # The tensors' memory lives until every stream is done with them.
                tensor.record_stream(stream)
            try:
                yield
            finally:
                self.last = stream.record_event()
