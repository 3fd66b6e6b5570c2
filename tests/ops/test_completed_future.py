import pytest

from graphfeed.ops.completed_future import CompletedFuture, check_one_rank


def test_what_is_ready_can_be_waited_for_again() -> None:
    ready = CompletedFuture([1])
    assert ready.wait() is ready.wait() is ready.result


@pytest.mark.parametrize(("rank", "world_size"), [(0, 2), (1, 1)])
def test_more_ranks_are_refused(rank: int, world_size: int) -> None:
    check_one_rank(0, 1)
    with pytest.raises(ValueError, match=f"rank and world_size must be 0 and 1, but are {rank} and {world_size}; ids"):
        check_one_rank(rank, world_size)
