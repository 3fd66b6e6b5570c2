"""Stages that run a part of a pipeline in a thread, ahead of its reader, optionally on a separate CUDA stream."""

import copy
import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import field
from typing import Any, ClassVar

import torch

from graphfeed.datapipes import Datapipe, MiniBatch, Transform, length
from graphfeed.datapipes.pipeline import Placement, find
from graphfeed.loader.executors.thread_executor import ENDINGS, describe_work, join_or_abandon
from graphfeed.loader.run import END, RUN_OF, RunContext, current_run
from graphfeed.loader.transport.streams import hand_over, side_stream, with_index
from graphfeed.loader.transport.thread_channel import Closed, Failure, ThreadChannel
from graphfeed.ops.process import uninterrupted
from graphfeed.storage.memory import to_device


def feed(cut: "Prefetch", run: RunContext, channel: ThreadChannel) -> None:
    """Put the mini-batches of the stages before `cut` into a channel, until they end or fail, or the reader stops."""
    try:
        for minibatch in run.drive(cut.datapipe):
            if not run.wait(cut, "maker", channel.put, minibatch):
                return
    except BaseException as error:
        channel.put(Failure(error))
    finally:
        channel.close()


class Prefetch(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Runs the stages before it in a thread, some mini-batches ahead. The thread ends if its iterator is abandoned."""

    datapipe: Datapipe[Any]
    buffer_size: int = 2
    timeout_seconds: float = field(default=600.0, repr=False)
    pins: ClassVar[bool] = False
    """Whether large results are pinned, because a later stage would pin them. Assigned in a copy."""

    def __iter__(self) -> Iterator[Any]:
        run, channel = current_run(self), ThreadChannel(self.buffer_size)
        ahead = run.nested(pins=self.pins)
        ahead.when_cancelled(channel.close)
        thread = threading.Thread(target=feed, args=(self, ahead, channel), name="graphfeed-prefetch", daemon=True)
        ENDINGS[thread] = ahead.cancel
        with uninterrupted():
            thread.start()
        try:
            while True:
                try:
                    item = run.wait(self, "reader", channel.get, self.timeout_seconds)
                except Closed:
                    return
                except TimeoutError as error:
                    raise TimeoutError(
                        f"the prefetch thread produced no mini-batch for {self.timeout_seconds:g} s "
                        f"({describe_work(thread)}); a stage hangs, or is slower than that: "
                        "give the DataLoader a larger timeout"
                    ) from error
                if isinstance(item, Failure):
                    raise item.error
                yield item
        finally:
            ahead.cancel()
            join_or_abandon([thread])

    def __len__(self) -> int:
        return length(self.datapipe)


class WithCudaEvent(Datapipe[Any], one_to_one=True, inserted=True, seeded=False):
    """Runs the stages before it on a stream; yields each mini-batch with an event recorded after its work.

    The stream's device becomes the current device of the thread that iterates it, so that must be a separate thread.
    """

    datapipe: Datapipe
    stream: str
    """Name of the stream."""
    device: torch.device

    def __iter__(self) -> Iterator[tuple[Any, torch.cuda.Event]]:
        # A thread starts on device 0. Returning to it from the stream of another device would use memory on it.
        torch.cuda.set_device(self.device)
        stream, minibatches = side_stream(self.device, self.stream), iter(self.datapipe)
        try:
            while True:
                # The stream is current only while a mini-batch is produced, not while this generator is suspended.
                with torch.cuda.stream(stream):
                    minibatch = next(minibatches, END)
                    event = stream.record_event()
                if minibatch is END:
                    return
                yield minibatch, event
        finally:
            if hasattr(minibatches, "close"):
                with torch.cuda.stream(stream):  # this stream waits for inner streams, rather than the thread's stream
                    minibatches.close()


class StreamPrefetch(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Runs the stages before it in a separate thread and CUDA stream, some mini-batches ahead.

    When the caller gets a mini-batch, its current stream waits for it, but the caller does not. If the caller issues
    steps faster than the device runs them, it waits for the step `buffer_size + 1` steps back, so that no more than
    that many mini-batches are in use on the device.

    The stream waits for the work that the caller issued before the epoch. Later changes of device memory, such as
    updates of a feature, are not ordered with prefetched work. When the epoch ends or is left early, the caller's
    stream waits for this stream, so that memory which the caller then frees or changes is no longer in use.
    """

    datapipe: Datapipe
    stream: str
    """Name of the stream. Stages with the same name share one stream per device."""
    device: torch.device | str
    buffer_size: int = 2
    timeout_seconds: float = field(default=600.0, repr=False)

    def __iter__(self) -> Iterator[Any]:
        device = with_index(self.device)
        run = current_run(self)
        side, reader = side_stream(device, self.stream), torch.cuda.current_stream(device)
        side.wait_stream(reader)
        used: deque[torch.cuda.Event] = deque()
        try:
            with closing(self.ahead(run, device, side)) as ahead:
                for minibatch, event in ahead:
                    if len(used) > self.buffer_size:
                        step = used.popleft()
                        if not step.query():  # type: ignore[no-untyped-call]
                            run.wait(self, "reader", step.synchronize)
                    hand_over(minibatch, event, reader)
                    yield minibatch
                    # Waiting for a non-blocking event would keep a core busy.
                    step = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                    reader = torch.cuda.current_stream(device.index)  # torch parses numbers faster
                    used.append(reader.record_event(step))
        finally:
            # The garbage collector may run this in a thread with another current stream.
            reader.wait_stream(side)

    def ahead(
        self,
        run: RunContext,
        device: torch.device,
        side: torch.cuda.Stream,  # noqa: ARG002
    ) -> Generator[tuple[Any, torch.cuda.Event], None, None]:
        """Yield mini-batches, each with an event that follows its work on the side stream."""
        prefetch = Prefetch(WithCudaEvent(self.datapipe, self.stream, device), self.buffer_size, self.timeout_seconds)
        prefetch = prefetch.changed(pins=bool(find(self.datapipe, Pin)))
        RUN_OF[prefetch] = run
        yield from prefetch

    def __len__(self) -> int:
        return length(self.datapipe)


class Pin(Transform, runs_in=Placement.MAIN, keeps_values=True, inserted=True, seeded=False):
    """Copies the tensors of a mini-batch to pinned memory. Requires CUDA."""

    def __call__(self, minibatch: Any) -> Any:
        if isinstance(minibatch, MiniBatch):
            return copy.copy(minibatch).to("pinned")
        return to_device(minibatch, "pinned")
