import pytest

from graphfeed import ItemSampler, ItemSet
from graphfeed.pyg import ZipBatches


def test_it_is_as_long_as_the_shortest_pipeline() -> None:
    pipes = tuple(ItemSampler(ItemSet(count, names="seeds"), 2) for count in (5, 4))
    joined = ZipBatches(pipes)
    assert len(joined) == 2
    found = [[batch.seeds.tolist() for batch in batches] for batches in joined]
    assert found == [[[0, 1], [0, 1]], [[2, 3], [2, 3]]]


def test_no_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match="datapipes is empty"):
        ZipBatches(())
