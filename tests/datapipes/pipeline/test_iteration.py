from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.iteration import torch_shard

GRAPH = gf.from_coo((torch.arange(4), torch.arange(4).roll(1)), 4)


def test_outside_of_a_torch_worker_there_is_one_share() -> None:
    assert torch_shard() == (0, 1)


def in_torch(pipe: gf.Datapipe, num_workers: int = 0) -> list[Any]:
    return list(torch.utils.data.DataLoader(pipe, batch_size=None, num_workers=num_workers))


@pytest.mark.parametrize("random", ["shuffle", "draw"])
def test_torchs_data_loader_is_warned_of_equal_epochs(random: str) -> None:
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2, shuffle=random == "shuffle", seed=5)
    with pytest.warns(UserWarning, match=r"repeats epoch 0.*use graphfeed\.DataLoader.*pipe\.with_seed\(seed, epoch\)"):
        assert len(in_torch(pipe if random == "shuffle" else pipe.sample_neighbor(GRAPH, [1]))) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_torchs_workers_are_warned_of_equal_epochs() -> None:
    """The warning is an error here, and so it gets out of the worker."""
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2, shuffle=True)
    with pytest.raises(UserWarning, match="torch's DataLoader repeats epoch 0"):
        in_torch(pipe, num_workers=2)


def test_where_epochs_are_chosen_or_nothing_is_drawn_there_is_no_warning() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(40, names="seeds"), batch_size=2, shuffle=True)
    found = [[batch.seeds.tolist() for batch in in_torch(pipe.with_seed(0, epoch))] for epoch in (0, 1)]
    assert found[0] != found[1]
    assert found[1] == [batch.seeds.tolist() for batch in pipe.with_seed(0, 1)]
    assert len(in_torch(pipe.changed(shuffle=False))) == 20
