"""A graph is read by page as long as its mini-batches wait for the disk."""

import resource
from types import SimpleNamespace

import pytest

from graphfeed import ops
from graphfeed.ops.sampling.hops import mapped_reads


@pytest.mark.parametrize(("pages", "goes_on"), [(0, False), (63, False), (64, True), (10_000, True)])
@pytest.mark.parametrize("by_page", [False, True])
def test_reads_of_a_mini_batch_decide_on_the_next(
    by_page: bool, pages: int, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, used = ops.MappedReads(), SimpleNamespace(ru_inblock=5, ru_majflt=7)
    assert reads.by_page
    reads.by_page = by_page
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(**vars(used)))
    with reads.watch(4096):
        # By page, pages are there when they are read: no fault waits for them.
        used.ru_inblock += 8 * pages if by_page else 0
        used.ru_majflt += 0 if by_page else pages
    assert reads.by_page == goes_on


def test_a_mini_batch_that_fails_changes_nothing() -> None:
    reads = ops.MappedReads()
    with pytest.raises(ZeroDivisionError), reads.watch(4096):
        raise ZeroDivisionError
    assert reads.by_page
    assert mapped_reads.FEW_READS > 0
