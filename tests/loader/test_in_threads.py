import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import graphfeed as gf
from graphfeed.loader.in_threads import InThreads
from graphfeed.loader.in_workers import InWorkers

pytestmark = pytest.mark.usefixtures("no_leaks")


class Meet(gf.Transform):
    """Lets as many go on as were waited for, and no fewer."""

    barrier: threading.Barrier

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        self.barrier.wait()
        return minibatch


def source() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2)


def test_several_mini_batches_are_worked_on_at_once_and_come_in_order() -> None:
    pipe = InThreads(Meet(source(), threading.Barrier(2, timeout=10)), num_threads=2)
    assert [batch.seeds.tolist() for batch in pipe] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len(pipe) == 4


def test_the_workers_before_it_keep_their_executor() -> None:
    seen: dict[int, list[str]] = defaultdict(list)

    def note(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        seen[batch.key.index].append(threading.current_thread().name.rpartition("_")[0])
        return batch

    with ThreadPoolExecutor(1, thread_name_prefix="workers") as executor:
        first = InWorkers(source().transform(note), num_workers=1, window=2, executor=executor)
        list(InThreads(first.transform(note), num_threads=1))
    assert list(seen.values()) == [["workers", "graphfeed-fetch"]] * 4


def test_leaving_early_ends_its_threads() -> None:
    batches = iter(InThreads(source().transform(lambda batch: batch), num_threads=2))
    next(batches)
    batches.close()  # type: ignore[attr-defined]


def test_a_failure_comes_in_its_place() -> None:
    def fail(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        if batch.key.index == 1:
            raise ValueError("no")
        return batch

    batches = iter(InThreads(source().transform(fail), num_threads=2))
    next(batches)
    with pytest.raises(ValueError, match="no") as caught:
        next(batches)
    assert "mini-batch 1 of epoch 0, in worker thread graphfeed-fetch_" in caught.value.__notes__[0]
