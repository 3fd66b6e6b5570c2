"""The stage that makes PyG's data."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import digests


@pytest.mark.usefixtures("pyg")
@pytest.mark.parametrize("by_hop", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_gives_what_the_method_gives(num_workers: int, by_hop: bool) -> None:
    expected = digests(batch.to_pyg_data(by_hop) for batch in pipelines.heterogeneous())
    pipe = pipelines.heterogeneous().to_pyg_data(by_hop=by_hop)
    assert type(pipe) is gf.ToPyGData
    with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
        assert "ToPyGData" in loader.explain()
        assert digests(loader) == expected


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="torch_geometric is not installed")
def test_worker_processes_make_it_too() -> None:
    pipe: Any = pipelines.weighted().to_pyg_data(by_hop=True).copy_to("cpu")
    with gf.DataLoader(pipe, num_workers=1, worker="process", seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))


def test_what_is_no_mini_batch_is_named() -> None:
    with pytest.raises(TypeError, match=r"to_pyg_data\(\) needs mini-batches, but a Tensor arrived; let the item set"):
        list(gf.IterableSource([torch.arange(3)]).to_pyg_data())
