"""Run a part of a pipeline on a stream, each mini-batch with the event behind it."""

from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.loader.transport.streams import side_stream

END = object()


class WithCudaEvent(Datapipe):
    """Runs what comes before it on a stream; yields each mini-batch with the event behind the work that makes it."""

    datapipe: Datapipe
    stream: str
    """The name of the stream."""
    device: torch.device

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[tuple[Any, torch.cuda.Event]]:
        """Run it, with that stream as the current one while something is made."""
        stream, minibatches = side_stream(self.device, self.stream), iter(self.datapipe)
        try:
            while True:
                with torch.cuda.stream(stream):
                    minibatch = next(minibatches, END)
                    event = stream.record_event()
                if minibatch is END:
                    return
                yield minibatch, event
        finally:
            if hasattr(minibatches, "close"):
                minibatches.close()
