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
