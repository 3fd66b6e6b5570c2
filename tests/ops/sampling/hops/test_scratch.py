import numpy as np
import pytest

from graphfeed.ops.cpu.sampling.passes import candidates, marks
from graphfeed.ops.sampling.hops.scratch import enlarge, likely_candidates, new_columns, new_scratch


def test_columns_have_one_fan_out_and_runs_one_each() -> None:
    assert new_columns(2, by_run=False).fanouts.size == 1
    runs = new_columns(1, by_run=True)
    assert runs.fanouts.size == runs.starts.size


@pytest.mark.parametrize("fanout", [1, 10, candidates.MAX_COLLECTED])
def test_buckets_have_room_for_twice_what_is_expected_in_whole_lanes(fanout: int) -> None:
    assert likely_candidates(fanout) >= 2 * fanout
    assert likely_candidates(fanout) % marks.LANES == 0


def test_buckets_are_made_for_the_columns_of_the_index() -> None:
    assert new_scratch("buckets", np.int64, 7).of_index.size == 7
    assert new_scratch("no buckets", np.int64, 7).of_index.size == 0


def test_gathered_sources_have_the_dtype_of_the_graph() -> None:
    assert new_scratch("gathered sources", np.int32, 0).indices.dtype == np.int32


def test_an_array_keeps_its_values_when_it_grows() -> None:
    array = np.array([4, 5])
    assert enlarge(array, 2) is array
    assert enlarge(array, 3)[:2].tolist() == [4, 5]
    assert enlarge(array, 3).size == 3
