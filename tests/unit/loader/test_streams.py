"""Streams of a device: producing on a stream, waiting for it, recording its use, and pinning for it."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import Pin, WithCudaEvent
from graphfeed.loader.transport.streams import hand_over, parts_on_streams, side_stream, with_index
from tests.stand_ins.emulated_cuda import Pretended
from tests.stand_ins.late_streams import CALLER, Stream, late_streams


class Holder:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class TheirGraph:
    """An object of another library, which knows its tensors on a device."""

    hidden = Pretended(torch.ones(1))

    def record_stream(self, stream: Any) -> None:
        """Do nothing."""


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


def test_every_tensor_on_a_device_is_found_once() -> None:
    first, second, third = (Pretended(torch.ones(4)) for _ in range(3))
    batch = gf.MiniBatch(seeds=first, node_features={"feat": second}, labels=torch.ones(2))
    batch.mine = [(Holder(again=first, inside={"x": third}), "text", None)]  # type: ignore[attr-defined]
    batch.key = gf.ops.Key(1, 2, 3)
    assert sorted(map(id, parts_on_streams([batch, batch]))) == sorted(map(id, [first, second, third]))
    empty = Pretended(torch.ones(0))
    assert len(parts_on_streams([first[:1], first[2:], second, empty])) == 2, "one is enough where memory is shared"
    wrapper, graph, left = Wrapper(), TheirGraph(), Holder(tensor=first)
    left.right = Holder(left=left)  # type: ignore[attr-defined]
    assert parts_on_streams([wrapper, [wrapper], torch.ones(2, device="meta")]) == [wrapper]
    assert parts_on_streams({"graph": graph}) == [graph], "it knows its own tensors"
    assert parts_on_streams([left, torch.eye(3).to_sparse()]) == [first]


@pytest.mark.gpu
def test_sparse_tensors_are_taken_apart() -> None:
    dense = torch.eye(3, device="cuda")
    for sparse, count in ((dense.to_sparse(), 2), (dense.to_sparse_csr(), 3), (dense.to_sparse_csc(), 3)):
        parts = parts_on_streams([sparse])
        assert len(parts) == count
        for part in parts:
            part.record_stream(torch.cuda.current_stream())


def test_handing_over_waits_first_and_tells_the_allocator() -> None:
    with late_streams() as log:
        tensor, other = Pretended(torch.ones(2)), Stream()
        hand_over({"x": tensor}, other.record_event(), CALLER)  # type: ignore[arg-type]
        assert log == [(other.name, "records"), (CALLER.name, "waits for", other.name)]
        assert tensor.used_on == {CALLER.name}


@pytest.mark.gpu
def test_on_a_device_events_pass_when_the_work_is_done() -> None:
    device = with_index("cuda")
    items = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=1)
    found: list[Any] = list(WithCudaEvent(items.copy_to("cuda"), "mine", device))
    side_stream(device, "mine").synchronize()
    assert [event.query() for _, event in found] == [True] * 3


@pytest.mark.gpu
def test_it_gives_a_pinned_copy() -> None:
    batch = gf.MiniBatch(seeds=torch.arange(3))
    (pinned,) = Pin([batch])  # type: ignore[arg-type]
    assert pinned.seeds.is_pinned()
    assert torch.equal(pinned.seeds, torch.arange(3))
    assert not batch.seeds.is_pinned()


class Movable:
    """An object of another library that can be moved to a device, but not pinned."""

    def to(self, device: str) -> None:
        raise RuntimeError(f"no device {device}")


class TheirData:
    """An object of another library with its own method to pin it."""

    def pin_memory(self) -> str:
        return "pinned"


def test_what_cannot_be_pinned_stays_as_it_is() -> None:
    sparse, there, graph = torch.eye(2).to_sparse(), torch.ones(1, device="meta"), Movable()
    given: Any = {"dense": torch.ones(1), "sparse": sparse, "there": there, "more": [graph, TheirData()]}
    pinned: Any
    with late_streams():
        (pinned,) = Pin([given])  # type: ignore[arg-type]
    assert pinned["dense"].tolist() == [1]
    assert pinned["dense"] is not given["dense"]
    assert pinned["sparse"] is sparse
    assert pinned["there"] is there
    assert pinned["more"] == [graph, "pinned"]
