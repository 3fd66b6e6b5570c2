"""Run a part of a pipeline on a CUDA stream, and record an event after each mini-batch."""

from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes import Datapipe
from graphfeed.loader.run import END
from graphfeed.loader.transport.streams import side_stream


class WithCudaEvent(Datapipe[Any]):
    """Runs the stages before it on a stream; yields each mini-batch with an event recorded after its work.

    It makes the stream's device the current one of the thread that iterates it, which must be its own.
    """

    datapipe: Datapipe
    stream: str
    """The name of the stream."""
    device: torch.device

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[tuple[Any, torch.cuda.Event]]:
        # A thread starts on device 0. Going back to it from the stream of another would take memory on it.
        torch.cuda.set_device(self.device)
        stream, minibatches = side_stream(self.device, self.stream), iter(self.datapipe)
        try:
            while True:
                # The stream is the current one only while a mini-batch is made, not while this generator is suspended.
                with torch.cuda.stream(stream):
                    minibatch = next(minibatches, END)
                    event = stream.record_event()
                if minibatch is END:
                    return
                yield minibatch, event
        finally:
            if hasattr(minibatches, "close"):
                with torch.cuda.stream(stream):  # which waits for streams inside, rather than the thread's own stream
                    minibatches.close()
