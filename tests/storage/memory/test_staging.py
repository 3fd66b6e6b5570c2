import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage.features import disk_based_feature
from graphfeed.storage.memory import staging as module
from graphfeed.storage.memory.staging import Staging
from tests.loader.late_streams import Late, Stream, late_streams
from tests.ops.emulated_cuda import EmulatedCuda

DEVICE = torch.device("meta")
ROWS = torch.arange(4_000, dtype=torch.float32).reshape(1000, 4)
INDEX = torch.arange(0, 3000, 7) % 1000


@pytest.fixture
def feature(tmp_path: Path) -> gf.DiskBasedFeature:
    np.save(tmp_path / "rows.npy", ROWS.numpy())
    return gf.DiskBasedFeature(tmp_path / "rows.npy")


def on_late_stream(run: Callable[[], Any]) -> Any:
    """Run on a pretended GPU whose copies happen as late as they may."""
    with EmulatedCuda().running(), late_streams(), Late():  # type: ignore[no-untyped-call]
        return run()


def use(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> list[Staging]:
    """Let features use small blocks, which are made where there is a device."""
    made: list[Staging] = []

    def blocks(device: torch.device) -> Staging:
        if not made:
            made.append(Staging(**sizes))
        return made[0]

    monkeypatch.setattr(disk_based_feature, "staging", blocks)
    return made


@pytest.mark.parametrize("num_blocks", [1, 2, 4])
def test_blocks_are_used_again_after_their_copies(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch, num_blocks: int
) -> None:
    use(monkeypatch, block_bytes=64 * 16, num_blocks=num_blocks)

    def read() -> torch.Tensor:
        rows = feature.read(EmulatedCuda().put(INDEX))
        assert not rows.is_cpu
        return rows.cpu()

    assert torch.equal(on_late_stream(read), ROWS[INDEX])


def test_the_next_rows_are_read_while_some_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def start(begin: int, end: int, rows: torch.Tensor) -> Callable[[], None]:
        rows.copy_(ROWS[begin:end])
        happened.append(f"read from {begin}")
        return lambda: happened.append(f"copy from {begin}")

    def send() -> torch.Tensor:
        blocks = Staging(100 * 16, 2)
        return blocks.send(start, 250, ROWS.shape[1:], ROWS.dtype, DEVICE).cpu()

    assert torch.equal(on_late_stream(send), ROWS[:250])
    assert happened == [
        "read from 0", "read from 100", "copy from 0", "read from 200", "copy from 100", "copy from 200",
    ]  # fmt: skip


def read_in_stages(feature: gf.Feature) -> torch.Tensor:
    (rows,) = feature.read_async(EmulatedCuda().put(INDEX))
    return rows.wait()


WAYS: list[Callable[[gf.DiskBasedFeature], torch.Tensor]] = [
    lambda feature: feature.read(EmulatedCuda().put(INDEX)),
    read_in_stages,
    lambda feature: gf.gpu_cached_feature(feature, 160, "meta").read(EmulatedCuda().put(INDEX)),
    lambda feature: read_in_stages(gf.gpu_cached_feature(feature, 160, "meta")),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_nothing_waits_in_memory_that_is_not_page_locked(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch, way: int
) -> None:
    use(monkeypatch, block_bytes=64 * 16, num_blocks=2)

    def read() -> list[str]:
        rows = WAYS[way](feature)
        waits = [name for name in EmulatedCuda.waits if name.startswith(("copy_", "_to_copy"))]
        assert torch.equal(rows.cpu(), ROWS[INDEX])
        return waits

    # Only the ids cross to the CPU while the program waits.
    assert len(on_late_stream(read)) == 1


def test_rows_without_values_need_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, block_bytes=64, num_blocks=1)
    np.save(tmp_path / "none.npy", np.zeros((5, 0), np.float32))
    empty = gf.DiskBasedFeature(tmp_path / "none.npy")
    found = on_late_stream(lambda: empty.read(EmulatedCuda().put(torch.tensor([4, 0, 1]))).cpu())
    assert found.shape == (3, 0)


def test_threads_share_few_blocks(feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, block_bytes=32 * 16, num_blocks=2)
    found: dict[int, torch.Tensor] = {}

    def run() -> None:
        feature.read(EmulatedCuda().put(INDEX))  # makes the blocks

        def read(number: int) -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(Stream(DEVICE)):  # type: ignore[arg-type]
                found[number] = feature.read(EmulatedCuda().put(INDEX)).cpu()

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    on_late_stream(run)
    assert len(found) == 4
    assert all(torch.equal(rows, ROWS[INDEX]) for rows in found.values())


def test_a_read_that_fails_gives_its_blocks_back(feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAKE_TIMEOUT_SECONDS", 5)

    def start(begin: int, end: int, rows: torch.Tensor) -> Callable[[], None]:
        def fail() -> None:
            raise OSError("the disk is gone")

        rows.copy_(ROWS[begin:end])
        return fail if begin == 10 else lambda: None

    def send() -> torch.Tensor:
        blocks = Staging(10 * 16, 2)
        for _ in range(3):
            with pytest.raises(OSError, match="the disk is gone"):
                blocks.send(start, 40, ROWS.shape[1:], ROWS.dtype, DEVICE)
        return blocks.send(start, 10, ROWS.shape[1:], ROWS.dtype, DEVICE).cpu()

    assert torch.equal(on_late_stream(send), ROWS[:10])


@pytest.mark.parametrize("cached", [False, True])
def test_the_loader_reads_ahead_of_the_step_and_gives_the_same_mini_batches(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    use(monkeypatch, block_bytes=16 * 16, num_blocks=2)
    graph = gf.from_coo((torch.arange(3000) % 1000, torch.arange(3000) * 7 % 1000), num_nodes=1000)

    def batches(device: str) -> list[torch.Tensor]:
        own: gf.Feature = feature
        if cached and device != "cpu":
            own = gf.gpu_cached_feature(feature, 16_000, device)
        store = gf.BasicFeatureStore({("node", None, "feat"): own})
        pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=20, shuffle=True)
        pipe = pipe.sample_neighbor(graph, fanouts=[3]).copy_to(device)
        pipe = pipe.fetch_feature(store, node_feature_keys=["feat"])
        with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
            assert ("StreamPrefetch" in loader.explain()) == (device != "cpu")
            return [batch.node_features["feat"].cpu() for batch in loader]

    expected = batches("cpu")
    found = on_late_stream(lambda: batches("meta"))
    assert len(found) == len(expected) == 3
    assert all(torch.equal(mine, its) for mine, its in zip(found, expected, strict=True))


def test_rows_that_fit_into_no_block_are_copied_from_memory(
    feature: gf.DiskBasedFeature, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, block_bytes=15, num_blocks=1)
    found = on_late_stream(lambda: feature.read(EmulatedCuda().put(INDEX)).cpu())
    assert torch.equal(found, ROWS[INDEX])
