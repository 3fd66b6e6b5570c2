from collections.abc import Callable

import pytest

import graphfeed as gf
from graphfeed.datapipes.datapipe import length
from tests import pipelines
from tests.digests import digests


@pytest.mark.parametrize("build", [pipelines.homogeneous, pipelines.heterogeneous])
def test_it_changes_nothing(build: Callable[[], gf.Datapipe]) -> None:
    pipe = build()
    marked = pipe.mark_end()
    assert isinstance(marked, gf.EndMarker)
    assert len(marked) == length(pipe)
    assert digests(marked) == digests(pipe)
    with gf.DataLoader(marked, num_workers=2, seed=0) as loader:
        assert digests(loader) == digests(pipe.with_seed(0))
