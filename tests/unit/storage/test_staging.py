"""Copies of rows to a GPU through page-locked blocks of 4 MiB, which torch reuses."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.memory import staging
from graphfeed.storage.memory.staging import Wait, send_rows
from tests.kinds.cache_models import OddRowsRemote
from tests.stand_ins.emulated_cuda import EmulatedCuda
from tests.stand_ins.failures import NotStartedError, failing_at
from tests.stand_ins.late_streams import Stream, late_streams

DEVICE = torch.device("meta")
ROWS = torch.arange(6_000 * 1024, dtype=torch.float32).reshape(6_000, 1024)
"""Rows of 24 MiB, which need several blocks."""
WIDE = ROWS.reshape(4, -1)
"""Rows that are larger than a block."""
INDEX = torch.arange(0, 6_000 * 7, 7) % 6_000
SMALL = torch.arange(4_000, dtype=torch.float32).reshape(1000, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for name, rows in (("rows", ROWS), ("wide", WIDE), ("small", SMALL), ("none", torch.zeros(5, 0))):
        np.save(folder / f"{name}.npy", rows.numpy())
    return folder


def on_late_stream(run: Callable[[], Any]) -> Any:
    """Run on an emulated GPU whose copies happen as late as possible."""
    with EmulatedCuda().running(), late_streams():
        return run()


def read_there(feature: gf.Feature, index: torch.Tensor, *, in_stages: bool = False) -> torch.Tensor:
    """Read rows for an emulated GPU, and copy them back; the program waits only for the copy of the ids to the CPU."""
    ids = EmulatedCuda().put(index)
    before = len(EmulatedCuda.waits)
    rows = next(iter(feature.read_async(ids))).wait() if in_stages else feature.read(ids)
    assert not rows.is_cpu
    waits = [name for name in EmulatedCuda.waits[before:] if name.startswith(("copy_", "_to_copy"))]
    assert len(waits) <= 1, "something waits in memory that is not page-locked"
    return rows.cpu()


def by_cpu(feature: gf.DiskBasedFeature) -> gf.CPUCachedFeature:
    return gf.cpu_cached_feature(feature, 1 << 20)


CACHES: dict[str, Callable[[gf.DiskBasedFeature], gf.Feature]] = {
    "none": lambda feature: feature,
    "cpu": by_cpu,
    "gpu": lambda feature: gf.gpu_cached_feature(feature, 1 << 16, "meta"),
    "gpu and cpu": lambda feature: gf.gpu_cached_feature(by_cpu(feature), 1 << 16, "meta"),
}


@pytest.mark.parametrize("cache", CACHES)
def test_rows_of_any_size_reach_a_gpu_without_waits(folder: Path, cache: str) -> None:
    def run() -> None:
        own = CACHES[cache](gf.DiskBasedFeature(folder / "rows.npy"))
        for in_stages in (False, True):
            assert torch.equal(read_there(own, INDEX, in_stages=in_stages), ROWS[INDEX])
        for ids, dtype in (([], torch.int64), ([7], torch.uint8), ([7, 3, 7, 7], torch.int32), ([5] * 9, torch.int64)):
            index = torch.tensor(ids, dtype=dtype)
            assert torch.equal(read_there(own, index), ROWS[index.long()])
        wide, none = (CACHES[cache](gf.DiskBasedFeature(folder / f"{name}.npy")) for name in ("wide", "none"))
        assert torch.equal(read_there(wide, torch.tensor([3, 0, 3])), WIDE[[3, 0, 3]])
        assert read_there(none, torch.tensor([4, 0, 1])).shape == (3, 0)

    on_late_stream(run)


def test_the_next_rows_are_read_while_some_are_copied() -> None:
    happened: list[str] = []

    def start(begin: int, end: int, rows: torch.Tensor) -> Callable[[], None]:
        rows.copy_(SMALL[begin:end])
        happened.append(f"read from {begin}")
        return lambda: happened.append(f"copy from {begin}")

    assert torch.equal(on_late_stream(lambda: send(start, 100, 250)), SMALL[:250])
    assert happened == [
        "read from 0", "read from 100", "copy from 0", "read from 200", "copy from 100", "copy from 200",
    ]  # fmt: skip


def send(start: Callable[[int, int, torch.Tensor], Wait], rows_per_block: int, count: int = 100) -> torch.Tensor:
    with patch.object(staging, "BLOCK_BYTES", rows_per_block * 16):
        return send_rows(start, (count, *SMALL.shape[1:]), SMALL.dtype, DEVICE).cpu()


@pytest.mark.parametrize("cache", ["none", "cpu"])
def test_threads_may_read_at_once(folder: Path, cache: str) -> None:
    found: dict[int, torch.Tensor] = {}

    def run() -> None:
        own = CACHES[cache](gf.DiskBasedFeature(folder / "rows.npy"))

        def read(number: int) -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(Stream(DEVICE)):  # type: ignore[arg-type]
                found[number] = own.read(EmulatedCuda().put(INDEX)).cpu()

        threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    on_late_stream(run)
    assert len(found) == 3
    assert all(torch.equal(rows, ROWS[INDEX]) for rows in found.values())


def test_the_reader_is_few_copies_ahead() -> None:
    before = len(EmulatedCuda.memory.blocks)
    assert torch.equal(on_late_stream(lambda: send(read, 30, 1000)), SMALL)
    assert len(EmulatedCuda.memory.blocks) - before < 8, "of 34 blocks, few are in use at once"


def fail(*_: Any) -> Any:
    raise OSError("it is gone")


def read(begin: int, end: int, rows: torch.Tensor) -> Wait:
    rows.copy_(SMALL[begin:end])
    return lambda: None


def test_after_any_failure_rows_are_sent_again() -> None:
    def run() -> torch.Tensor:
        failures = 0
        for start in (fail, lambda *_: fail) * 2:
            with pytest.raises(OSError, match="it is gone"):
                send(start, 10)
        for number in range(1, 30):
            try:
                with failing_at(number):
                    send(read, 10)
            except (torch.cuda.OutOfMemoryError, NotStartedError):
                failures += 1
        assert failures
        return send(read, 10)

    assert torch.equal(on_late_stream(run), SMALL[:100])


def test_a_block_that_a_failed_read_still_writes_into_is_used_by_nobody_else() -> None:
    late: list[torch.Tensor] = []

    def start(begin: int, end: int, rows: torch.Tensor) -> Wait:
        late.append(rows)
        return fail

    def again(begin: int, end: int, rows: torch.Tensor) -> Wait:
        def wait() -> None:
            rows.copy_(SMALL[begin:end])
            for left in late:
                left.fill_(-1)

        return wait

    def run() -> torch.Tensor:
        with pytest.raises(OSError, match="it is gone"):
            send(start, 10)
        return send(again, 10)

    assert torch.equal(on_late_stream(run), SMALL[:100])
    assert len(late) == 2


def make_pipe(own: gf.Feature, device: str) -> gf.Datapipe:
    graph = gf.from_coo((torch.arange(3000) % 1000, torch.arange(3000) * 7 % 1000), num_nodes=1000)
    store = gf.BasicFeatureStore({("node", None, "feat"): own})
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=20, shuffle=True)
    return pipe.sample_neighbor(graph, fanouts=[3]).copy_to(device).fetch_feature(store, node_feature_keys=["feat"])


def batches(own: gf.Feature, device: str) -> list[torch.Tensor]:
    with gf.DataLoader(make_pipe(own, device), num_workers=2, seed=0) as loader:
        assert ("StreamPrefetch" in loader.explain()) == (device != "cpu")
        return [batch.node_features["feat"].cpu() for batch in loader]


@pytest.mark.parametrize("cache", ["none", "gpu and cpu"])
def test_the_loader_gives_the_same_mini_batches_also_after_loops_that_were_left(folder: Path, cache: str) -> None:
    feature = gf.DiskBasedFeature(folder / "small.npy")
    expected = batches(feature, "cpu")

    def run() -> list[torch.Tensor]:
        own = CACHES[cache](feature)
        for _ in range(5):  # each time, a block could be lost
            with gf.DataLoader(make_pipe(own, "meta"), num_workers=2, seed=0) as loader:
                next(iter(loader))
        return batches(own, "meta")

    found = on_late_stream(run)
    assert len(found) == len(expected) == 3
    assert all(torch.equal(mine, its) for mine, its in zip(found, expected, strict=True))


def test_features_of_several_dtypes_that_share_a_cache_and_remote_ones_reach_a_gpu(folder: Path) -> None:
    pairs, index = torch.arange(2000).reshape(1000, 2), INDEX[:200] % 1000
    disk, memory = gf.DiskBasedFeature(folder / "small.npy"), gf.TorchBasedFeature(pairs)
    shared = gf.cpu_cached_feature({"disk": disk, "memory": memory}, 100 * 50)
    for _ in range(2):
        assert torch.equal(on_late_stream(lambda: read_there(shared["disk"], index)), SMALL[index])
        assert torch.equal(on_late_stream(lambda: read_there(shared["memory"], index)), pairs[index])
    away = OddRowsRemote(SMALL)
    assert torch.equal(on_late_stream(lambda: read_there(gf.cpu_cached_feature(away, 100 * 50), index)), SMALL[index])
    assert away.asked == [list(dict.fromkeys(index[index % 2 == 1].tolist()))]
