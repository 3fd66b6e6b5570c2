"""Streams of a device: producing on a stream, waiting for it, recording its use, and pinning for it."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.stages.prefetch import Pin, WithCudaEvent
from graphfeed.loader.transport.streams import hand_over, parts_on_streams, side_stream, with_index
from tests.at_once import by_two_threads
from tests.loader.late_streams import CALLER, OTHER_VALUE, Stream, current_stream, late_streams
from tests.ops.emulated_cuda import Pretended


class Holder:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class TheirGraph:
    """An object of another library, which knows its tensors on a device."""

    hidden = Pretended(torch.ones(1))

    def record_stream(self, stream: Any) -> None:
        """Do nothing."""


def test_every_tensor_on_a_device_is_found_once() -> None:
    first, second, third = (Pretended(torch.ones(2)) for _ in range(3))
    batch = gf.MiniBatch(seeds=first, node_features={"feat": second}, labels=torch.ones(2))
    batch.mine = [(Holder(again=first, inside={"x": third}), "text", None)]  # type: ignore[attr-defined]
    batch.key = gf.ops.Key(1, 2, 3)
    found = parts_on_streams([batch, batch])
    assert {id(part) for part in found} == {id(first), id(second), id(third)}
    assert len(found) == 3


def test_of_tensors_that_share_memory_one_is_enough() -> None:
    first, second = Pretended(torch.ones(4)), Pretended(torch.ones(2))
    assert len(parts_on_streams([first[:1], first[2:], second, Pretended(torch.ones(0))])) == 2


class Wrapper(torch.Tensor):
    """Has no accessible storage, like nested tensors and those of torch.distributed."""

    @staticmethod
    def __new__(cls) -> "Wrapper":
        return torch.Tensor._make_wrapper_subclass(cls, (2,), device=torch.device("cuda", 0))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NotImplemented


def test_a_tensor_that_shows_no_memory_is_told_of_itself() -> None:
    wrapper = Wrapper()
    assert parts_on_streams([wrapper, [wrapper], torch.ones(2, device="meta")]) == [wrapper]


def test_what_knows_its_own_tensors_is_asked_itself() -> None:
    graph = TheirGraph()
    assert parts_on_streams({"graph": graph}) == [graph]


def test_objects_that_hold_each_other_are_looked_into_once() -> None:
    left, tensor = Holder(), Pretended(torch.ones(1))
    left.right = Holder(left=left, tensor=tensor)  # type: ignore[attr-defined]
    assert parts_on_streams(left) == [tensor]


@pytest.mark.gpu
def test_sparse_tensors_are_taken_apart() -> None:
    dense = torch.eye(3, device="cuda")
    for sparse, count in ((dense.to_sparse(), 2), (dense.to_sparse_csr(), 3), (dense.to_sparse_csc(), 3)):
        parts = parts_on_streams([sparse])
        assert len(parts) == count
        for part in parts:
            part.record_stream(torch.cuda.current_stream())


def test_sparse_tensors_of_the_cpu_have_nothing_to_hand_over() -> None:
    assert parts_on_streams([torch.eye(3).to_sparse()]) == []


def test_handing_over_waits_first_and_tells_the_allocator() -> None:
    with late_streams() as log:
        tensor, other = Pretended(torch.ones(2)), Stream()
        hand_over({"x": tensor}, other.record_event(), torch.device("meta", 0))  # type: ignore[arg-type]
        assert log == [(other.name, "records"), (CALLER.name, "waits for", other.name)]
        assert tensor.used_on == {CALLER.name}


def test_a_device_has_one_stream_of_a_name() -> None:
    with late_streams():
        first, second = torch.device("meta", 0), torch.device("meta", 1)
        assert side_stream(first, "copy") is side_stream(torch.device("meta:0"), "copy")
        assert len({id(side_stream(device, name)) for device in (first, second) for name in ("copy", "graph")}) == 4


def test_threads_that_come_at_once_get_the_same_stream() -> None:
    with late_streams():
        first, second = by_two_threads(lambda: side_stream(torch.device("meta", 0), "copy"), torch.cuda, "Stream")
        assert first is second
        assert side_stream(torch.device("meta", 0), "copy") is first


def test_a_device_without_a_number_is_the_thread_s_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert with_index("cuda") == torch.device("cuda:2")
    assert with_index(torch.device("cuda", 1)) == torch.device("cuda:1")


DEVICE = torch.device("meta")


class Streams(gf.Datapipe):
    """Yields the stream that is current while it runs."""

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


@pytest.mark.gpu
def test_it_gives_a_pinned_copy() -> None:
    batch = gf.MiniBatch(seeds=torch.arange(3))
    (pinned,) = Pin([batch])  # type: ignore[arg-type]
    assert pinned.seeds.is_pinned()
    assert torch.equal(pinned.seeds, torch.arange(3))
    assert isinstance(batch.seeds, torch.Tensor)
    assert not batch.seeds.is_pinned()


class Movable:
    """An object of another library that can be moved to a device, but not pinned."""

    def to(self, device: str) -> None:
        raise RuntimeError(f"no device {device}")


class TheirData:
    """An object of another library with its own method to pin it."""

    def pin_memory(self) -> str:
        return "pinned"


def test_what_cannot_be_pinned_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    sparse, there, graph = torch.eye(2).to_sparse(), torch.ones(1, device="meta"), Movable()
    given = {"dense": torch.zeros(1), "sparse": sparse, "there": there, "more": [graph, TheirData()]}
    pinned: Any
    (pinned,) = Pin([given])  # type: ignore[arg-type]
    assert pinned["dense"].tolist() == [1]
    assert pinned["sparse"] is sparse
    assert pinned["there"] is there
    assert pinned["more"] == [graph, "pinned"]
