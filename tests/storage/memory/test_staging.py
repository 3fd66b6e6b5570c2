"""Copies of rows to a GPU through page-locked blocks, which threads share and which survive failures."""

import os
import threading
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.memory import staging as module
from graphfeed.storage.memory.staging import Staging, Wait
from tests.cache_models import OddRowsRemote
from tests.loader.late_streams import Event, Stream, late_streams
from tests.ops.emulated_cuda import EmulatedCuda

DEVICE = torch.device("meta")
ROWS = torch.arange(4_000, dtype=torch.float32).reshape(1000, 4)
INDEX = torch.arange(0, 3000, 7) % 1000


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeout for a missing block to a few seconds."""
    monkeypatch.setattr(module, "TAKE_TIMEOUT_SECONDS", 5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    return tmp_path / "rows.npy"


@pytest.fixture
def feature(path: Path) -> gf.DiskBasedFeature:
    return gf.DiskBasedFeature(path)


def on_late_stream(run: Callable[[], Any]) -> Any:
    """Run on an emulated GPU whose copies happen as late as possible."""
    with EmulatedCuda().running(), late_streams():
        return run()


class Blocks(dict[torch.device, Staging]):
    """Blocks of some sizes for each device, which are allocated once it exists."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    def get(self, device: torch.device) -> Staging:  # type: ignore[override]
        return self.setdefault(device, Staging(**self.sizes)) if device not in self else self[device]


def use(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Make features use small blocks."""
    monkeypatch.setattr(module, "STAGING", Blocks(sizes))


def no_parts(row: int, skipped: int, memory: torch.Tensor) -> Wait:
    """Placeholder for reading a part of a row, for rows that fit into blocks."""
    raise AssertionError


def by_cpu(feature: gf.DiskBasedFeature) -> gf.CPUCachedFeature:
    """Return the feature with a cache of 100 rows."""
    return gf.cpu_cached_feature(feature, 100 * 50)


def test_blocks_are_used_again_after_their_copies(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> torch.Tensor:
        rows = feature.read(EmulatedCuda().put(INDEX))
        assert not rows.is_cpu
        return rows.cpu()

    for num_blocks in (1, 2, 4):
        use(monkeypatch, block_bytes=64 * 16, num_blocks=num_blocks)
        assert torch.equal(on_late_stream(read), ROWS[INDEX]), num_blocks


def read_at_once(feature: gf.Feature, ids: torch.Tensor) -> torch.Tensor:
    return feature.read(ids)


def read_in_stages(feature: gf.Feature, ids: torch.Tensor) -> torch.Tensor:
    (rows,) = feature.read_async(ids)
    return rows.wait()


CACHES: dict[str, Callable[[gf.DiskBasedFeature], gf.Feature]] = {
    "none": lambda feature: feature,
    "cpu": by_cpu,
    "gpu": lambda feature: gf.gpu_cached_feature(feature, 160, "meta"),
    "gpu and cpu": lambda feature: gf.gpu_cached_feature(by_cpu(feature), 160, "meta"),
}


def test_nothing_waits_in_memory_that_is_not_page_locked(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cache: str, read: Callable[[gf.Feature, torch.Tensor], torch.Tensor], index: torch.Tensor) -> list[str]:
        own, ids = CACHES[cache](feature), EmulatedCuda().put(index)
        rows = read(own, ids)
        assert not rows.is_cpu
        waits = [name for name in EmulatedCuda.waits if name.startswith(("copy_", "_to_copy"))]
        assert torch.equal(rows.cpu(), ROWS[index])
        return waits

    in_parts = (6, read_in_stages, torch.tensor([7, 999, 7]))
    sizes = (64 * 16, read_at_once, INDEX[:200]), (64 * 16, read_in_stages, INDEX[:200]), in_parts
    for cache, (block_bytes, read, index) in product(CACHES, sizes):
        use(monkeypatch, block_bytes=block_bytes, num_blocks=2)
        # The program waits only for the copy of the ids to the CPU.
        assert len(on_late_stream(partial(run, cache, read, index))) == 1, cache


@pytest.mark.parametrize("cache", ["none", "cpu"])
def test_threads_share_few_blocks(feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch, cache: str) -> None:
    use(monkeypatch, block_bytes=32 * 16, num_blocks=2)
    found: dict[int, torch.Tensor] = {}

    def run() -> None:
        own = CACHES[cache](feature)
        own.read(EmulatedCuda().put(INDEX))  # allocates the blocks

        def read(number: int) -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(Stream(DEVICE)):  # type: ignore[arg-type]
                found[number] = own.read(EmulatedCuda().put(INDEX)).cpu()

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    on_late_stream(run)
    assert len(found) == 4
    assert all(torch.equal(rows, ROWS[INDEX]) for rows in found.values())


def fail(*args: Any, **kwargs: Any) -> Any:
    raise OSError("it is gone")


def test_after_any_failure_all_blocks_are_free_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, both blocks would be lost after three failures, and the last read would time out."""

    def run(used: bool, of_disk: bool, cache: str) -> torch.Tensor:
        own = CACHES[cache](gf.DiskBasedFeature(path))
        if used:
            read_there(own, INDEX)
        for _ in range(3):
            if of_disk:
                os.truncate(path, 5000)
                with pytest.raises(EOFError, match="the file ends at"):
                    read_there(own, INDEX)
                path.write_bytes(whole)
            else:
                with monkeypatch.context() as patch:
                    patch.setattr(Event, "synchronize", fail)
                    with pytest.raises(OSError, match="it is gone"):
                        read_there(own, INDEX)
        return read_there(own, INDEX)

    whole = path.read_bytes()
    for case in product([False, True], [False, True], ["none", "cpu"]):
        use(monkeypatch, block_bytes=32 * 16, num_blocks=2)
        assert torch.equal(on_late_stream(partial(run, *case)), ROWS[INDEX]), case


def test_a_block_that_a_failed_read_still_writes_into_is_used_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[torch.Tensor] = []

    def start(begin: int, end: int, rows: torch.Tensor) -> Wait:
        late.append(rows)
        return fail

    def again(begin: int, end: int, rows: torch.Tensor) -> Wait:
        def wait() -> None:
            rows.copy_(ROWS[begin:end])
            for left in late:
                left.fill_(-1)

        return wait

    def send() -> torch.Tensor:
        blocks = Staging(10 * 16, 2)
        with pytest.raises(OSError, match="it is gone"):
            blocks.send(start, no_parts, 40, ROWS.shape[1:], ROWS.dtype, DEVICE)
        return blocks.send(again, no_parts, 40, ROWS.shape[1:], ROWS.dtype, DEVICE).cpu()

    assert torch.equal(on_late_stream(send), ROWS[:40])
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
def test_the_loader_reads_ahead_of_the_step_and_gives_the_same_mini_batches_also_after_loops_that_were_left(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    use(monkeypatch, block_bytes=4 * 16, num_blocks=2)
    expected = batches(feature, "cpu")

    def run() -> list[torch.Tensor]:
        own = CACHES[cache](feature)
        for _ in range(3):  # each time, a block could be lost
            with gf.DataLoader(make_pipe(own, "meta"), num_workers=2, seed=0) as loader:
                next(iter(loader))
        return batches(own, "meta")

    found = on_late_stream(run)
    assert len(found) == len(expected) == 3
    assert all(torch.equal(mine, its) for mine, its in zip(found, expected, strict=True))


def test_ids_may_be_few_or_repeat_and_be_any_whole_numbers(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(make: Callable[[gf.DiskBasedFeature], gf.Feature]) -> None:
        own = make(feature)
        for ids, dtype in product(([], [7], [7, 3, 7, 7], [5] * 9), (torch.uint8, torch.int32)):
            index = torch.tensor(ids, dtype=dtype)
            rows = own.read(EmulatedCuda().put(index))
            assert not rows.is_cpu
            assert torch.equal(rows.cpu(), ROWS[index.long()])

    for block_bytes, make in product([4 * 16, 6], CACHES.values()):
        use(monkeypatch, block_bytes=block_bytes, num_blocks=2)
        on_late_stream(partial(run, make))


def test_remote_rows_are_asked_for_at_once_and_reach_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    index = INDEX[:200]
    for block_bytes in (64 * 16, 6):
        use(monkeypatch, block_bytes=block_bytes, num_blocks=2)
        away = OddRowsRemote(ROWS)
        cached = gf.cpu_cached_feature(away, 100 * 50)
        found = on_late_stream(partial(read_there, cached, index))
        assert torch.equal(found, ROWS[index])
        assert away.asked == [list(dict.fromkeys(index[index % 2 == 1].tolist()))]


def read_there(feature: gf.Feature, index: torch.Tensor) -> torch.Tensor:
    """Read rows for an emulated GPU, and copy them back."""
    return feature.read(EmulatedCuda().put(index)).cpu()
