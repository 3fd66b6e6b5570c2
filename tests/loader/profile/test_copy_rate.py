from graphfeed.loader.profile.copy_rate import copy_rate


def test_memory_is_measured_once() -> None:
    assert 1e8 < copy_rate(2) < 1e13
    assert copy_rate(2) == copy_rate(2)
