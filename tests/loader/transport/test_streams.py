from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.transport.streams import hand_over, parts_on_streams, side_stream, with_index
from tests.at_once import by_two_threads
from tests.loader.late_streams import CALLER, Stream, late_streams
from tests.ops.emulated_cuda import Pretended


class Holder:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class TheirGraph:
    """Of another library, which knows itself what lies on a device."""

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
    """Shows no memory of its own, as nested tensors and those of torch.distributed."""

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
