"""Run a part of a pipeline on a stream of its own, ahead of who reads it."""

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import field
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe, length
from graphfeed.loader.run import current_run
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.loader.stages.with_cuda_event import WithCudaEvent
from graphfeed.loader.transport.streams import hand_over, side_stream, with_index


class StreamPrefetch(Datapipe):
    """Runs what comes before it in a thread and on a CUDA stream of its own, some mini-batches ahead.

    So copies, kernels and what waits for their results go on while the caller's step computes. When a mini-batch is
    taken, the caller's current stream waits for it, but the caller doesn't. Where the caller asks for steps faster than
    the device does them, it waits for the one that is `buffer_size` and one more steps back, so that no more than their
    mini-batches are kept for the device.

    The stream starts behind what the caller has asked of the device before the epoch; what it changes there later, such
    as a feature, has no order with what is read ahead.
    """

    datapipe: Datapipe
    stream: str
    """Names it: parts of that name share one stream a device."""
    device: torch.device | str
    buffer_size: int = 2
    timeout_seconds: float = field(default=600.0, repr=False)

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        """Yield what the thread makes, for use on the current stream."""
        device = with_index(self.device)
        run = current_run()
        side_stream(device, self.stream).wait_stream(torch.cuda.current_stream(device))
        used: deque[torch.cuda.Event] = deque()
        prefetch = Prefetch(WithCudaEvent(self.datapipe, self.stream, device), self.buffer_size, self.timeout_seconds)
        with closing(iter(prefetch)) as ahead:  # type: ignore[type-var]
            for minibatch, event in ahead:
                if len(used) > self.buffer_size:
                    run.wait(self, "reader", used.popleft().synchronize)
                hand_over(minibatch, event, device)
                yield minibatch
                used.append(torch.cuda.current_stream(device).record_event())

    def __len__(self) -> int:
        """Return the number of mini-batches of an epoch."""
        return length(self.datapipe)
