import random

from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.profile import RemoteClock

SECOND = 1_000_000_000


@given(st.integers(-(10**15), 10**15), st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_error_is_at_most_half_of_the_shortest_way(ahead: int, count: int, draws: random.Random) -> None:
    clock, now, shortest = RemoteClock(1), 0, None
    for _ in range(count):
        there, work, back = (draws.randrange(1_000, 10_000_000) for _ in range(3))
        received = now + there + ahead
        found = clock.ahead(now, received, received + work, now + there + work + back)
        shortest = there + back if shortest is None else min(shortest, there + back)
        # Clocks may have drifted since that answer, so a later one that took a bit longer may have taken its place.
        assert abs(found - ahead) <= shortest / 2 + 1 + 5e-5 * now
        now += there + work + back


def test_an_old_answer_gives_way_as_clocks_drift() -> None:
    clock = RemoteClock(1)
    assert clock.ahead(0, 1_000, 1_000, 0) == 1_000
    asked = 10 * SECOND
    assert clock.ahead(asked, asked + 2_000_000, asked + 2_000_000, asked + 3_000_000) == 1_000
    assert clock.ahead(asked, asked + 200_000, asked + 200_000, asked + 100_000) == 150_000
