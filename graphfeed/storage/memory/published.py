"""Tensors on a GPU that one CUDA stream makes, and every stream may read."""

from collections.abc import Sequence
from typing import Any, Self

import torch

from graphfeed.ops import on_gpu


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
