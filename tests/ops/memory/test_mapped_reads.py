"""A file is read as from the disk as long as its reads wait for pages."""

import mmap
import resource
from types import SimpleNamespace

import pytest

from graphfeed.ops.memory import MappedReads


@pytest.mark.parametrize(("read", "faults"), [(30, 20), (20, 30), (0, 30), (30, 0), (0, 0)])
def test_pages_that_a_thread_waited_for_are_counted(read: int, faults: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used, pages = SimpleNamespace(ru_inblock=5, ru_majflt=7), [1]
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(**vars(used)))
    with MappedReads.count(pages):
        used.ru_inblock += read * mmap.PAGESIZE // 512
        used.ru_majflt += faults
    assert pages == [1, max(read, faults)]


def test_a_read_from_memory_makes_the_next_ones_go_through_the_mapping() -> None:
    reads = MappedReads()
    assert reads.from_disk
    reads.decide(10, 1000)
    assert reads.from_disk
    reads.decide(1, 1000)
    assert not reads.from_disk
    reads.decide(0, 0)
    assert not reads.from_disk
    reads.decide(2, 511)
    assert not reads.from_disk  # too few to tell
    reads.decide(0, 1)
    assert reads.from_disk


def test_whoever_had_to_wait_is_slower_to_trust_memory_again() -> None:
    reads, needed = MappedReads(), []
    for _ in range(9):
        count = 0
        while reads.from_disk:
            reads.decide(0, 1000)
            count += 1
        needed.append(count)
        reads.decide(100, 1000)
    assert needed == [1, 2, 4, 8, 16, 32, 64, 64, 64]
