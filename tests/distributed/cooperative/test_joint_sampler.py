"""Joint mini-batches: messages between ranks, the rows that each fetches for all, and errors."""

import pickle
import threading
import time
from itertools import islice
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import CooperativeConv, CooperativeConvFunction, Peers
from graphfeed.distributed.cooperative import cooperate
from graphfeed.distributed.cooperative.exchange import Exchange, Tag, check_needed
from graphfeed.distributed.cooperative.joint_fetcher import JointFetcher, WrappedFetcher
from graphfeed.distributed.cooperative.joint_sampler import RankGroup
from graphfeed.loader.profile import find_caches
from tests.distributed.graphs import plain
from tests.distributed.joint import alone, check_epoch, check_joint, in_threads, joint_pipe, parts_of
from tests.refusals import check_refused


@pytest.mark.parametrize(
    ("world_size", "num_workers", "kind", "sample", "options"),
    [
        (2, 0, "plain", "sample_neighbor", {}),
        (3, 2, "plain", "sample_neighbor", {"prob_name": "weight", "deduplicate": False}),
        (3, 0, "typed", "sample_neighbor", {"replace": True}),
        (2, 2, "typed", "sample_layer_neighbor", {"prob_name": "weight"}),
        (4, 0, "typed", "sample_neighbor", {}),
        (2, 0, "plain", "sample_layer_neighbor", {"layer_dependency": True, "batch_dependency": 4}),
    ],
)
def test_all_ranks_together_have_the_mini_batches_of_one_machine(
    world_size: int, num_workers: int, kind: str, sample: str, options: dict[str, Any]
) -> None:
    assert check_epoch(world_size, num_workers, kind, sample, **options) >= 5


def test_an_epoch_may_be_left_and_another_resumed() -> None:
    def work(rank: int, peers: Peers) -> list[Any]:
        with gf.DataLoader(joint_pipe(rank, peers, "plain", "sample_neighbor"), 1 + rank, seed=3) as loader:
            first = list(islice(loader, 2))
            state = loader.state_dict()
            second = list(islice(loader, 1))
            loader.load_state_dict(state)
            return [*first, *loader, *second]

    *first, last = list(zip(*in_threads(2, work), strict=True))
    whole = gf.DataLoader(alone(plain(), "sample_neighbor", 2), 0, seed=3)
    wanted, next_epoch = list(whole), next(iter(whole))
    assert len(first) == 8
    for shares, batch in zip(first, wanted, strict=False):
        check_joint(shares, batch)
    check_joint(last, next_epoch)


@pytest.mark.filterwarnings("error::RuntimeWarning")  # about threads that still wait
@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_that_leaves_or_fails_ends_the_epoch_of_the_others(fails: bool) -> None:
    both = threading.Barrier(2)  # so that no rank notices the end of the peers instead

    def fail(batch: gf.MiniBatch) -> gf.MiniBatch:
        if fails and batch.key is not None and batch.key.index == 4:
            raise ZeroDivisionError
        return batch

    def work(rank: int, peers: Peers) -> str:
        found = ""
        pipe = joint_pipe(rank, peers, "plain", "sample_neighbor").transform(fail)
        with gf.DataLoader(pipe, 2, seed=3) as loader:
            try:
                found = str(len(list(islice(loader, 2 if rank == 0 and not fails else None))))
            except (RuntimeError, ZeroDivisionError) as error:
                found = str(error) or type(error).__name__
            both.wait(30)
        return found

    left, error = in_threads(2, work)
    assert left == ("ZeroDivisionError" if fails else "2")
    assert "ranks [0] have left this epoch" in error


@pytest.mark.parametrize("seeds", [(3, 4), (3, 3)])
def test_ranks_with_other_seeds_or_epochs_are_told_both_before_the_first_mini_batch(seeds: tuple[int, int]) -> None:
    def work(rank: int, peers: Peers) -> str:
        pipe = joint_pipe(rank, peers, "plain", "sample_neighbor")
        with gf.DataLoader(pipe, 0, seed=seeds[rank]) as loader:
            if seeds[0] == seeds[1]:
                loader.load_state_dict({**loader.state_dict(), "epoch": rank})
            with pytest.raises(ValueError, match="but rank") as error:
                next(iter(loader))
        return str(error.value)

    makes, epochs = ("mini-batches", "") if seeds[0] != seeds[1] else ("joint mini-batch 0", " in epoch {}")
    said = {
        f"rank {rank} produces {makes} with seed {seeds[rank]}{epochs.format(rank)}, but rank {1 - rank} with seed "
        f"{seeds[1 - rank]}{epochs.format(1 - rank)}"
        for rank in range(2)
    }
    assert {text.partition(";")[0] for text in in_threads(2, work)} <= said


def test_the_ranks_that_hold_a_part_share_its_nodes() -> None:
    ids = torch.arange(100)

    def work(rank: int, peers: Peers) -> list[int]:
        graph, _ = parts_of(plain(), rank, 4, peers)
        group = RankGroup(gf.NeighborSampler(gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2), graph, [2]), 4)
        owners = group.owners_of(None, ids)
        assert torch.equal(owners // 2, graph.part.book.owners_of(ids).long())
        return sorted(set(owners.tolist()))

    assert in_threads(4, work) == [[0, 1, 2, 3]] * 4


def test_other_processes_are_refused_and_a_mini_batch_of_one_rank_keeps_its_rows() -> None:
    group = RankGroup(alone(plain(), "sample_neighbor", 1), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="worker='thread'"):
        pickle.dumps(group)
    batch, rows = next(iter(alone(plain(), "sample_neighbor", 1, cooperative=True))), torch.ones(3, 2)
    assert CooperativeConv()(batch, rows) is rows
    by_type = {"user": torch.ones(2, 1)}
    assert CooperativeConvFunction.apply(gf.MiniBatch(), by_type) is by_type


READ: list[int] = []


class Counting(gf.TorchBasedFeature):
    """Counts the rows that are read."""

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        assert ids is not None
        READ.append(len(ids))
        return super().read(ids)


def test_each_row_is_read_once_for_all_ranks() -> None:
    READ.clear()
    feature = gf.cpu_cached_feature(Counting(torch.zeros(100, 1)), 0)
    store = gf.BasicFeatureStore({("node", None, "code"): feature})

    def work(rank: int, peers: Peers) -> list[int]:
        pipe = joint_pipe(rank, peers, "plain", "sample_neighbor")
        assert isinstance(pipe, JointFetcher)
        pipe.wrapped.fetcher.__dict__["feature_store"] = store
        assert [name for name, _ in find_caches(pipe)] == ["node code"]
        with gf.DataLoader(pipe, 0, seed=3) as loader:
            batches = list(loader)
        return [peers.traffic.rows_read, sum(len(batch.input_nodes) for batch in batches)]

    read, needed = zip(*in_threads(2, work), strict=True)
    assert sum(READ) == sum(read)
    assert sum(READ) < sum(needed)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_rows_lie_where_the_mini_batch_does(kind: str) -> None:
    def work(rank: int, peers: Peers) -> set[str]:
        fetch = joint_pipe(rank, peers, kind, "sample_neighbor")
        assert isinstance(fetch, JointFetcher)
        pipe = fetch.datapipe.transform(lambda batch: batch.to("meta"))
        with gf.DataLoader(fetch.changed(datapipe=pipe), 0, seed=3) as loader:
            return {rows.device.type for batch in loader for rows in batch.node_features.values()}

    assert in_threads(2, work) == [{"meta"}] * 2


def test_a_stage_that_replaced_the_outermost_hop_is_found() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 3).sample_neighbor(plain(), [2])
    fetch: Any = pipe.fetch_feature(gf.BasicFeatureStore({}), [])
    with pytest.raises(ValueError, match="a stage before the fetcher replaced it"):
        JointFetcher(pipe, WrappedFetcher(fetch))(next(iter(pipe)))


GRAPH = gf.from_coo(([0, 1, 2], [1, 2, 0]), num_nodes=3)
STORE = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.zeros(3, 1))})
PLACE: dict[str, Any] = {"rank": 1, "world_size": 2}


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperate, "find_rank", lambda: (1, 2))


def seeds(count: int = 8, **options: Any) -> gf.Datapipe:
    return gf.DistributedItemSampler(gf.ItemSet(count, names="seeds"), 2, **PLACE, **options)


def joint(pipe: gf.Datapipe, **options: Any) -> gf.Datapipe:
    sampled = pipe.sample_neighbor(GRAPH, [2], cooperative=True)
    return sampled.fetch_feature(STORE, ["x"], cooperative=True, **options)


def test_a_single_rank_works_as_without_it() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 2)
    loader = gf.DataLoader(joint(pipe), 0, seed=0)
    assert "joint" not in loader.explain()
    plain = gf.DataLoader(pipe.sample_neighbor(GRAPH, [2]), 0, seed=0)
    assert [batch.input_nodes.tolist() for batch in loader] == [batch.input_nodes.tolist() for batch in plain]


@pytest.mark.usefixtures("two_ranks")
def test_the_plan_shows_what_ranks_do_together() -> None:
    text = gf.DataLoader(joint(seeds()), 2, seed=0).explain()
    assert "JointSampler" in text
    assert "JointFetcher" in text
    assert "Ranks build joint mini-batches: each samples and fetches the nodes that it owns, once for all ranks" in text


def test_what_does_not_go_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(pipe: gf.Datapipe, place: tuple[int, int] = (1, 2), **options: Any) -> gf.DataLoader:
        monkeypatch.setattr(cooperate, "find_rank", lambda: place)
        return gf.DataLoader(pipe, **{"num_workers": 1, **options}, seed=0)

    alone = gf.ItemSampler(gf.ItemSet(8, names="seeds"), 2)
    fetched = seeds().sample_neighbor(GRAPH, [2]).fetch_feature(STORE, ["x"], cooperative=True)
    served: dict[str, Any] = {"servers": ["127.0.0.1:1"], "num_workers": None}
    uneven = "3 are shared by 2; give the DistributedItemSampler drop_uneven_inputs=True"
    others = "needs the process group's ranks, but rank and world_size are 1 and 2"
    check_refused(
        [
            (lambda: load(joint(alone)), ValueError, "begin with a DistributedItemSampler"),
            (lambda: load(joint(seeds(6))), ValueError, uneven),
            (lambda: load(joint(seeds(6, pad_uneven_inputs=True))), ValueError, "drop_uneven_inputs=True"),
            (lambda: load(joint(seeds()), worker="process"), ValueError, "are not ranks; use worker='thread'"),
            (lambda: load(joint(seeds()), **served), ValueError, "sampling servers are not ranks"),
            (lambda: load(fetched), ValueError, "FeatureFetcher has cooperative=True, but no sampler before it has"),
            (lambda: load(joint(seeds()), (0, 3)), ValueError, others),
        ]
    )


def test_wrong_seeds_fail_on_the_rank_that_has_them() -> None:
    def check(needed: Any, num_nodes: Any) -> None:
        check_needed(needed, num_nodes)

    one, typed = torch.tensor([1]), {"user": 9}
    check_refused(
        [
            (lambda: check(torch.tensor([3, 9]), 9), ValueError, r"seeds must lie in 0 \.\. 8, but holds 9"),
            (lambda: check({"user": -one}, typed), ValueError, "seeds of type 'user' must lie in 0"),
            (lambda: check({"user": one}, 9), TypeError, "has one type, but are a dict; use an ItemSet"),
            (lambda: check(one, typed), TypeError, "types .'user'., but are a Tensor; use a HeteroItemSet"),
            (lambda: check({"shop": one}, typed), KeyError, "node type 'shop', but the graph has .'user'."),
            (lambda: check(torch.tensor([0.5]), 9), TypeError, "seeds"),
        ]
    )


def parts(*numbers: int) -> list[list[torch.Tensor]]:
    """Return a tensor with one number for each rank."""
    return [[torch.tensor([number]) for number in numbers]]


def refused(box: Exchange, index: int = 0) -> str:
    """Return the error of an exchange with a rank that has left."""
    with pytest.raises(RuntimeError) as error:
        box.trade((1, index, 0), parts(0, 0))
    return str(error.value)


def test_steps_may_be_traded_in_any_order() -> None:
    def work(rank: int, peers: Peers) -> list[list[int]]:
        box, found = Exchange(peers, "test"), {}

        def trade(tag: Tag) -> None:
            (arrived,) = box.trade(tag, parts(*(100 * tag[1] + 10 * rank + other for other in range(3))))
            found[tag] = list(map(int, arrived))

        tags = [(1, index, 0) for index in range(3)]
        threads = [threading.Thread(target=trade, args=(tag,)) for tag in (tags if rank else tags[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return [found[tag] for tag in tags]

    for rank, found in enumerate(in_threads(3, work)):
        assert found == [[100 * index + 10 * other + rank for other in range(3)] for index in range(3)]


def test_who_waits_for_a_rank_that_says_it_left_is_told_and_nothing_is_kept() -> None:
    def work(rank: int, peers: Peers) -> list[str]:
        box, ends = Exchange(peers, "test"), list[str]()
        if rank == 1:
            box.leave(1)
        waiting = threading.Thread(target=lambda: ends.append(refused(box)))
        waiting.start()
        waiting.join(20)
        box.leave(1)
        box.trade((2, 0, 0), parts(rank, rank))
        return [*ends, str(box._given)]

    found = in_threads(2, work)
    assert all("ranks [1] have left this epoch" in error for error, _ in found)
    assert [kept for _, kept in found] == ["{}"] * 2


def test_a_thread_that_waits_ends_once_its_own_rank_leaves() -> None:
    ready = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> str:
        box, ends = Exchange(peers, "test"), list[str]()
        waiting = threading.Thread(target=lambda: ends.append(refused(box)))
        if rank == 0:
            waiting.start()
            while (1, 0, 0) not in box._given:
                time.sleep(0.01)
            box.leave(1)
            waiting.join(20)
        ready.wait(30)
        return "".join(ends)

    assert "ranks [0] have left this epoch" in in_threads(2, work)[0]


def test_who_waits_for_a_rank_that_ended_is_told() -> None:
    def work(rank: int, peers: Peers) -> str:
        box = Exchange(peers, "test")
        return refused(box, 4) if rank == 0 else ""  # and the peers of rank 1 are closed

    assert "ranks [1] have ended before joint mini-batch 4; all ranks must" in in_threads(2, work)[0]


def test_a_rank_that_does_not_come_is_named() -> None:
    ready = threading.Barrier(2)

    def work(rank: int, peers: Peers) -> str:
        box = Exchange(peers, "test")
        peers.wait_until_connected()  # until both are connected
        peers.start_timeout = peers.timeout = 0.2
        if rank == 1:
            ready.wait(30)
            return ""
        with pytest.raises(TimeoutError) as error:
            box.trade((1, 7, 0), parts(0, 0))
        ready.wait(30)
        return str(error.value)

    assert "ranks [1] did not begin joint mini-batch 7 for 0.4 s" in in_threads(2, work)[0]


def test_ranks_that_draw_otherwise_are_both_told_at_the_step() -> None:
    def work(rank: int, peers: Peers) -> str:
        with pytest.raises(ValueError, match="joint mini-batch 5") as error:
            Exchange(peers, "test").trade((1, 5, 0), parts(rank, rank), f"seed {rank} in epoch 0")
        return str(error.value)

    for rank, text in enumerate(in_threads(2, work)):
        assert f"5 with seed {rank} in epoch 0, but rank {1 - rank} with seed {1 - rank} in epoch 0; give" in text


def test_rows_come_from_their_owners_in_the_order_of_those_who_need_them() -> None:
    needed = [torch.tensor([5, 0, 5, 8]), torch.tensor([], dtype=torch.int64), torch.tensor([8, 3])]

    def work(rank: int, peers: Peers) -> list[list[int]]:
        box = Exchange(peers, "test")
        exchange = box.plan((1, 0, 0), needed[rank], 9, lambda _, ids: ids % 2)
        exchange.count_rows()
        assert isinstance(exchange.owned, torch.Tensor)
        assert (peers.traffic.rows_needed, peers.traffic.rows_read) == [(3, 2), (3, 2), (0, 0)][rank]
        (rows,) = exchange.trade([(None, exchange.owned * 10)], 1)
        return [exchange.owned.tolist(), rows.tolist()]

    found = in_threads(3, work)
    assert [owned for owned, _ in found] == [[0, 8], [5, 3], []]
    assert [rows for _, rows in found] == [(ids * 10).tolist() for ids in needed]
