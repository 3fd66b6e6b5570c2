import os
import sys
import threading
import time

import numpy as np
import pytest

import graphfeed as gf
from graphfeed.loader.executors import huge_pages
from graphfeed.loader.executors.huge_pages import NICENESS, PIECE_BYTES, WAITING, HugePages, collapsed_later
from graphfeed.storage.memory.memory_map import Bytes
from graphfeed.storage.memory.shared import COLLAPSE
from tests import pipelines


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[Bytes]:
    """Return the pieces that move into huge pages."""
    pieces: list[Bytes] = []
    monkeypatch.setattr(huge_pages, "collapse", pieces.append)
    WAITING.clear()
    return pieces


def test_memory_waits_for_the_thread_and_moves_piece_by_piece(moved: list[Bytes]) -> None:
    memory, dropped = np.arange(2 * PIECE_BYTES + 5, dtype=np.uint8), np.zeros(9, dtype=np.uint8)
    with collapsed_later():
        COLLAPSE.get()(memory)
        COLLAPSE.get()(dropped)
    del dropped
    assert moved == []
    pages = HugePages()
    pages.start()
    assert pages.thread is not None
    pages.thread.join(20)
    pages.stop()
    assert [piece.size for piece in moved] == [PIECE_BYTES, PIECE_BYTES, 5]
    assert np.array_equal(np.concatenate(moved), memory)
    assert not WAITING


def test_what_is_left_waits_for_the_next_thread(moved: list[Bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    memory, pages = np.zeros(3 * PIECE_BYTES, dtype=np.uint8), HugePages()

    def move_and_stop(piece: Bytes) -> None:
        moved.append(piece)
        pages.stopping.set()

    monkeypatch.setattr(huge_pages, "collapse", move_and_stop)
    with collapsed_later():
        COLLAPSE.get()(memory)
    pages.run()
    assert [piece.size for piece in moved] == [PIECE_BYTES]
    (waiting,) = WAITING
    assert waiting[0]() is memory
    assert waiting[1] == PIECE_BYTES


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, threads have no priority of their own")
def test_the_thread_leaves_the_cores_to_others_and_may_be_the_one_that_ends_itself(
    moved: list[Bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, pages = np.zeros(9, dtype=np.uint8), HugePages()
    found: list[int | str] = []
    before = os.nice(0)

    def look(_: Bytes) -> None:
        found.append(os.nice(0))
        pages.stop()
        found.append("stopped")

    monkeypatch.setattr(huge_pages, "collapse", look)
    with collapsed_later():
        COLLAPSE.get()(memory)
    pages.start()
    pages.stop()
    assert found == [min(19, before + NICENESS), "stopped"]
    assert os.nice(0) == before


def test_without_anything_that_waits_no_thread_starts(moved: list[Bytes]) -> None:
    pages = HugePages()
    pages.start()
    pages.stop()
    assert pages.thread is None
    assert moved == []


@pytest.mark.slow
@pytest.mark.usefixtures("fork_server", "no_leaks")
def test_a_loader_moves_what_its_workers_share_once_a_mini_batch_is_there(moved: list[Bytes]) -> None:
    with gf.DataLoader(pipelines.homogeneous(), num_workers=1, worker="process", seed=0) as loader:
        batches = iter(loader)
        assert not moved
        next(batches)
        give_up = time.monotonic() + 20
        while (WAITING or not moved) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert moved
        del batches
    assert all(thread.name != "graphfeed-huge-pages" for thread in threading.enumerate())
