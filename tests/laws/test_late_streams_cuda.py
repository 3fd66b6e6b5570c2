"""Streams: incorrect synchronization gives wrong values on the emulated GPU, and correct code does not."""

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.storage import GPUFeatureCache, SamplingRequest
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.graph_kinds import CASES, plain, sample
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, device_of
from tests.stand_ins.late_streams import OTHER_VALUE, late_streams
from tests.stand_ins.stream_order import ORDER

ROWS = torch.arange(40).reshape(20, 2)
IDS = torch.tensor([3, 19, 0, 3])
SPOILED = torch.full((4, 2), OTHER_VALUE)


@pytest.fixture
def there(cuda: Cuda) -> Iterator[EmulatedCuda]:
    """Return the emulated GPU while it runs; fail at the end if its clocks have recorded a fault."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device has no faults to show on demand")
    with cuda.running():
        yield cuda


def forget_faults() -> None:
    assert ORDER.faults
    ORDER.faults.clear()


def side() -> Any:
    """Make a stream current."""
    return torch.cuda.stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


def wait(stream: Any) -> None:
    torch.cuda.current_stream().wait_stream(stream)


def test_what_a_kernel_makes_and_a_stream_copies_is_there_for_who_waits(there: EmulatedCuda) -> None:
    reads: list[Callable[..., Any]] = [torch.clone, lambda rows: ops.gather_rows(rows, torch.arange(4).to("meta"))]
    for read, waits in product(reads, (False, True)):
        rows, ids = there.put(ROWS), there.put(IDS)
        torch.cuda.synchronize()
        with side():
            stream = torch.cuda.current_stream()
            found = ops.gather_rows(rows, ids)
        if waits:
            wait(stream)
        assert torch.equal(read(found).cpu(), ROWS[IDS]) == waits
        if not waits:
            forget_faults()
        copied = ops.gather_rows(there.put(ROWS), there.put(IDS)).to("cpu", non_blocking=True)
        if waits:
            torch.cuda.synchronize()
        assert torch.equal(copied, ROWS[IDS]) == waits
        pinned_rows = there.pin(ROWS)
        found = ops.gather_rows(pinned_rows, there.put(IDS))
        if waits:
            torch.cuda.current_stream().synchronize()
        pinned_rows.zero_()
        assert torch.equal(found.cpu(), ROWS[IDS] * waits), "a kernel reads memory as it is when the kernel runs"
        torch.cuda.synchronize()


def test_numbers_are_passed_as_they_are_when_a_kernel_starts(there: EmulatedCuda) -> None:
    rows, number = there.put(ROWS), torch.tensor(7)
    found = rows + number
    number.zero_()
    table = torch.tensor([5, 6])
    copied = table.to("meta", non_blocking=True)
    table.zero_()
    assert torch.equal(found.cpu(), ROWS + 7)
    assert copied.tolist() == [5, 6]


def test_freed_memory_is_handed_out_while_another_stream_reads_it(there: EmulatedCuda) -> None:
    for ordered in ("by nothing", "by the allocator", "by a stream", "by the program"):
        read_freed(there, ordered)


def read_freed(there: EmulatedCuda, ordered: str) -> None:
    with side():
        made_on = torch.cuda.current_stream()
        rows = ops.gather_rows(there.put(ROWS), there.put(IDS))
    wait(made_on)
    found = ops.gather_rows(rows, there.put(torch.arange(4)))
    if ordered == "by the allocator":
        rows.record_stream(torch.cuda.current_stream())
    elif ordered == "by a stream":
        made_on.wait_stream(torch.cuda.current_stream())
    elif ordered == "by the program":
        torch.cuda.current_stream().synchronize()
    del rows
    assert torch.equal(found.cpu(), SPOILED if ordered == "by nothing" else ROWS[IDS])
    if ordered == "by nothing":
        forget_faults()


def test_a_stream_s_own_memory_is_handed_out_after_its_work_and_not_while_a_view_is_left(there: EmulatedCuda) -> None:
    rows = ops.gather_rows(there.put(ROWS), there.put(IDS))
    memory, found = rows.held, ops.gather_rows(rows, there.put(torch.arange(4)))  # type: ignore[attr-defined]
    del rows
    assert torch.equal(found.cpu(), ROWS[IDS])
    torch.cuda.synchronize()
    assert torch.equal(memory, SPOILED)
    for used in (False, True):
        rows = there.put(ROWS)
        part, memory, caller = rows[2:], rows.held, torch.cuda.current_stream()  # type: ignore[attr-defined]
        if used:
            with side():
                part.record_stream(torch.cuda.current_stream())
                wait(caller)
                ops.gather_rows(part, there.put(IDS % 10))
        del rows
        torch.cuda.synchronize()
        assert torch.equal(memory, ROWS)
        del part
        for _ in range(2):  # The caller's stream can use it again when the other one has passed.
            torch.cuda.synchronize()
        assert (memory == OTHER_VALUE).all()


FAR = torch.arange(60.0).reshape(20, 3)


def apart(*steps: Callable[[], Any]) -> list[Any]:
    """Run each step in a separate thread and stream; only calls in the steps wait."""
    found = []

    def run(step: Callable[[], Any]) -> None:
        torch.cuda.set_device(0)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            found.append(step())

    for step in steps:
        thread = threading.Thread(target=run, args=(step,))
        thread.start()
        thread.join()
    assert len(found) == len(steps)
    return found


def test_a_cache_is_filled_before_another_stream_looks_into_it(cuda: Cuda) -> None:
    with cuda.running():
        (cache,) = apart(lambda: GPUFeatureCache((8, 3), torch.float32, device_of(cuda)))
        keys = torch.tensor([3, 1, 3])
        rows = apart(*[lambda: cache.query_and_replace(keys, lambda missing: FAR[missing.cpu()]).cpu()] * 2)
        assert all(torch.equal(found, FAR[keys]) for found in rows)
        apart(cache.clear)


@pytest.mark.parametrize(
    ("query", "weights"),
    [(gf.TemporalQuery("born", "time", 30, "edge"), "w"), (gf.TemporalQuery(None, "time", None, "edge"), None)],
)
def test_arrays_that_a_graph_makes_are_there_before_another_stream_reads_them(
    cuda: Cuda, query: gf.TemporalQuery, weights: str | None
) -> None:
    fanouts = [torch.tensor([fanout]) for fanout in (2, 3, -1)]
    asked = SamplingRequest(fanouts, probs_name=weights, temporal=query)
    expected = sample(plain(), CASES["plain"], asked)
    with cuda.running():
        own = plain().to(device_of(cuda))

        def sample_there() -> Any:
            return [layer.to("cpu") for layer in sample(own, CASES["plain"], asked, cuda.put)]

        for found in apart(sample_there, sample_there):
            assert_same(found, expected)


@pytest.mark.parametrize("leave_after", [1, 2])
def test_what_is_freed_after_a_loop_was_left_is_not_in_use(there: EmulatedCuda, leave_after: int) -> None:
    with late_streams():
        pipe = pipelines.moved(pipelines.sampler_of(pipelines.homogeneous()), "meta")
        with gf.DataLoader(pipe, seed=3, overlap_graph_fetch=True) as loader:
            minibatches = iter(loader)
            for _ in range(leave_after):
                next(minibatches)
            minibatches.close()  # type: ignore[attr-defined]
        del pipe, loader, minibatches
