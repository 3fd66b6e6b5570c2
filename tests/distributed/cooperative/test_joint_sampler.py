"""The ranks are threads, except where the process group matters; see `joint`."""

import pickle
import threading
from itertools import islice
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import CooperativeConv, Peers
from graphfeed.distributed.cooperative.joint_sampler import RankGroup
from tests.distributed.graphs import plain
from tests.distributed.joint import alone, check_epoch, check_joint, in_threads, joint_pipe
from tests.distributed.rank_processes import run_ranks


@pytest.mark.parametrize(
    ("world_size", "num_workers", "kind", "sample", "options"),
    [
        (2, 0, "plain", "sample_neighbor", {}),
        (3, 2, "plain", "sample_neighbor", {"prob_name": "weight", "deduplicate": False}),
        (3, 0, "typed", "sample_neighbor", {"replace": True}),
        (2, 2, "typed", "sample_layer_neighbor", {"prob_name": "weight"}),
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


@pytest.mark.filterwarnings("error::RuntimeWarning")  # of threads that still wait
@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_that_leaves_or_fails_ends_the_epoch_of_the_others(fails: bool) -> None:
    both = threading.Barrier(2)  # so that others don't notice the end of the peers instead

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

    said = {
        f"rank {rank} makes mini-batches with seed {seeds[rank]}, but rank {1 - rank} with seed {seeds[1 - rank]}"
        if seeds[0] != seeds[1]
        else f"rank {rank} has begun epoch {rank} at index 0, but rank {1 - rank} epoch {1 - rank} at index 0"
        for rank in range(2)
    }
    assert {text.partition(";")[0] for text in in_threads(2, work)} <= said


def test_other_processes_are_refused_with_what_to_do() -> None:
    group = RankGroup(alone(plain(), "sample_neighbor", 1), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="worker='thread'"):
        pickle.dumps(group)


def test_a_mini_batch_of_one_rank_keeps_its_rows() -> None:
    batch, rows = next(iter(alone(plain(), "sample_neighbor", 1, cooperative=True))), torch.ones(3, 2)
    assert CooperativeConv()(batch, rows) is rows


@pytest.mark.slow
def test_ranks_of_a_process_group_train_as_one_machine_and_fetch_less(tmp_path: Any) -> None:
    ranks = run_ranks("tests.distributed.joint:work_together", 3, tmp_path)
    for found in ranks:
        for case in ("parts", "whole"):
            assert found[case]["equal"] == [True] * 5
            assert "Ranks make joint mini-batches: each samples and fetches" in found[case]["explained"]
        assert found["typed"] == [True] * 3
        assert "NeighborSampler has cooperative=True, but ranks work together only in a DataLoader" in found["refused"]
    needed, read = (sum(found["whole"][name] for found in ranks) for name in ("needed", "read"))
    assert read < 0.8 * needed
