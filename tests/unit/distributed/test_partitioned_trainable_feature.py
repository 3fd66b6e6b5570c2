"""Tables that several ranks train: the same bits for any partition, checkpoints, and errors on all ranks."""

import errno
import json
import os
import re
import signal
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, PartitionedTrainableFeature, Peers, RankLostError
from tests.kinds.digests import assert_same
from tests.kinds.equal_pipelines import assign
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_refused
from tests.laws.test_training import OPTIMIZERS
from tests.stand_ins.rank_processes import end_of, rank_and_size, result_file, start_rank

NUM_ROWS, DIM, AT_ONCE = 120, 5, 4
GRAPH = gf.from_coo((torch.arange(480) * 7 % NUM_ROWS, torch.arange(480) * 11 % NUM_ROWS), num_nodes=NUM_ROWS)


def batches(sampler: Any = gf.ItemSampler, **options: Any) -> Any:
    items = gf.ItemSet(torch.arange(NUM_ROWS), names="seeds")
    return sampler(items, batch_size=5, shuffle=True, **options).sample_neighbor(GRAPH, [3])


def backward(rows: torch.Tensor, number: int) -> None:
    (rows * torch.linspace(-1, number, rows.shape[1], dtype=rows.dtype)).square().sum().backward()  # type: ignore[no-untyped-call]


def steps_of() -> list[list[torch.Tensor]]:
    """Return the rows of some mini-batches for each step."""
    found = [batch.input_nodes for batch in batches().with_seed(5)]
    return [found[start : start + AT_ONCE] for start in range(0, len(found), AT_ONCE)]


def train(table: gf.TrainableFeature, steps: Any, rank: int = 0, ranks: int = 1) -> None:
    """Train with this rank's share of the mini-batches of each step."""
    for step in steps:
        each = len(step) // ranks
        for number, ids in list(enumerate(step))[rank * each : (rank + 1) * each]:
            # Repeated rows, too.
            backward(table.fetch(torch.cat([ids, ids[:2]])), number)
        table.step()


def alone(optimizer: str, **options: Any) -> gf.TrainableFeature:
    return gf.TrainableFeature(NUM_ROWS, DIM, lr=0.1, seed=3, **OPTIMIZERS[optimizer], **options)


def in_part(book: PartBook, peers: Peers, optimizer: str = "Adam", **options: Any) -> PartitionedTrainableFeature:
    given = {"lr": 0.1, "seed": 3, **OPTIMIZERS[optimizer], **options}
    return PartitionedTrainableFeature(book, DIM, peers=peers, **given)


@cache
def expected(optimizer: str, first: int = 0, last: int | None = None) -> torch.Tensor:
    table = alone(optimizer)
    train(table, steps_of()[first:last])
    return table.read()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("ranks", "parts"), [(1, 1), (2, 2), (4, 4), (4, 1), (4, 2)])
def test_any_partition_trains_the_same_table(optimizer: str, ranks: int, parts: int) -> None:
    def work(rank: int, peers: Peers) -> None:
        book = PartBook.from_bounds([NUM_ROWS * part // parts for part in range(parts + 1)])
        table = in_part(assign(NUM_ROWS, "random", parts) if parts == 2 else book, peers, optimizer)
        assert_same(table.read(), alone(optimizer).read())
        train(table, steps_of(), rank, ranks)
        assert_same(table.read(), expected(optimizer))
        assert_same(table.read(torch.tensor([7, 100, 7])), expected(optimizer)[[7, 100, 7]])
        assert table.num_steps == len(steps_of())

    in_threads(ranks, work)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loaders_of_ranks_train_the_table_of_one_process(num_workers: int) -> None:
    one = alone("Adagrad")
    for step in (
        steps_of()[0][:2],
        steps_of()[0][2:],
        *[part for own in steps_of()[1:] for part in (own[:2], own[2:])],
    ):
        for ids in step:
            backward(one.fetch(ids), 2)
        one.step()

    def work(rank: int, peers: Peers) -> None:
        table = in_part(PartBook.from_bounds([0, 30, NUM_ROWS]), peers, "Adagrad")
        store = gf.BasicFeatureStore({("node", None, "x"): table})
        pipe = batches(gf.DistributedItemSampler, rank=rank, world_size=2, drop_uneven_inputs=True)
        with gf.DataLoader(pipe.fetch_feature(store, ["x"]), num_workers=num_workers, seed=5) as loader:
            for minibatch in loader:
                backward(minibatch.node_features["x"], 2)
                table.step()
        assert_same(table.read(), one.read())

    in_threads(2, work)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4), (4, 2), (4, 0), (0, 4)])
def test_a_checkpoint_can_be_loaded_by_any_number_of_ranks(before: int, after: int, tmp_path: Path) -> None:
    def save(rank: int, peers: Any) -> None:
        table = in_part(assign(NUM_ROWS, "random", before), peers) if before else alone("Adam")
        train(table, steps_of()[:3], rank, before or 1)
        if before:
            table.save(tmp_path / "checkpoint", {"epoch": 0})
            train(table, steps_of()[3:4], rank, before)
        else:
            train(table, steps_of()[3:4])
        table.save(tmp_path / "checkpoint", {"epoch": rank})

    def load(rank: int, peers: Any) -> None:
        book = PartBook.from_bounds([NUM_ROWS * part // max(after, 1) for part in range(after + 1)]) if after else None
        table = in_part(book, peers) if book else alone("Adam")
        if after:
            table.fetch(torch.arange(2))
        assert table.load(tmp_path / "checkpoint") == {"epoch": 0}
        train(table, steps_of()[4:], rank, after or 1)
        assert_same(table.read(), expected("Adam"))

    for ranks, work in ((before, save), (after, load)):
        if ranks:
            in_threads(ranks, work)
        else:
            work(0, None)
    parts = sorted(path.name for path in (tmp_path / "checkpoint").glob("part_*"))
    assert parts == [f"part_{part}" for part in range(max(before, 1))]
    names = {path.name.split(".")[1] for path in (tmp_path / "checkpoint").glob("part_*/*.npy")}
    assert names == {"1" if before else "0"}


def test_an_error_of_one_rank_is_raised_on_all_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, fsync = threading.Event(), os.fsync

    def sync(file: int) -> None:
        if full.is_set() and f"part_1{os.sep}" in os.readlink(f"/proc/self/fd/{file}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync)
    meet = threading.Barrier(2, timeout=60)

    def work(rank: int, peers: Peers) -> None:
        table = in_part(assign(NUM_ROWS, "random", 2), peers)
        own = steps_of()[0][rank]

        def refused(call: Any, kind: Any, words: str, other: str = r"ranks \[1\] failed in ") -> None:
            check_refused([(call, RuntimeError, other) if rank == 0 else (call, kind, words)])

        # A step without a fetch, one without gradients, and a second one for a mini-batch.
        if rank == 0:
            backward(table.fetch(own), 0)
        refused(table.step, RuntimeError, "no rows were fetched since the last step")
        if rank == 1:
            table.fetch(own)
        refused(table.step, RuntimeError, "no gradients; call backward")
        assert_same(table.read(), expected("Adam", 0, 0))
        refused(lambda: table.save(tmp_path / "new"), RuntimeError, "didn't follow", "didn't follow")
        assert not (tmp_path / "new").exists()
        if rank == 1:
            table.zero_grad()
            backward(table.fetch(own), 1)
        # The gradients of rank 0 are still those of its mini-batch.
        table.step()
        one = alone("Adam")
        for number, ids in enumerate(steps_of()[0][:2]):
            backward(one.fetch(ids), number)
        one.step()
        assert_same(table.read(), one.read())
        check_refused([(table.step, RuntimeError, "no rows were fetched since")])
        check_refused(
            [(lambda: (table.fetch(own, "a"), table.fetch(own, "b")), RuntimeError, r"step\(\) didn't follow")]
        )
        table.zero_grad()
        assert_same(table.read(), one.read())

        # A full disk, and a missing part.
        table.save(tmp_path / "checkpoint")
        backward(table.fetch(own), 0)
        table.step()
        later = table.read()
        full.set()
        refused(lambda: table.save(tmp_path / "checkpoint"), OSError, "No space left on device; it takes up to")
        meet.wait()
        full.clear()
        meet.wait()
        manifest = json.loads((tmp_path / "checkpoint" / "manifest.json").read_text())
        assert manifest["number"] == 0
        missing = tmp_path / ("other" if rank else "checkpoint")
        refused(lambda: table.load(missing), FileNotFoundError, "no complete checkpoint")
        assert_same(table.read(), later)
        table.load(tmp_path / "checkpoint")
        assert_same(table.read(), one.read())

    in_threads(2, work)


@pytest.mark.parametrize("mapped", [False, True])
def test_no_rank_loads_a_checkpoint_that_one_of_them_can_not_read(
    mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(rank: int, peers: Peers) -> None:
        path = tmp_path / f"rows_{rank}.npy" if mapped else None
        table = in_part(assign(NUM_ROWS, "random", 2), peers, path=path)
        train(table, steps_of()[:1], rank, 2)
        table.save(tmp_path / "checkpoint")
        saved = table.read()
        train(table, steps_of()[1:2], rank, 2)
        later = {key: torch.as_tensor(table.state_dict()[key]).clone() for key in ("rows", "state", "num_steps")}
        copy = table._copy_parts

        def interrupted(parts: Any, tables: Any) -> None:
            copy(parts, tables)
            raise MemoryError("no memory")

        if rank == 1:
            monkeypatch.setattr(table, "_copy_parts", interrupted)
        failing = [
            (lambda: table.load(tmp_path / "checkpoint"), RuntimeError, r"ranks \[1\] failed in load")
            if rank == 0
            else (lambda: table.load(tmp_path / "checkpoint"), MemoryError, "no memory")
        ]
        check_refused(failing)
        assert_same({key: torch.as_tensor(table.state_dict()[key]) for key in later}, later)
        if rank == 1:
            monkeypatch.setattr(table, "_copy_parts", copy)
        table.load(tmp_path / "checkpoint")
        assert_same(table.read(), saved)
        assert table.num_steps == 1

    in_threads(2, work)
    left = sorted(path.name for path in tmp_path.iterdir())
    files = [f"rows_{rank}.{end}" for rank in range(2) for end in ("npy", "state.npy")]
    assert left == ["checkpoint", *(files if mapped else [])]


def test_ranks_with_separate_folders_are_told(tmp_path: Path) -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(assign(NUM_ROWS, "random", 2), peers)
        words = (
            "part_1/rows.0.npy is missing; save to a folder that all ranks share"
            if rank == 0
            else r"ranks \[0\] failed in"
        )
        kind = FileNotFoundError if rank == 0 else RuntimeError
        check_refused([(lambda: table.save(tmp_path / f"of_{rank}"), kind, words)])
        assert not [*tmp_path.rglob("manifest.json")]
        for steps in range(2):
            table.save(tmp_path / f"after_{steps}")
            train(table, steps_of()[:1], rank, 2)
        after = table.read()
        other = r"with load\(\) of 1 steps|with load\(\) of 0 steps"
        check_refused([(lambda: table.load(tmp_path / f"after_{rank}"), ValueError, other)])
        assert_same(table.read(), after)

    in_threads(2, work)


def test_a_rank_without_rows_takes_part_in_a_step() -> None:
    def work(rank: int, peers: Peers) -> None:
        table, one = in_part(PartBook.from_bounds([0, 0, NUM_ROWS]), peers), alone("Adam")
        # The loss of the first rank leaves them out.
        rows = table.fetch(torch.tensor([3, 40][: 2 * rank], dtype=torch.int64))
        if rank == 1:
            backward(rows, 1)
        table.step()
        backward(one.fetch(torch.tensor([3, 40])), 1)
        one.step()
        assert_same(table.read(), one.read())

    in_threads(2, work)


def test_any_error_of_one_rank_is_raised_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(PartBook.from_bounds([0, 30, NUM_ROWS]), peers)
        backward(table.fetch(torch.arange(9)), 1)
        if rank == 0:
            monkeypatch.setattr(table.fetched, "gradients", lambda: dict[str, int]()["no memory"])
        check_refused(
            [(table.step, KeyError, "no memory") if rank == 0 else (table.step, RuntimeError, r"ranks \[0\] failed")]
        )

    in_threads(2, work)


def test_ranks_that_call_otherwise_are_told() -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(assign(NUM_ROWS, "random", 2), peers)
        before = table.read()
        backward(table.fetch(torch.arange(9)), 0)
        table.lr = 0.1 + rank
        check_refused(
            [(table.step, ValueError, r"table's methods 1 with step\(\), lr=.*; set the same lr on all ranks")]
        )
        assert_same(table.read(), before)

    in_threads(2, work)


def test_ranks_with_other_seeds_are_told() -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(assign(NUM_ROWS, "random", 2), peers, seed=rank)
        with pytest.raises(ValueError, match=r"seed 0\" on ranks \[0\], and .*seed 1\" on ranks \[1\]"):
            table.fetch(torch.arange(9))

    in_threads(2, work)


def test_a_rank_that_ends_is_named_and_the_rows_are_those_of_the_last_step() -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(PartBook.from_bounds([0, 60, NUM_ROWS]), peers, "sgd")
        train(table, steps_of()[:1], rank, 2)
        if rank == 1:
            return  # and its peers are closed
        before = table.read(torch.arange(60))
        backward(table.fetch(torch.arange(9)), 0)
        check_refused([(table.step, RuntimeError, r"ranks \[1\] have ended before call .*drop_uneven_inputs=True")])
        assert_same(table.read(torch.arange(60)), before)

    in_threads(2, work)


def be_killed(checkpoint: str, before: int) -> Any:
    """Train as a rank, of which rank 1 is killed before a step; return the error, the steps and the rows of rank 0."""
    rank, ranks = rank_and_size()
    table = PartitionedTrainableFeature(PartBook.from_bounds([0, 50, NUM_ROWS]), DIM, "adagrad", 0.1, seed=3)
    try:
        for number, step in enumerate(steps_of()):
            if number == before and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            train(table, [step], rank, ranks)
            if number == 1:
                table.save(checkpoint)
    except RankLostError as error:
        table.zero_grad()  # of rows that were fetched before rank 1 was lost
        return [str(error), table.num_steps, table.state_dict()["rows"].tolist()]
    return None


@pytest.mark.slow
def test_a_killed_rank_is_an_error_and_the_rows_are_those_of_the_last_step(tmp_path: Path) -> None:
    options = {"checkpoint": str(tmp_path / "checkpoint"), "before": 4}
    ranks = [start_rank(f"{__name__}:be_killed", rank, 2, tmp_path, **options) for rank in range(2)]
    assert [end_of(rank) for rank in ranks] == [""] * 2
    said, num_steps, rows = json.loads(result_file(tmp_path, 0).read_text())
    assert re.match(rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost: ", said)
    table = gf.TrainableFeature(NUM_ROWS, DIM, "adagrad", 0.1, seed=3)
    train(table, steps_of()[:2])
    saved = table.read().clone()
    # The last answer of rank 1 may be lost with it: then rank 0 doesn't have the step.
    assert num_steps in (3, 4)
    train(table, steps_of()[2:num_steps])
    assert rows == table.read()[:50].tolist()
    table.load(tmp_path / "checkpoint")
    assert_same(table.read(), saved)


def test_owners_set_rows_and_wrong_uses_are_named() -> None:
    def work(rank: int, peers: Peers) -> None:
        table = in_part(assign(NUM_ROWS, "random", 2), peers, "sgd")
        table.update(torch.arange(3.0)[:, None] * torch.ones(DIM), torch.tensor([100, 3, 50]))
        backward(table.fetch(torch.tensor([1])), 0)
        table.step()
        assert table.read(torch.tensor([100, 3, 50]))[:, 0].tolist() == [0, 1, 2]
        check_refused(
            [
                (lambda: table.load_state_dict(table.state_dict()), NotImplementedError, r"use save\(\) and load\(\)"),
                (lambda: table.update(torch.ones(1, DIM), torch.tensor([NUM_ROWS])), IndexError, "0 .. 119"),
                (lambda: table.update(torch.ones(2, DIM), torch.tensor([1])), ValueError, r"have 1 and \[2\]"),
                (lambda: gf.cpu_cached_feature(table, 100), TypeError, "can't be cached"),
                (lambda: in_part(PartBook.from_bounds([0, 1, 2, 3]), peers), ValueError, "there are 3 parts"),
                (
                    lambda: in_part(table.book, peers, journal=True),
                    NotImplementedError,
                    "journal is not for .* leave it out",
                ),
            ]
        )

    in_threads(2, work)
