import threading

import pytest

from graphfeed.distributed.ranks.bounded_call import call_within


def test_what_the_function_returns_or_raises_comes_through() -> None:
    assert call_within(20, lambda: 3, "") == 3
    with pytest.raises(ZeroDivisionError):
        call_within(20, lambda: 1 // 0, "")


def test_a_function_that_does_not_return_is_given_up() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError, match="the store did not answer"):
        call_within(0.05, forever.wait, "the store did not answer")
    forever.set()
