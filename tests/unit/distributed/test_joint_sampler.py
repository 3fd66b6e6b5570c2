"""Joint mini-batches: messages between ranks, the rows that each fetches for all, and errors."""

import threading
from itertools import islice
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import CooperativeConv, CooperativeConvFunction, JointFetcher, Peers
from graphfeed.distributed.cooperative import cooperate
from graphfeed.distributed.cooperative.exchange import Exchange, check_needed
from tests.kinds.joint import alone, check_epoch, check_joint, in_threads, joint_pipe
from tests.kinds.partitioned_graphs import plain
from tests.kinds.refusals import check_refused


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

    makes, epochs = (
        ("produces mini-batches", "") if seeds[0] != seeds[1] else ("begins joint mini-batch 0", " in epoch {}")
    )
    said = {
        f"rank {rank} {makes} with seed {seeds[rank]}{epochs.format(rank)}, but rank {1 - rank} with seed "
        f"{seeds[1 - rank]}{epochs.format(1 - rank)}"
        for rank in range(2)
    }
    assert {text.partition(";")[0] for text in in_threads(2, work)} <= said


def test_a_single_rank_works_as_without_it_and_keeps_its_rows() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 2)
    loader = gf.DataLoader(joint(pipe), 0, seed=0)
    assert "joint" not in loader.explain()
    usual = gf.DataLoader(pipe.sample_neighbor(GRAPH, [2]), 0, seed=0)
    assert [batch.input_nodes.tolist() for batch in loader] == [batch.input_nodes.tolist() for batch in usual]
    batch, rows = next(iter(alone(plain(), "sample_neighbor", 1, cooperative=True))), torch.ones(3, 2)
    assert CooperativeConv()(batch, rows) is rows
    by_type = {"user": torch.ones(2, 1)}
    assert CooperativeConvFunction.apply(gf.MiniBatch(), by_type) is by_type


def test_rows_lie_where_the_mini_batch_does() -> None:
    def work(rank: int, peers: Peers) -> set[str]:
        fetch = joint_pipe(rank, peers, "typed", "sample_neighbor")
        assert isinstance(fetch, JointFetcher)
        pipe = fetch.datapipe.transform(lambda batch: batch.to("meta"))
        with gf.DataLoader(fetch.changed(datapipe=pipe), 0, seed=3) as loader:
            return {rows.device.type for batch in loader for rows in batch.node_features.values()}

    assert in_threads(2, work) == [{"meta"}] * 2


GRAPH = gf.from_coo(([0, 1, 2], [1, 2, 0]), num_nodes=3)
STORE = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.zeros(3, 1))})
PLACE: dict[str, Any] = {"rank": 1, "world_size": 2}


def seeds(count: int = 8, **options: Any) -> gf.Datapipe:
    return gf.DistributedItemSampler(gf.ItemSet(count, names="seeds"), 2, **PLACE, **options)


def joint(pipe: gf.Datapipe, **options: Any) -> gf.Datapipe:
    sampled = pipe.sample_neighbor(GRAPH, [2], cooperative=True)
    return sampled.fetch_feature(STORE, ["x"], cooperative=True, **options)


def test_what_does_not_go_together_is_refused_and_the_plan_shows_what_ranks_do_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(pipe: gf.Datapipe, place: tuple[int, int] = (1, 2), **options: Any) -> gf.DataLoader:
        monkeypatch.setattr(cooperate, "find_rank", lambda: place)
        return gf.DataLoader(pipe, **{"num_workers": 1, **options}, seed=0)

    alone = gf.ItemSampler(gf.ItemSet(8, names="seeds"), 2)
    plan = load(joint(seeds()), num_workers=2).explain()
    assert "JointSampler(" in plan
    assert "Ranks build joint mini-batches: each samples and fetches the nodes that it owns" in plan
    fetched = seeds().sample_neighbor(GRAPH, [2]).fetch_feature(STORE, ["x"], cooperative=True)
    served: dict[str, Any] = {"servers": ["127.0.0.1:1"], "num_workers": None}
    uneven = "3 are shared by 2; give the DistributedItemSampler drop_uneven_inputs=True"
    others = "needs the process group's ranks, but rank and world_size are 1 and 2"
    check_refused([
        (lambda: load(joint(alone)), ValueError, "begin with a DistributedItemSampler"),
        (lambda: load(joint(seeds(6))), ValueError, uneven),
        (lambda: load(joint(seeds(6, pad_uneven_inputs=True))), ValueError, "drop_uneven_inputs=True"),
        (lambda: load(joint(seeds()), worker="process"), ValueError, "are not ranks; use worker='thread'"),
        (lambda: load(joint(seeds()), **served), ValueError, "sampling servers are not ranks"),
        (lambda: load(fetched), ValueError, "FeatureFetcher has cooperative=True, but no sampler before it has"),
        (lambda: load(joint(seeds()), (0, 3)), ValueError, others),
    ])  # fmt: skip


def test_wrong_seeds_fail_on_the_rank_that_has_them() -> None:
    check: Any = check_needed
    one, typed = torch.tensor([1]), {"user": 9}
    check_refused([
        (lambda: check(torch.tensor([3, 9]), 9), ValueError, r"seeds must be in 0 \.\. 8, but holds 9"),
        (lambda: check({"user": -one}, typed), ValueError, "seeds of type 'user' must be in 0"),
        (lambda: check({"user": one}, 9), TypeError, "has one type, but are a dict; use an ItemSet"),
        (lambda: check(one, typed), TypeError, "types .'user'., but are a Tensor; use a HeteroItemSet"),
        (lambda: check({"shop": one}, typed), KeyError, "node type 'shop', but the graph has .'user'."),
        (lambda: check(torch.tensor([0.5]), 9), TypeError, "seeds"),
    ])  # fmt: skip


def parts(*numbers: int) -> list[list[torch.Tensor]]:
    """Return a tensor with one number for each rank."""
    return [[torch.tensor([number]) for number in numbers]]


def test_who_waits_for_a_rank_that_ended_is_told() -> None:
    def work(rank: int, peers: Peers) -> str:
        box = Exchange(peers, "test")
        if rank == 1:
            return ""  # and the peers of rank 1 are closed
        with pytest.raises(RuntimeError) as error:
            box.trade((1, 4, 0), parts(0, 0))
        return str(error.value)

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
