"""The keys of random numbers: those of a mini-batch, and of draws without one."""

import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops.keys import Key, draw_key, draw_keys, drawing, minibatch_key
from graphfeed.ops.random import MASK

KEY = Key(1, 2, 3)


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    """Give back to torch what a test has taken."""
    yield
    gf.seed(None)


def test_bits_are_those_of_every_release() -> None:
    assert Key(1, 2, 3).at(4, 5) == 0xA5A2DE53670F7AFC


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40), st.integers(0, 2**40))
def test_keys_are_64_bits_of_any_integers(seed: int, epoch: int, index: int) -> None:
    key = Key(seed, epoch, index).at(3, 4)
    assert 0 <= key <= MASK
    assert key == Key(seed, epoch, index).at(3, 4)
    assert key != Key(seed, epoch, index).at(3, 5)


def test_a_key_is_a_value() -> None:
    key = Key(0, 1, 2)
    assert key == Key(seed=0, epoch=1, index=2)
    assert hash(key) == hash(Key(0, 1, 2))
    with pytest.raises(FrozenInstanceError):
        key.seed = 1  # type: ignore[misc]


def test_a_hop_has_the_key_of_the_mini_batch() -> None:
    with drawing(KEY, 4):
        assert [draw_key(0), draw_key(7), draw_key(0)] == [KEY.at(4, 0), KEY.at(4, 7), KEY.at(4, 0)]
        assert draw_keys(3) == [KEY.at(4, hop) for hop in range(3)]


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
    assert draw_keys(2) == first
    assert first[0] != first[1]


def test_without_a_key_torch_decides_once() -> None:
    def draw_twice() -> list[int]:
        with drawing(None, 0):
            return [draw_key(0), draw_keys(1)[0]]

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


def draws() -> list[int]:
    with drawing(None, 0):
        inside = gf.draw_key()
    return [gf.draw_key(), inside, minibatch_key().seed]


def test_draws_without_a_key_follow_the_seed() -> None:
    found = []
    for value in (7, 7, 8, 7 + 2**64, -3, -3):
        gf.seed(value)
        found.append(draws())
    assert found[0] == found[1] == found[3]
    assert found[4] == found[5]
    assert len({number for part in (found[0], found[2], found[4]) for number in part}) == 9


def test_torch_is_neither_set_nor_used() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    gf.seed(7)
    first = draws()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    gf.seed(7)
    assert draws() == first


def test_none_goes_back_to_torch() -> None:
    gf.seed(7)
    gf.seed(None)
    torch.manual_seed(1)
    first = draws()
    torch.manual_seed(1)
    assert draws() == first


def test_a_loader_without_a_seed_takes_it_and_one_with_keeps_its_own() -> None:
    items = gf.ItemSampler(gf.ItemSet(5, names="seeds"), batch_size=2, shuffle=True)
    seeds = []
    for _ in range(2):
        gf.seed(7)
        seeds += [gf.DataLoader(items, num_workers=0).seed, gf.DataLoader(items, num_workers=0, seed=4).seed]
    assert seeds[:2] == seeds[2:]
    assert seeds[1] == 4
    gf.seed(8)
    assert gf.DataLoader(items, num_workers=0).seed != seeds[0]


def test_graphs_called_directly_follow_it() -> None:
    graph = gf.from_coo(torch.randint(0, 30, (2, 600)), 30)
    found = []
    for value in (7, 7, 8):
        gf.seed(value)
        found.append(
            [
                graph.sample_neighbors(torch.arange(30), torch.tensor([3])).original_edge_ids,
                graph.sample_layer_neighbors(torch.arange(30), torch.tensor([3])).original_edge_ids,
                graph.sample_negative_edges_uniform(None, torch.zeros(30, 2, dtype=torch.int64), 2),
            ]
        )
    for first, again, other in zip(*found, strict=True):
        assert isinstance(first, torch.Tensor)
        assert isinstance(again, torch.Tensor)
        assert isinstance(other, torch.Tensor)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_a_mini_batch_without_a_key_takes_nothing_where_nothing_is_drawn() -> None:
    before = torch.get_rng_state()
    with drawing(None, 0):
        pass
    assert torch.equal(torch.get_rng_state(), before)
