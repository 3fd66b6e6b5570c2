"""Workers that are killed or hang are named and lose nothing, nothing is left behind, and large data are not copied."""

import gc
import os
import random
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader import ProcessExecutor, WorkerLostError
from tests.kinds import on_disk, pipelines
from tests.kinds.digests import digest
from tests.stand_ins.programs import run_body, start

KILLS_PER_EPOCH = 2
"""Fewer than the losses after which a mini-batch fails."""
SEED = 5


def linger(minibatch: Any) -> Any:
    """Sleep for a moment, so that kills hit busy workers."""
    time.sleep(0.002)
    return minibatch


def pipeline(function: Callable[[Any], Any] = linger) -> gf.Datapipe:
    """Return a pipeline whose workers also call a function, before they sample."""
    return pipelines.with_items(pipelines.shuffled(), lambda items: items.transform(function))


@contextmanager
def killer(executor: ProcessExecutor, chance: random.Random) -> Iterator[list[int]]:
    """Kill random workers at random times during the block; yield the list of killed workers."""
    killed: list[int] = []
    end = threading.Event()

    def kill() -> None:
        for _ in range(KILLS_PER_EPOCH):
            if end.wait(chance.random() * 0.03):
                return
            if pids := executor.pids():
                killed.append(chance.choice(pids))
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        end.set()
        thread.join()


def belongings() -> tuple[int, int, int]:
    """Return how many descriptors, threads and mappings of shared memory this process has."""
    gc.collect()
    mapped = Path("/proc/self/maps").read_text().count("memfd:graphfeed")
    return len(os.listdir("/proc/self/fd")), threading.active_count(), mapped


def assert_nothing_new(before: tuple[int, int, int]) -> None:
    """Compare with what there was before; objects of tests that ran earlier may be freed in between."""
    assert all(now <= then for now, then in zip(belongings(), before, strict=True)), (belongings(), before)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by /proc")
@pytest.mark.parametrize("epochs", [10, pytest.param(50, marks=pytest.mark.thorough)])
def test_killing_random_workers_changes_and_leaves_nothing(epochs: int) -> None:
    pipe = pipeline()
    chance = random.Random(0)
    kills = 0
    with ProcessExecutor(1) as executor:
        # Created once, and kept: the fork server, and the memory of the graph.
        executor.submit(abs, 1).result()
        list(gf.DataLoader(pipe, num_workers=1, executor=executor, seed=SEED))
    before = belongings()
    early = 0
    with ProcessExecutor(2) as executor:
        for epoch in range(epochs):
            expected = [digest(batch) for batch in pipe.with_seed(SEED, epoch)]
            loader = gf.DataLoader(pipe, num_workers=2, executor=executor, seed=SEED)
            loader.set_epoch(epoch)
            with killer(executor, chance) as killed:
                assert [digest(batch) for batch in loader] == expected
            kills += len(killed)
            if epoch == 2 * epochs // 5:  # by then, all memory is allocated
                early = resident_bytes()
        grown = resident_bytes() - early
    assert kills > epochs // 2
    assert grown < 24 << 20
    assert_nothing_new(before)


def test_an_epoch_that_is_left_early_with_dead_workers_leaves_nothing_of_itself() -> None:
    pipe = pipeline()
    chance = random.Random(1)
    with gf.DataLoader(pipe, num_workers=2, worker="process", seed=SEED) as loader:
        executor = loader._workers.open_executor()
        assert isinstance(executor, ProcessExecutor)
        for epoch in range(6):
            expected = [digest(batch) for batch in pipe.with_seed(SEED, epoch)]
            loader.set_epoch(epoch)
            batches = iter(loader)
            with killer(executor, chance):
                assert [digest(next(batches)) for _ in range(epoch)] == expected[:epoch]
            state = loader.state_dict()
            del batches
            loader.load_state_dict(state)
            assert [digest(batch) for batch in loader] == expected[epoch:]


def test_two_loaders_at_once_with_dying_workers_keep_apart() -> None:
    pipe = pipeline()
    chance = random.Random(2)
    with ProcessExecutor(2) as executor:
        loaders = [gf.DataLoader(pipe, num_workers=2, executor=executor, seed=seed) for seed in (1, 2)]
        with killer(executor, chance):
            pairs = [(digest(one), digest(two)) for one, two in zip(*loaders, strict=True)]
    expected = [[digest(batch) for batch in pipe.with_seed(seed, 0)] for seed in (1, 2)]
    assert pairs == list(zip(*expected, strict=True))


def culprit(minibatch: Any) -> Any:
    """Crash the worker that computes the third mini-batch."""
    if minibatch.key.index == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return minibatch


def test_a_mini_batch_that_kills_its_worker_is_named_in_its_place() -> None:
    pipe = pipeline(culprit)
    with gf.DataLoader(pipe, num_workers=2, worker="process", seed=SEED) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        with pytest.raises(WorkerLostError, match=r"3 workers died in a row during this call.*SIGSEGV") as caught:
            next(batches)
    assert "while computing mini-batch 2 of epoch 0" in caught.value.__notes__


def hang(minibatch: Any) -> Any:
    """Never finish the second mini-batch."""
    if minibatch.key.index == 1:
        time.sleep(60)
    return minibatch


@pytest.mark.slow
def test_a_mini_batch_that_hangs_is_named() -> None:
    pipe = pipeline(hang)
    with gf.DataLoader(pipeline(), num_workers=1, worker="process") as loader:
        list(loader)  # starts the fork server, and compiles: both may take longer than the timeout below
    with gf.DataLoader(pipe, num_workers=2, worker="process", seed=SEED, timeout=5) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(TimeoutError, match="worked on one call for 5 s and was killed") as caught:
            next(batches)
    assert "while computing mini-batch 1 of epoch 0" in caught.value.__notes__


def private_bytes() -> int:
    """Return the size of this process's memory that belongs to no file, and so to no other process."""
    found = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in found if line.startswith("Anonymous:"))


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="asks /proc what is private")
def test_a_worker_holds_no_copy_of_the_graph() -> None:
    count, degree = 1 << 18, 64
    graph = gf.fused_csc_sampling_graph(torch.arange(count + 1) * degree, torch.arange(count * degree) % count)
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=count // 4)
    with ProcessExecutor(1) as executor:
        before = executor.submit(private_bytes).result()
        for batch in gf.DataLoader(pipe.sample_neighbor(graph, fanouts=[1]), num_workers=1, executor=executor):
            assert batch.sampled_subgraphs
        held = executor.submit(private_bytes).result() - before
    assert held < graph.indices.nbytes // 2


HANGS_AT_ONE = """
def hang(minibatch):
    if minibatch.key.index == 1:
        print("hangs", flush=True)
        time.sleep(600)
    return minibatch

pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2).transform(hang)
"""


@pytest.mark.slow
def test_after_the_timeout_the_error_names_stage_and_mini_batch_and_the_program_can_end() -> None:
    done = run_body(
        HANGS_AT_ONE
        + """
with gf.DataLoader(pipe, num_workers=2, timeout=1) as loader:
    for batch in loader:
        pass
"""
    )
    warning, error = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert done.returncode == 1
    place = "is in MiniBatchTransformer, stage 2, mini-batch 1 of epoch 0, at <string>:9 in hang"
    assert "RuntimeWarning: abandoned 1 thread still at work: graphfeed_" in warning
    assert place in warning
    assert error.startswith("TimeoutError: the 2 workers finished no mini-batch for 1 s, waiting for mini-batch 1 of")
    assert place in error
    assert done.stderr.count("RuntimeWarning") == 1


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_interrupt_ends_the_program_although_a_stage_hangs(closed: bool) -> None:
    loop = "with gf.DataLoader(pipe, num_workers=2) as loader:\n    list(loader)\n"
    process = start(HANGS_AT_ONE + (loop if closed else "list(gf.DataLoader(pipe, num_workers=2))\n"))
    process.wait_for("hangs")
    process.send_signal(signal.SIGINT)
    status, _, errors = process.end()
    assert status == 1
    assert "KeyboardInterrupt" in errors
    assert errors.count("RuntimeWarning: abandoned 1 thread") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fetch", ["", pytest.param(".fetch_feature(gf.BasicFeatureStore({}), [])", marks=pytest.mark.thorough)]
)
def test_the_start_of_a_worker_process_is_no_hanging_stage(fetch: str) -> None:
    done = run_body(
        f"""
pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2){fetch}
with gf.DataLoader(pipe, num_workers=1, worker="process", timeout=1.0) as loader:
    print(sum(1 for _ in loader))
"""
    )
    assert (done.stdout, done.stderr) == ("4\n", "")


MEGABYTE = 1 << 20
NUM_NODES = 1_000_000
NUM_EDGES = 4_000_000
WIDTH = 16
LIMIT = 8 * MEGABYTE
"""Space for mini-batches in flight; the graph has 40 MB, the features have 64, the items 16."""


def shared_memory(pid: int | str = "self") -> int:
    """Return how many bytes of shared memory a process uses, mapped files not counted."""
    found = re.search(r"RssShmem:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def write_graph(folder: Path) -> Path:
    starts = torch.linspace(0, NUM_EDGES, NUM_NODES + 1).long()
    sources = (torch.arange(NUM_EDGES) * 7919 % NUM_NODES).int()
    gf.fused_csc_sampling_graph(starts, sources).save(folder / "graph")
    return folder / "graph"


def write_items(folder: Path) -> Path:
    """Write a dataset whose items stay on disk."""
    ids = np.arange(NUM_NODES)
    data = on_disk.untyped(folder)
    seeds = {"name": "seeds", "in_memory": False, **on_disk.save(folder, "seeds.npy", ids)}
    labels = {"name": "labels", "in_memory": False, **on_disk.save(folder, "labels.npy", ids % 7)}
    data["graph"]["nodes"] = [{"num": NUM_NODES}]
    del data["graph"]["feature_data"], data["feature_data"]
    data["tasks"] = [{"name": "classes", "train_set": [{"data": [seeds, labels]}]}]
    return on_disk.write(folder, data)


def mapped_pipeline(folder: Path) -> gf.Datapipe:
    np.save(folder / "rows.npy", np.arange(NUM_NODES, dtype=np.float32)[:, None] * np.ones(WIDTH, np.float32))
    rows = np.load(folder / "rows.npy", mmap_mode="c")
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(rows)})
    items = gf.OnDiskDataset(write_items(folder)).load().tasks[0].train_set
    assert items is not None
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=1000, shuffle=True)
    pipe = pipe.sample_neighbor(gf.load_graph(write_graph(folder)), fanouts=[2])
    return pipe.fetch_feature(store, node_feature_keys=["feat"])


@pytest.mark.slow
def test_worker_processes_map_the_files(disk_path: Path) -> None:
    pipe = mapped_pipeline(disk_path)
    before = shared_memory()
    with (
        gf.DataLoader(pipe, num_workers=2, worker="process", seed=0) as loader,
        gf.DataLoader(pipe, num_workers=0, seed=0) as inline,
    ):
        for batch, expected, _ in zip(loader, inline, range(10), strict=False):
            assert torch.equal(batch.seeds, expected.seeds)
            assert torch.equal(batch.labels, batch.seeds % 7)
            assert torch.equal(batch.node_features["feat"][:, 0], batch.input_nodes.float())
        assert loader._workers.pool is not None
        workers = loader._workers.pool.pids()  # type: ignore[attr-defined]
        assert len(workers) == 2
        assert [shared_memory(pid) < LIMIT for pid in workers] == [True, True]
        assert shared_memory() - before < LIMIT
