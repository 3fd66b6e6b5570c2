import pytest
from torchdata.nodes import Batcher, IterableWrapper, Loader, MultiNodeWeightedSampler, Prefetcher

import graphfeed as gf
from tests import pipelines
from tests.digests import digest

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def expected() -> list[list[str]]:
    pipe = pipelines.shuffled()
    return [[digest(batch) for batch in pipe.with_seed(3, epoch)] for epoch in range(3)]


def loader(num_workers: int = 2) -> gf.DataLoader:
    return gf.DataLoader(pipelines.shuffled(), num_workers=num_workers, seed=3)


def test_torchdata_s_loader_runs_epoch_after_epoch(expected: list[list[str]]) -> None:
    with loader() as own:
        nodes = Loader(own.as_node())
        assert [[digest(batch) for batch in nodes] for _ in range(3)] == expected


@pytest.mark.parametrize("taken", [0, 1, 4, 9])
def test_torchdata_s_loader_resumes(expected: list[list[str]], taken: int) -> None:
    with loader() as own:
        nodes = Loader(own.as_node())
        batches = iter(nodes)
        for _ in range(taken):
            next(batches)
        state = nodes.state_dict()
    with loader(num_workers=1) as own:
        nodes = Loader(own.as_node())
        nodes.load_state_dict(state)
        rest = [digest(batch) for batch in nodes]
    assert rest == (expected[0][taken:] or expected[1])


def test_a_batcher_and_a_prefetcher_compose(expected: list[list[str]]) -> None:
    with loader() as own:
        nodes = Loader(Batcher(Prefetcher(own.as_node(), 2), batch_size=2, drop_last=False))
        groups = [[digest(batch) for batch in group] for group in nodes]
    assert [value for group in groups for value in group] == expected[0]
    assert {len(group) for group in groups[:-1]} == {2}


def test_a_weighted_mix_takes_from_the_loader(expected: list[list[str]]) -> None:
    with loader() as own:
        mixed = MultiNodeWeightedSampler(
            {"own": own.as_node(), "numbers": IterableWrapper(range(100))},
            {"own": 0.5, "numbers": 0.5},
            stop_criteria="FIRST_DATASET_EXHAUSTED",
        )
        given = [digest(item) for item in Loader(mixed) if isinstance(item, gf.MiniBatch)]
    assert given == expected[0][: len(given)]
    assert len(given) > 0
