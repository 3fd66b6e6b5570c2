from typing import Any

import pytest

import graphfeed as gf


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"hop_time": "node"}, ValueError, "hop_time must be one of .*, but is 'node'"),
        ({"hop_time": "edge"}, ValueError, "hop_time='edge' needs the times of edges"),
        ({"pre_time_window": -1}, ValueError, "pre_time_window must be a whole number, 0 or more, but is -1"),
        ({"pre_time_window": True}, ValueError, "pre_time_window must be a whole number"),
        ({"pre_time_window": 1.5}, TypeError, "pre_time_window must be a whole number, as the times are"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gf.TemporalQuery(**options)


def test_a_query_may_have_no_times() -> None:
    assert gf.TemporalQuery().pre_time_window is None
