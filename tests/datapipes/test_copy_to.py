import copy
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes import Placement
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
    with pytest.raises(ValueError, match="device must be one of torch.s, .* is .toaster."):
        gf.IterableSource([]).copy_to("toaster")


@pytest.mark.gpu
@pytest.mark.parametrize("make", pipelines.ALL)
def test_mini_batches_on_the_device_are_the_same(make: Any) -> None:
    pipe = make().copy_to("cuda")
    for batch, copied in zip(make(), pipe, strict=True):
        assert_same(copied.to("cpu"), batch)
