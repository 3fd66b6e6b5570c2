from collections.abc import Iterator

import pytest
import torch

import graphfeed as gf
from graphfeed.ops.keys import drawing, minibatch_key


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    """Give back to torch what a test has taken."""
    yield
    gf.seed(None)


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
