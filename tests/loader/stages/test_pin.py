from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.stages.pin import Pin


@pytest.mark.gpu
def test_it_gives_a_pinned_copy() -> None:
    batch = gf.MiniBatch(seeds=torch.arange(3))
    (pinned,) = Pin([batch])  # type: ignore[arg-type]
    assert pinned.seeds.is_pinned()
    assert torch.equal(pinned.seeds, torch.arange(3))
    assert isinstance(batch.seeds, torch.Tensor)
    assert not batch.seeds.is_pinned()


class TheirGraph:
    """Of another library: it can be moved to a device, but not be pinned."""

    def to(self, device: str) -> None:
        raise RuntimeError(f"no device {device}")


class TheirData:
    """Of another library that pins by itself."""

    def pin_memory(self) -> str:
        return "pinned"


def test_what_cannot_be_pinned_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    sparse, there, graph = torch.eye(2).to_sparse(), torch.ones(1, device="meta"), TheirGraph()
    given = {"dense": torch.zeros(1), "sparse": sparse, "there": there, "more": [graph, TheirData()]}
    pinned: Any
    (pinned,) = Pin([given])  # type: ignore[arg-type]
    assert pinned["dense"].tolist() == [1]
    assert pinned["sparse"] is sparse
    assert pinned["there"] is there
    assert pinned["more"] == [graph, "pinned"]


def test_it_runs_in_the_main_process() -> None:
    assert Pin([]).runs_in is gf.Placement.MAIN  # type: ignore[arg-type]
