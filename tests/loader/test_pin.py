import pytest
import torch

import graphfeed as gf
from graphfeed.loader.pin import Pin


@pytest.mark.gpu
def test_it_gives_a_pinned_copy() -> None:
    batch = gf.MiniBatch(seeds=torch.arange(3))
    (pinned,) = Pin([batch])  # type: ignore[arg-type]
    assert pinned.seeds.is_pinned()
    assert torch.equal(pinned.seeds, torch.arange(3))
    assert isinstance(batch.seeds, torch.Tensor)
    assert not batch.seeds.is_pinned()


def test_it_runs_in_the_main_process() -> None:
    assert Pin([]).runs_in is gf.Process.MAIN  # type: ignore[arg-type]
