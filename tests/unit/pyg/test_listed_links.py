"""Triples for recommendation, with the arguments of RelBench's loader."""

from collections import Counter
from typing import Any

import pytest
import torch

from graphfeed.interop import relbench
from graphfeed.interop.relbench import LinkNeighborLoader
from graphfeed.pyg import EndsOfPairs, ListedLinkLoader
from graphfeed.pyg.data import import_pyg
from tests.kinds.digests import digests
from tests.kinds.refusals import check_refused

USERS, ITEMS, ORDERS, ROWS = 20, 10, 300, 33


def shop() -> Any:
    generator = torch.Generator().manual_seed(0)
    data = import_pyg("torch_geometric.data", "tests").HeteroData()
    data["user"].x, data["item"].x = torch.rand(USERS, 2), torch.rand(ITEMS, 3)
    data["order"].num_nodes = ORDERS
    data["order"].time = torch.randint(100, (ORDERS,), generator=generator)
    orders = torch.arange(ORDERS)
    for name, count in (("user", USERS), ("item", ITEMS)):
        index = torch.stack([orders, torch.randint(count, (ORDERS,), generator=generator)])
        data["order", f"f2p_{name}", name].edge_index = index
        data[name, f"rev_f2p_{name}", "order"].edge_index = index.flip(0)
    return data


DATA = shop()
SOURCES, TIMES = torch.arange(ROWS) * 7 % USERS, torch.arange(ROWS) % 4 * 20 + 30
LISTS = [[row % ITEMS, (row + 3) % ITEMS] for row in range(ROWS)]


def matrix() -> torch.Tensor:
    dense = torch.zeros(ROWS, ITEMS)
    for row, own in enumerate(LISTS):
        dense[row, own] = 1
    return dense.to_sparse_csr()


def loader(data: Any = None, lists: Any = None, count: int = ITEMS, **options: Any) -> Any:
    source = options.pop("src_nodes", ("user", SOURCES))
    given = {"src_time": TIMES, "time_attr": "time", "batch_size": 4, "seed": 3} | options
    lists = ("item", matrix()) if lists is None else lists
    return LinkNeighborLoader(DATA if data is None else data, [-1, -1], source, lists, count, **given)


@pytest.mark.parametrize("same", [False, True])
def test_triples_have_each_row_once_and_nothing_later(same: bool) -> None:
    found: Counter[tuple[int, int]] = Counter()
    known = {(int(source), int(time)): own for source, time, own in zip(SOURCES, TIMES, LISTS, strict=True)}
    for triple in loader(share_same_time=same, **({} if same else {"shuffle": True})):
        of_source, *of_items = triple
        count, times = of_source["user"].batch_size, of_source["user"].seed_time
        sources = of_source["user"].input_id
        assert sources.equal(of_source["user"].n_id[:count])
        found.update(zip(sources.tolist(), times.tolist(), strict=True))
        assert not same or len(set(times.tolist())) == 1
        for part, name in zip(triple, ("user", "item", "item"), strict=True):
            assert part[name].seed_time.equal(times)
            assert part[name].input_id.equal(part[name].n_id[:count])
            assert (part["order"].time <= times[part["order"].batch]).all()
            orders = (DATA["order"].time <= times[:, None]) & (
                DATA["order", f"f2p_{name}", name].edge_index[1] == part[name].input_id[:, None]
            )
            first = part["order"].n_id[: int(part["order"].num_sampled_nodes[1])]
            assert sorted(first.tolist()) == sorted(orders.nonzero()[:, 1].tolist())
        pairs = zip(sources.tolist(), times.tolist(), of_items[0]["item"].input_id.tolist(), strict=True)
        assert all(end in known[source, time] for source, time, end in pairs)
    assert found == Counter(zip(SOURCES.tolist(), TIMES.tolist(), strict=True))


def test_triples_are_the_same_for_any_workers_and_resumed() -> None:
    for options in ({"shuffle": True}, {"share_same_time": True}):
        expected = digests(loader(**options))
        assert len(expected) == len(loader(**options))
        for workers in (1, 2):
            assert digests(loader(num_workers=workers, **options)) == expected
        with loader(num_workers=2, **options) as first:
            batches = iter(first)
            for _ in range(4):
                next(batches)
            state = first.state_dict()
        with loader(**options) as second:
            second.load_state_dict(state)
            assert digests(second) == expected[4:]


def test_sources_without_times_see_everything() -> None:
    triple = loader(src_time=None, time_attr=None)([0, 5])
    assert triple[0]["user"].input_id.tolist() == SOURCES[[0, 5]].tolist()
    assert "seed_time" not in triple[0]["user"]
    orders = (DATA["order", "f2p_user", "user"].edge_index[1][:, None] == SOURCES[[0, 5]]).sum()
    assert triple[0]["order"].num_sampled_nodes[1] == orders


def test_negatives_avoid_the_lists_if_asked_for() -> None:
    every = [own + [end for end in range(ITEMS) if end not in own][:-1] for own in LISTS]
    dense = torch.ones(ROWS, ITEMS)
    for row, own in enumerate(every):
        dense[row, [end for end in range(ITEMS) if end not in own]] = 0
    strict = loader(lists=("item", dense.to_sparse_csr()), strict=True)
    left = [(set(range(ITEMS)) - set(own)).pop() for own in every]
    assert torch.cat([negative["item"].input_id for _, _, negative in strict]).tolist() == left


def test_the_names_are_those_of_the_package() -> None:
    assert relbench.LinkNeighborLoader is ListedLinkLoader
    assert EndsOfPairs.__name__ in loader().explain()
    with pytest.raises(AttributeError, match="has no attribute 'NodeLoader'; it has LinkNeighborLoader"):
        _ = relbench.NodeLoader


def test_arguments_that_do_not_fit_are_refused() -> None:
    empty = torch.zeros(ROWS, ITEMS)
    empty[0] = 1
    check_refused([
        (lambda: loader(src_time=None), ValueError, "src_time needs time_attr"),
        (lambda: loader(share_same_time=True, src_time=None, time_attr=None), ValueError, "share_same_time needs src"),
        (lambda: loader(lists=("item", empty.to_sparse_csr())), ValueError, "no destination in row 1"),
        (lambda: loader(lists=("item", empty)), ValueError, "dst_nodes must be a sparse CSR tensor with 33 rows"),
        (lambda: loader(lists=("items", matrix())), ValueError, "must name node types of .*, but name 'items'"),
        (lambda: loader(count=ITEMS + 1), ValueError, "num_dst_nodes must be"),
        (lambda: loader(count=5), ValueError, "must be in 0 .. 4"),
        (lambda: loader(src_nodes=("user", SOURCES > 3)), TypeError, "src_nodes must be torch.int32 or torch.int64"),
        (lambda: loader(src_nodes=("user", SOURCES + 0.5)), TypeError, "src_nodes must be torch.int32 or torch.int64"),
        (lambda: loader(src_nodes=("user", SOURCES[:, None])), ValueError, "src_nodes must have 1 dimension"),
        (lambda: loader(src_time=TIMES + 0.5), TypeError, "src_time must be torch.int64"),
        (lambda: loader(src_time=TIMES[:, None]), ValueError, "src_time must have 1 dimension"),
        (lambda: loader(share_same_time=True, batch_size=0), ValueError, "batch_size must be 1 or more"),
        (lambda: loader(batchsize=3), TypeError, "ListedLinkLoader has no argument 'batchsize'"),
    ])  # fmt: skip
