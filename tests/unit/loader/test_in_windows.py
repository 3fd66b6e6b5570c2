"""Windows of mini-batches: rows that are read ahead, and hops that are sampled together."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import RunContext
from graphfeed.storage.memory import count_bytes
from tests.contracts.test_inserted import (
    KEY,
    NODES,
    fetched,
    graph,
    read_ahead,
    sampled,
    together,
)
from tests.kinds.digests import digest, digests
from tests.stand_ins.programs import run_body

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fetched(tmp_path / "feat.npy", sampled())
    return tmp_path / "feat.npy"


def test_mini_batches_are_those_of_the_fetch_alone(path: Path) -> None:
    pipe = fetched(path, sampled())
    expected = digests(pipe)
    # The smaller memory has no room for the samples of two mini-batches.
    for size, window in product([4000, 1 << 20], [1, 3, None]):
        assert digests(read_ahead(pipe, size, window)) == expected, (size, window)
    assert len(read_ahead(pipe)) == 25


class Counted(gf.Datapipe):
    """Counts the mini-batches that were requested."""

    datapipe: gf.Datapipe
    seen: list[int]

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            self.seen.append(minibatch.key.index)
            yield minibatch


def test_a_window_holds_no_more_mini_batches_than_asked(path: Path) -> None:
    seen: list[int] = []
    pipe = read_ahead(fetched(path, Counted(sampled(), seen)), window=2)
    assert max(len(seen) - number for number, _ in enumerate(RunContext().drive(pipe))) <= 6


def test_a_file_that_became_shorter_is_an_error_in_the_epoch_and_before_the_next(path: Path) -> None:
    pipe = read_ahead(fetched(path, sampled()), window=2)
    running = RunContext().drive(pipe)
    next(running)
    with path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(EOFError, match="the file ends at 200"):
        list(running)
    with pytest.raises(RuntimeError, match=r"feat.npy was written to .* had 2528 bytes .* has 200"):
        next(iter(RunContext().drive(pipe)))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file that can't be read")
def test_an_error_of_the_disk_is_raised_and_the_next_epoch_reads_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = fetched(path, sampled())
    windowed, run = read_ahead(pipe), RunContext()
    (feature,) = pipe.features().values()
    with open("/proc/self/mem", "rb") as broken, monkeypatch.context() as patch:  # reading its first bytes raises EIO
        patch.setitem(vars(feature), "_direct", broken.fileno())
        with pytest.raises(OSError, match="Input/output error"):
            list(run.drive(windowed))
    assert [digest(minibatch) for minibatch in RunContext(memories=run.memories).drive(windowed)] == digests(pipe)


def test_rows_that_an_update_put_in_the_place_of_the_file_s_are_seen(path: Path) -> None:
    cached = gf.cpu_cached_feature(gf.DiskBasedFeature(path), 10_000)
    store = gf.BasicFeatureStore({KEY: cached})
    pipe = sampled().fetch_feature(store, node_feature_keys=["feat"])
    loader = gf.DataLoader(pipe, num_workers=0, window=4)
    next(iter(loader))
    cached.update(torch.full((NODES, 3), 7.0))
    assert all(bool((minibatch.node_features["feat"] == 7).all()) for minibatch in loader)


def test_an_id_without_a_row_is_raised_in_the_place_of_its_mini_batch(path: Path) -> None:
    def spoil(batch: gf.MiniBatch) -> gf.MiniBatch:
        assert batch.key is not None
        return gf.MiniBatch(input_nodes=torch.tensor([NODES if batch.key.index == 12 else 1]))

    running = RunContext().drive(read_ahead(fetched(path, sampled().transform(spoil))))
    assert len([next(running) for _ in range(12)]) == 12
    with pytest.raises(IndexError, match=r"ids must be in 0 \.\. 199, but holds 200") as failure:
        next(running)
    assert "in FeatureFetcher, stage 5" in failure.value.__notes__[0]


def test_the_end_of_an_epoch_ends_no_read_of_the_next(path: Path) -> None:
    expected, first, going = digests(fetched(path, sampled())), RunContext(), threading.Event()
    second, third = (RunContext(memories=first.memories) for _ in range(2))
    ended, waiting = [first], list[bool]()
    going.set()

    class Late(gf.DiskBasedFeature):
        """A file whose reads ahead wait for an event."""

        def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> Any:
            def read() -> tuple[int, int]:
                out[positions] = self.read(ids)
                return 1, ids.numel()

            reader.submit(going.wait, 60)
            return [reader.submit(read)]

        def join(self, futures: Any) -> None:
            if not going.is_set():
                waiting.extend(not future.done() for future in futures)
                ended[-1].cancel()
            going.set()
            super().join(futures)

    with ThreadPoolExecutor(1) as reader:
        pipe: Any = sampled().fetch_feature(gf.BasicFeatureStore({KEY: Late(path)}), node_feature_keys=["feat"])
        # The memory is too small for all rows, so each epoch reads some.
        windowed = read_ahead(pipe, 5300)
        assert len(list(first.drive(windowed))) == 25
        going.clear()
        assert [digest(minibatch) for minibatch in second.drive(windowed)] == expected
        assert waiting == [True]
        # The end of this one does end its own.
        ended.append(third)
        going.clear()
        with pytest.raises(CancelledError):
            list(third.drive(windowed))
        assert [digest(minibatch) for minibatch in RunContext(memories=first.memories).drive(windowed)] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_may_leave_the_epoch_of_its_parent_and_begin_another(path: Path) -> None:
    windowed = read_ahead(fetched(path, sampled()))
    running = RunContext().drive(windowed)
    next(running)

    def leave() -> None:
        running.close()
        assert len(list(RunContext().drive(windowed))) == 25

    child = multiprocessing.get_context("fork").Process(target=leave)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(list(running)) == 24


class CountedGraph(gf.FusedCSCSamplingGraph):
    """Records how many mini-batches were sampled together."""

    counts: list[int]

    def sample(self, seeds: Any, request: Any, draws: Any) -> Any:
        self.counts.append(len(seeds))
        return super().sample(seeds, request, draws)


def counted() -> CountedGraph:
    counted = CountedGraph(**graph().fields())
    vars(counted)["counts"] = []
    return counted


def sampler(graph: gf.SamplingGraph, source: Any = None) -> gf.Datapipe:
    items = gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=8, shuffle=True)
    return (items if source is None else source(items)).sample_neighbor(graph, fanouts=[2, 2])


def test_windows_grow_as_far_as_there_is_memory_for_samples() -> None:
    graph = counted()
    pipe = sampler(graph)
    largest = max(count_bytes(minibatch.sampled_subgraphs) for minibatch in pipe)
    for window_bytes, most in ((0, 1), (16 * largest, 8), (float("inf"), 10)):
        graph.counts.clear()
        assert digests(together(pipe, window_bytes)) == digests(pipe)
        assert graph.counts[0] == 1
        assert max(graph.counts) <= most
    assert max(graph.counts) == 10


def test_seeds_that_are_not_there_are_an_error_in_the_place_of_their_mini_batch() -> None:
    def spoil(batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch if batch.key.index != index else gf.MiniBatch(seeds=torch.tensor([NODES]))

    for index, num_threads in product((0, 1, 7), (0, 2)):
        pipe = sampler(counted(), lambda items: items.transform(spoil))
        running = RunContext().drive(together(pipe, num_threads=num_threads))
        assert len([next(running) for _ in range(index)]) == index
        with pytest.raises(ValueError, match="seeds"):
            next(running)


class Waiting(gf.FusedCSCSamplingGraph):
    """Samples nothing, and waits for an event in a thread of the window."""

    started: threading.Event
    going: threading.Event
    alone: list[Any]

    def sample(self, seeds: Any, request: Any, draws: Any) -> Any:
        self.started.set()
        self.going.wait(60)
        return [None for _ in seeds]

    def sample_hops(self, *given: Any, **options: Any) -> Any:
        self.alone.append(given)


def test_a_loop_that_is_left_samples_no_more() -> None:
    waiting = Waiting(**graph().fields())
    vars(waiting).update(started=threading.Event(), going=threading.Event(), alone=[])
    run = RunContext()
    reader = threading.Thread(target=list, args=(run.drive(together(sampler(waiting), num_threads=1)),))
    reader.start()
    assert waiting.started.wait(60)
    run.cancel()
    waiting.going.set()
    reader.join(30)
    assert not reader.is_alive()
    assert waiting.alone == []


@pytest.mark.slow
@pytest.mark.usefixtures("warm_programs")
@pytest.mark.parametrize(
    "left", [1, pytest.param(3, marks=pytest.mark.thorough), pytest.param(9, marks=pytest.mark.thorough)]
)
def test_a_program_may_end_while_rows_are_read(path: Path, left: int) -> None:
    ended = run_body(f"""
        from pathlib import Path
        from tests.unit.loader.test_in_windows import fetched, sampled
        read = gf.DiskBasedFeature._read_spans
        def read_late(*arguments):
            time.sleep(0.1)
            return read(*arguments)
        gf.DiskBasedFeature._read_spans = read_late
        running = iter(gf.DataLoader(fetched(Path({str(path)!r}), sampled()), num_workers=2, window=4))
        for _ in range({left}):
            next(running)
    """)
    assert (ended.returncode, ended.stderr) == (0, "")
