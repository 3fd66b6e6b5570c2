from typing import Any

from graphfeed.loader.stages.sharder import Sharder
from tests.pipelines import seeds


def test_it_passes_its_source_on() -> None:
    sampler: Any = seeds(5)
    sharder = Sharder(sampler)
    assert sharder.source is sampler
    assert len(sharder) == 3
    assert [batch.seeds.tolist() for batch in sharder] == [[0, 1], [2, 3], [4]]


def test_it_counts_as_no_stage_of_the_user_s() -> None:
    sampler: Any = seeds(5)
    assert Sharder(sampler).transform().position == sampler.transform().position == 2
