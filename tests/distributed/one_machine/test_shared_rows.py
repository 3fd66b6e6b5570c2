"""Ranks of one machine that read each other's rows."""

from typing import Any

import pytest


@pytest.mark.slow
def test_rows_that_their_rank_updates_are_seen_by_all(shared: list[Any]) -> None:
    last, first = [396.0, 397.0, 398.0, 399.0], [0.0, 1.0, 2.0, 3.0]
    for found in shared:
        before, after, exchanges = found["update"]
        assert before == [last, first, last]
        assert after == [-1.0] * 4
        assert exchanges == 2, "more than where the rows lie was asked, and what they are was said"


@pytest.mark.slow
def test_rows_on_disk_are_asked_for_and_others_are_not(shared: list[Any]) -> None:
    assert [found["disk"] for found in shared] == [True] * 3
