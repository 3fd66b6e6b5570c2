"""The keys of random numbers: those of a mini-batch, and of draws without one."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.ops import MASK, Key, draw_key, draw_keys, drawing, minibatch_key

KEY = Key(1, 2, 3)


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    """Take the seed from torch again after a test."""
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
    assert {key: 1}[Key(seed=0, epoch=1, index=2)] == 1
    with pytest.raises(FrozenInstanceError):
        key.seed = 1  # type: ignore[misc]


def fail_in_another() -> None:
    with drawing(Key(9, 9, 9), 0):
        raise RuntimeError("half-way")


def test_a_hop_has_the_key_of_the_mini_batch_and_draws_without_a_number_differ_and_repeat() -> None:
    for _ in range(2):
        with drawing(KEY, 4):
            assert [draw_key(0), draw_key(7), draw_key(0)] == [KEY.at(4, 0), KEY.at(4, 7), KEY.at(4, 0)]
            with pytest.raises(RuntimeError):
                fail_in_another()
            assert draw_keys(3) == [KEY.at(4, hop) for hop in range(3)]
            three = [draw_key(), draw_key(), draw_key(0)]
    assert len(set(three)) == 3
    with drawing(KEY, 4):
        assert [draw_key(), draw_key(), draw_key(0)] == three


def outside() -> list[int]:
    return [draw_key(), draw_key(0), *draw_keys(2), minibatch_key().seed]


def without_a_key() -> list[int]:
    with drawing(None, 0):
        found = [draw_key(0), draw_keys(1)[0]]
    assert found[0] == found[1], "it is drawn once"
    return found[:1]


@pytest.mark.parametrize("draws", [outside, without_a_key])
def test_without_a_mini_batch_the_seed_decides_and_otherwise_torch(draws: Callable[[], list[int]]) -> None:
    def seeded(set_seed: Callable[[int], object], value: int) -> list[int]:
        set_seed(value)
        return draws()

    by_torch = seeded(torch.manual_seed, 1)
    before = torch.get_rng_state()
    by_seed = [seeded(gf.seed, value) for value in (7, 7 + 2**64, 8, -3)]
    assert torch.equal(torch.get_rng_state(), before), "torch is neither set nor used"
    assert by_seed[0] == by_seed[1]
    numbers = [number for part in (by_torch, by_seed[0], *by_seed[2:]) for number in part]
    assert len(set(numbers)) == len(numbers)
    gf.seed(None)
    assert seeded(torch.manual_seed, 1) == by_torch
    with drawing(None, 0):
        before = torch.get_rng_state()
    assert torch.equal(torch.get_rng_state(), before), "nothing is taken where nothing is drawn"


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


def test_a_loader_without_a_seed_takes_it_and_one_with_keeps_its_own() -> None:
    items = gf.ItemSampler(gf.ItemSet(5, names="seeds"), batch_size=2, shuffle=True)
    seeds = []
    for value in (7, 7, 8):
        gf.seed(value)
        seeds += [gf.DataLoader(items, num_workers=0).seed, gf.DataLoader(items, num_workers=0, seed=4).seed]
    assert seeds[:2] == seeds[2:4]
    assert (seeds[1], seeds[5]) == (4, 4)
    assert seeds[4] != seeds[0]


def test_graphs_called_directly_follow_it() -> None:
    graph = gf.from_coo(torch.randint(0, 30, (2, 600)), 30)
    seeds, fanout, found = torch.arange(30), torch.tensor([3]), []
    for value in (7, 7, 8):
        gf.seed(value)
        hops = [sample(seeds, fanout) for sample in (graph.sample_neighbors, graph.sample_layer_neighbors)]
        negatives = graph.sample_negative_edges_uniform(None, torch.zeros(30, 2, dtype=torch.int64), 2)
        found.append([torch.as_tensor(own) for own in (*(hop.original_edge_ids for hop in hops), negatives)])
    for first, again, other in zip(*found, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
