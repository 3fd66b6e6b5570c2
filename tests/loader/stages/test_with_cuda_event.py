from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.stages.with_cuda_event import WithCudaEvent
from graphfeed.loader.transport.streams import side_stream, with_index
from tests.loader.late_streams import CALLER, OTHER_VALUE, current_stream, late_streams

DEVICE = torch.device("meta")


class Streams(gf.Datapipe):
    """Gives the stream that is current while it runs."""

    datapipe: gf.Datapipe
    closed: list[str]

    def __iter__(self):  # type: ignore[no-untyped-def]
        try:
            for _ in self.datapipe:
                yield current_stream()
        finally:
            self.closed.append(str(current_stream()))


def items() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=1)


def test_its_stream_is_current_while_something_is_made_and_only_then() -> None:
    with late_streams():
        stream = side_stream(DEVICE, "mine")
        recorded = WithCudaEvent(Streams(items(), []), "mine", DEVICE)
        for used, event in recorded:
            assert used is stream
            assert event.stream is stream  # type: ignore[attr-defined]
            assert current_stream() is CALLER


def test_each_event_is_behind_the_work_of_its_mini_batch() -> None:
    with late_streams():
        recorded: Any = WithCudaEvent(items().copy_to("meta", True), "mine", DEVICE)
        for place, (minibatch, event) in enumerate(recorded):
            assert minibatch.seeds.held.tolist() == [OTHER_VALUE]
            current_stream(DEVICE).wait_event(event)
            assert minibatch.seeds.tolist() == [place]


def test_what_it_runs_is_closed_with_it_on_its_stream() -> None:
    closed: list[str] = []
    with late_streams():
        minibatches = iter(WithCudaEvent(Streams(items(), closed), "mine", DEVICE))
        next(minibatches)
        minibatches.close()  # type: ignore[attr-defined]
        assert closed == [str(side_stream(DEVICE, "mine"))]


@pytest.mark.gpu
def test_on_a_device_events_pass_when_the_work_is_done() -> None:
    device = with_index("cuda")
    found: list[Any] = list(WithCudaEvent(items().copy_to("cuda"), "mine", device))
    side_stream(device, "mine").synchronize()
    assert [event.query() for _, event in found] == [True] * 3
