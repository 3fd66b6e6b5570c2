from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.digests import digest, digests

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_manual_seed_repeats_a_run_without_a_seed() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        with gf.DataLoader(pipelines.shuffled(), num_workers=2) as loader:
            runs.append(digests(loader))
    with gf.DataLoader(pipelines.shuffled(), num_workers=2) as loader:
        other = digests(loader)
    assert runs[0] == runs[1] != other


def test_the_sampler_s_seed_counts_where_the_loader_has_none() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=5, shuffle=True, seed=9)
    with gf.DataLoader(pipe, num_workers=0) as loader:
        assert loader.seed == 9
        assert digests(loader) == [digest(batch) for batch in pipe]
    with gf.DataLoader(pipe, num_workers=0, seed=8) as loader:
        assert loader.seed == 8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_workers": -1}, ValueError, "num_workers must be 0 or more, but is -1"),
        ({"worker": "greenlet"}, ValueError, "worker must be 'thread' or 'process', but is 'greenlet'"),
        ({"num_workers": "many"}, ValueError, "num_workers must be a whole number, 'auto' or None, but is 'many'"),
        ({"num_workers": "auto", "worker": "process"}, ValueError, "but worker='process' came along"),
        ({"num_workers": "auto", "executor": ThreadPoolExecutor(1)}, ValueError, "but an executor came along"),
        ({"num_workers": "auto", "servers": ["a:1"]}, ValueError, "but servers came along"),
        ({"servers": ["a:1"], "patience": -1.0}, ValueError, "patience must be more than 0 seconds, but is -1"),
        ({"window": -1}, ValueError, "window must be 0 or more, but is -1"),
        ({"memory_limit": "much"}, ValueError, "memory_limit must be a number of bytes"),
        ({"executor": 3}, TypeError, "executor must have submit"),
        ({"executor": ThreadPoolExecutor(1), "num_workers": 0}, ValueError, "leave one of them out"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor must be 1 or more, but is 0"),
        ({"timeout": 0}, ValueError, "timeout must be more than 0 seconds, but is 0"),
        ({"timeout": float("nan")}, ValueError, "timeout must be more than 0 seconds, but is nan"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gf.DataLoader(pipelines.homogeneous(), **options)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_of_more_than_64_bits_is_refused(seed: int) -> None:
    items = gf.ItemSet(4, names="seeds")
    with pytest.raises(ValueError, match=rf"seed must lie in -2\*\*63 .. 2\*\*64 - 1, but is {seed}"):
        gf.DataLoader(gf.ItemSampler(items, 2), seed=seed)
    with pytest.raises(ValueError, match="seed must lie in"):
        gf.ItemSampler(items, 2, seed=seed)
    assert gf.DataLoader(gf.ItemSampler(items, 2), seed=2**64 - 1).seed == 2**64 - 1
