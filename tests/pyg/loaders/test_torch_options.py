"""The arguments of torch's `DataLoader`, one by one."""

from typing import Any

import pytest
import torch

from graphfeed.pyg import NeighborLoader
from graphfeed.pyg.loaders.torch_options import TorchOptions
from tests.pyg.neighborhood import homogeneous, values_of


def make(**options: Any) -> NeighborLoader:
    return NeighborLoader(homogeneous(), [2], **options)


def seeds(loader: Any) -> list[int]:
    return [node for batch in loader for node in batch.n_id[: batch.batch_size].tolist()]


def test_batch_size_and_drop_last() -> None:
    assert [batch.batch_size for batch in make(batch_size=25)] == [25, 25, 10]
    assert [batch.batch_size for batch in make(batch_size=25, drop_last=True)] == [25, 25]
    assert len(make()) == 60


def test_shuffling_gives_another_order_in_each_epoch() -> None:
    loader = make(shuffle=True, batch_size=25)
    orders = [seeds(loader), seeds(loader)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(60))


def test_a_generator_gives_the_seed() -> None:
    one, same, other = (make(generator=torch.Generator().manual_seed(seed), shuffle=True) for seed in (1, 1, 2))
    assert seeds(one) == seeds(same) != seeds(other)


def test_torchs_seed_does_so_otherwise() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append([values_of(batch) for batch in make(shuffle=True, batch_size=30)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "options",
    [
        {"collate_fn": print},
        {"dataset": [1]},
        {"pin_memory": False, "pin_memory_device": "cuda"},
        {"in_order": False},
        {"persistent_workers": False, "num_workers": 1},
        {"prefetch_factor": 3, "num_workers": 2},
        {"timeout": 30, "num_workers": 1},
        {"timeout": 0},
    ],
)
def test_what_changes_nothing_is_accepted(options: dict[str, Any]) -> None:
    with make(batch_size=20, seed=0, **options) as loader:
        assert [values_of(batch) for batch in loader] == [values_of(batch) for batch in make(batch_size=20, seed=0)]


def test_options_reach_the_loader() -> None:
    given = TorchOptions(num_workers=3, prefetch_factor=5, timeout=7, multiprocessing_context="fork", seed=4)
    assert given.loader() | {"observer": 0} == {
        "num_workers": 3, "persistent_workers": True, "worker": "process", "executor": None, "observer": 0, "seed": 4,
        "prefetch_factor": 5, "timeout": 7,
    }  # fmt: skip
    assert TorchOptions().loader()["timeout"] == 600
    assert make(num_workers=1, persistent_workers=False).persistent_workers is False


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sampler": [1], "shuffle": True}, "sampler says the order"),
        ({"batch_sampler": [[1]], "batch_size": 4}, "batch_sampler says which seeds"),
        ({"batch_size": None}, "batch_size must be a number"),
    ],
)
def test_what_excludes_each_other_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(**options)


def test_every_argument_of_torchs_loader_is_known() -> None:
    names = set(torch.utils.data.DataLoader.__init__.__annotations__) - {"return"}
    assert names - set(TorchOptions.__dataclass_fields__) == set()
