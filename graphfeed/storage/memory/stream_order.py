"""Tensors on a GPU that several threads use, each on a CUDA stream of its own."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch

from graphfeed.ops import is_gpu, on_gpu


class Published:
    """Remembers behind which work of which stream some tensors are made; None: they are there."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        # A kernel is started before it has run, so another thread may find tensors that are not written yet.
        self.event = None if stream is None else stream.record_event()

    @classmethod
    def on_gpu(cls, tensors: Sequence[torch.Tensor | None]) -> list[Self]:
        device = next((tensor.device for tensor in tensors if tensor is not None and on_gpu(tensor)), None)
        return [] if device is None else [cls(torch.cuda.current_stream(device))]

    def wait(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """Let the calling thread's current stream wait for the tensors, and keep their memory until it is done."""
        if self.stream is None or self.event is None:
            return
        # It is the stream that waits, not the thread.
        stream = torch.cuda.current_stream(self.stream.device)
        stream.wait_event(self.event)
        for tensor in tensors:
            if tensor is not None and on_gpu(tensor):
                # Their memory is not used for anything else before this stream is done with them.
                tensor.record_stream(stream)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process gets tensors that are there, so there is nothing to wait for.
        return type(self), (None,)


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
