import copy
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes import Placement
from graphfeed.ops.backend import PACKAGES
from tests import pipelines
from tests.digests import assert_same, digests


def test_a_copy_to_where_it_is_changes_no_value() -> None:
    pipe = pipelines.heterogeneous()
    assert isinstance(pipe, gf.CopyTo)
    assert digests(pipe) == digests(pipe.datapipe)


def test_the_given_mini_batch_stays_where_it_is() -> None:
    (batch, *_) = pipelines.heterogeneous()
    before = copy.deepcopy(batch)
    stage = gf.CopyTo([batch], "meta")  # type: ignore[arg-type]
    moved = stage(batch)
    assert moved is not batch
    assert moved.input_nodes["user"].device.type == "meta"
    assert_same(batch, before)


@pytest.mark.parametrize("device", ["meta", torch.device("meta")], ids=str)
def test_whatever_flows_is_moved(device: Any) -> None:
    moved = gf.CopyTo(gf.IterableSource([]), device)({"a": [torch.ones(2)], "b": ("text", torch.ones(1))})
    assert moved["a"][0].device.type == moved["b"][1].device.type == "meta"
    assert moved["b"][0] == "text"


def test_the_key_stays() -> None:
    for batch, moved in zip(pipelines.homogeneous(), pipelines.homogeneous().copy_to("meta"), strict=True):
        assert moved.key == batch.key


def test_it_leaves_it_to_the_loader_where_it_runs() -> None:
    assert gf.CopyTo.runs_in is Placement.AUTO


class Events:
    """Stand for a stream that does nothing until its events are waited for."""

    def __init__(self) -> None:
        self.done = False
        self.waited = 0

    def record_event(self, blocking: bool) -> "Events":
        assert blocking, "waiting would keep a core busy"
        return self

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.waited += 1


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """Let the device "meta" pass for a GPU."""
    made = Events()
    monkeypatch.setitem(PACKAGES, "meta", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: made)
    monkeypatch.setattr(torch.cuda, "Event", lambda blocking=False: blocking)
    return made


def given(left: list[Any]) -> Iterator[gf.MiniBatch]:
    """Yield mini-batches whose seeds nobody else holds."""
    for place in range(3):
        seeds = torch.tensor([place])
        left.append(weakref.ref(seeds))
        yield gf.MiniBatch(seeds=seeds)
        del seeds


def test_what_is_copied_from_is_kept_until_the_copy_is_done(events: Events) -> None:
    left: list[Any] = []
    copies = iter(gf.IterableSource(given(left)).copy_to("meta", non_blocking=True))
    next(copies)
    next(copies)
    assert None not in [reference() for reference in left]
    events.done = True
    next(copies)
    assert [reference() for reference in left[:2]] == [None, None]


def test_a_copy_that_is_left_is_waited_for_while_its_source_is_there(events: Events) -> None:
    left: list[Any] = []
    copies = iter(gf.IterableSource(given(left)).copy_to("meta", non_blocking=True))
    next(copies)
    copies.close()  # type: ignore[attr-defined]
    assert events.waited == 1


def test_a_copy_that_blocks_holds_nothing(events: Events) -> None:
    left: list[Any] = []
    copies = iter(gf.IterableSource(given(left)).copy_to("meta"))
    next(copies)
    next(copies)
    assert left[0]() is None
    assert events.waited == 0


def test_a_copy_to_the_cpu_is_done_when_it_returns() -> None:
    assert not gf.CopyTo(gf.IterableSource([]), "cpu", non_blocking=True).returns_early
    assert gf.CopyTo(gf.IterableSource([]), "cuda", non_blocking=True).returns_early


def test_a_device_that_is_not_there_is_named_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pipe = pipelines.homogeneous().copy_to("cuda")
    for run in (pipe, gf.DataLoader(pipe, 0), gf.DataLoader(pipe, 2)):
        with pytest.raises(RuntimeError, match=r"copy_to needs the device 'cuda', and torch .* finds no CUDA device"):
            next(iter(run))


def test_a_device_that_is_none_is_named_when_the_pipeline_is_written() -> None:
    with pytest.raises(RuntimeError, match="toaster"):
        gf.IterableSource([]).copy_to("toaster")


@pytest.mark.gpu
@pytest.mark.parametrize("make", pipelines.ALL)
def test_mini_batches_on_the_device_are_the_same(make: Any) -> None:
    pipe = make().copy_to("cuda")
    for batch, copied in zip(make(), pipe, strict=True):
        assert_same(copied.to("cpu"), batch)
