"""Run a part of a pipeline on a stream, each mini-batch with the event behind it."""

from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe

END = object()


class WithCudaEvent(Datapipe):
    """Runs what comes before it on a stream; yields each mini-batch with the event behind the work that makes it."""

    datapipe: Datapipe
    stream: torch.cuda.Stream

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[tuple[Any, torch.cuda.Event]]:
        """Run it, with that stream as the current one while something is made."""
        minibatches = iter(self.datapipe)
        try:
            while True:
                with torch.cuda.stream(self.stream):
                    minibatch = next(minibatches, END)
                    event = self.stream.record_event()
                if minibatch is END:
                    return
                yield minibatch, event
        finally:
            if hasattr(minibatches, "close"):
                minibatches.close()
