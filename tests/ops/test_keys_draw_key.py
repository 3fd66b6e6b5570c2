import threading

import pytest
import torch

from graphfeed.ops.keys import Key, draw_key, drawing

KEY = Key(1, 2, 3)


def test_a_hop_has_the_key_of_the_mini_batch() -> None:
    with drawing(KEY, 4):
        assert [draw_key(0), draw_key(7), draw_key(0)] == [KEY.at(4, 0), KEY.at(4, 7), KEY.at(4, 0)]


def test_draws_without_a_number_differ_and_repeat() -> None:
    def three() -> list[int]:
        with drawing(KEY, 4):
            return [draw_key(), draw_key(), draw_key(0)]

    assert three() == three()
    assert len(set(three())) == 3


def test_outside_of_a_stage_torch_decides() -> None:
    torch.manual_seed(1)
    first = [draw_key(), draw_key(0)]
    torch.manual_seed(1)
    assert [draw_key(), draw_key(0)] == first
    assert first[0] != first[1]


def test_without_a_key_torch_decides_once() -> None:
    def draw_twice() -> list[int]:
        with drawing(None, 0):
            return [draw_key(0), draw_key(0)]

    torch.manual_seed(1)
    first = draw_twice()
    assert first[0] == first[1]
    assert draw_twice() != first
    torch.manual_seed(1)
    assert draw_twice() == first


def fail_in_another() -> None:
    with drawing(Key(9, 9, 9), 0):
        raise RuntimeError("half-way")


def test_one_inside_another_and_a_failure() -> None:
    with drawing(KEY, 0):
        with pytest.raises(RuntimeError):
            fail_in_another()
        assert draw_key(1) == KEY.at(0, 1)


def test_threads_have_their_own() -> None:
    found = {}
    barrier = threading.Barrier(2, timeout=10)

    def work(index: int) -> None:
        with drawing(Key(0, 0, index), 0):
            barrier.wait()
            found[index] = draw_key(5)
            barrier.wait()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == {index: Key(0, 0, index).at(0, 5) for index in range(2)}
