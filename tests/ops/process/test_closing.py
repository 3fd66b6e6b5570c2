import pytest

from graphfeed.ops.process import Closeable


class Counted(Closeable):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_end_of_a_block_closes_whatever_ends_it() -> None:
    with Counted() as whole:
        assert whole.closed == 0
    with pytest.raises(KeyError), Counted() as failed:
        raise KeyError
    assert (whole.closed, failed.closed) == (1, 1)
