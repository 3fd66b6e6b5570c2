"""Launches of a mini-batch that are recorded once, and repeated for others with as many seeds."""

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import max_uva_threads, set_max_uva_threads
from graphfeed.ops.memory import pinned
from graphfeed.ops.sampling.hops.gpu_hops import read_later
from graphfeed.storage import SamplingRequest, TemporalQuery
from graphfeed.storage.graph.sampling.prepared import PREPARED
from graphfeed.storage.graph.sampling_request import Seeds, draws_of
from tests.kinds.digests import digest
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, device_of, import_launch
from tests.stand_ins.strict_cupy import DRIVER, FAILED, LAUNCH_ADDRESS

NODES, USERS = 120, 90
FANOUTS = [torch.tensor([fanout]) for fanout in (2, 6, 9)]
EDGE_TYPES = {
    f"user:{name}:{end}": 2 * name + number for name in range(2) for number, end in enumerate(("user", "item"))
}
REQUESTS = {
    "uniform": SamplingRequest(FANOUTS),
    "with replacement": SamplingRequest(FANOUTS, replace=True),
    "weights": SamplingRequest(FANOUTS, probs_name="weight"),
    "many picks of a column": SamplingRequest([torch.tensor([3]), torch.tensor([50])]),
    "LABOR": SamplingRequest(FANOUTS, strategy="labor"),
}


def graph(dtype: torch.dtype = torch.int64, *, typed: bool = False) -> gf.FusedCSCSamplingGraph:
    """Return a graph of many edges, with weights; or one of users and items with four edge types."""
    made = torch.Generator().manual_seed(1)
    destinations = torch.randint(0, NODES, (NODES * 30,), generator=made).sort().values
    indptr = torch.searchsorted(destinations, torch.arange(NODES + 1)).to(dtype)
    sources = torch.randint(0, USERS if typed else NODES, destinations.shape, generator=made).to(dtype)
    weights = {"weight": torch.rand(len(sources), generator=made)}
    weights["time"] = torch.randint(0, 100, destinations.shape, generator=made)
    if not typed:
        return gf.fused_csc_sampling_graph(indptr, sources, edge_attributes=weights)
    types = 2 * torch.randint(0, 2, destinations.shape, generator=made) + (destinations >= USERS)
    types = ((destinations * 4 + types).sort().values % 4).to(torch.uint8)
    offsets, numbers = torch.tensor([0, USERS, NODES], dtype=dtype), {"user": 0, "item": 1}
    return gf.fused_csc_sampling_graph(indptr, sources, offsets, types, numbers, EDGE_TYPES, edge_attributes=weights)


def seeds_of(number: int, dtype: torch.dtype, *, typed: bool) -> Any:
    """Return the seeds of a mini-batch; three numbers of seeds take turns, two of which are equal."""
    order = torch.randperm(NODES - USERS, generator=torch.Generator().manual_seed(number)).to(dtype)
    return {"user": order[: 7 + number % 2], "item": order[10:20]} if typed else order[: 20 + number % 2]


def sample(
    there: gf.FusedCSCSamplingGraph, request: SamplingRequest, number: int, put: Any = None, share: float = 0.0
) -> list[str]:
    """Return the bits of all hops of a mini-batch."""
    given = seeds_of(number, there.indices.dtype, typed=there.node_type_to_id is not None)
    if put is not None:
        given = {name: put(part) for name, part in given.items()} if isinstance(given, dict) else put(given)
    keys: list[Any] = [97 * number + hop for hop in range(len(request.fanouts))]
    keys = [(key, ~key & (1 << 64) - 1) for key in keys] if request.strategy == "labor" else keys
    return [digest(hop.to("cpu")) for hop in there.sample_hops(given, request, keys, seed2_contribution=share)]


def recorded(there: gf.FusedCSCSamplingGraph) -> list[Any]:
    """Return what is recorded of the mini-batches of a graph."""
    return [own for prepared in PREPARED[there][1].values() for own in prepared.launches.values()]


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "four types"])
@pytest.mark.parametrize("name", REQUESTS)
def test_repeated_launches_give_the_bits_of_the_cpu(cuda: Cuda, name: str, typed: bool) -> None:
    for dtype, order in zip((torch.int64, torch.int32, torch.int64), cuda.each_order(), strict=False):
        here, request = graph(dtype, typed=typed), REQUESTS[name]
        expected = [sample(here, request, number) for number in range(8)]
        with order, cuda.running():
            there = here.to(device_of(cuda))
            assert [sample(there, request, number, cuda.put) for number in range(8)] == expected
            assert [hasattr(own, "repeat") for own in recorded(there)] == [True] * 2


def test_thresholds_of_labor_are_replaced_in_the_same_launches(cuda: Cuda) -> None:
    here, request = graph(), REQUESTS["LABOR"]
    expected = [sample(here, request, 2 * number, share=number / 20) for number in range(20)]
    assert expected[9] != sample(here, request, 18)
    with cuda.running():
        there = here.to(device_of(cuda))
        assert [sample(there, request, 2 * number, cuda.put, number / 20) for number in range(20)] == expected
        assert [hasattr(own, "repeat") for own in recorded(there)] == [True]


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "four types"])
@pytest.mark.parametrize("name", REQUESTS)
def test_repeated_launches_read_a_pinned_graph(cuda: Cuda, name: str, typed: bool) -> None:
    here, request = graph(typed=typed), REQUESTS[name]
    expected = [sample(here, request, number) for number in range(8)]
    with cuda.running():
        there = graph(typed=typed)
        there.pin_memory_()
        assert [sample(there, request, number, cuda.put) for number in range(8)] == expected
        assert [hasattr(own, "repeat") for own in recorded(there)] == [True] * 2
        EmulatedCuda.launches.clear()
        before = max_uva_threads()
        set_max_uva_threads(256)
        try:
            assert [sample(there, request, number, cuda.put) for number in range(8)] == expected
        finally:
            set_max_uva_threads(before)
        reads = {"copy_rows", "count_plain_neighbors", "fill_plain_neighbors", "count_neighbors", "fill_neighbors"}
        assert all(threads <= 256 for own, threads in EmulatedCuda.launches if own in reads)


def test_a_pinned_graph_stays_locked_while_launches_are_repeated(emulated: EmulatedCuda) -> None:
    held, tables = list[bool](), import_launch("launch_table")
    start = tables.start_all

    def noted(*given: Any) -> None:
        held.append(pinned.LOCKED.lock.locked())
        start(*given)

    with emulated.running():
        for where in (graph().pin_memory_, lambda: graph().to(device_of(emulated))):
            there = where()
            with patch.object(tables, "start_all", noted):
                for number in range(0, 6, 2):
                    sample(there, REQUESTS["uniform"], number, emulated.put)
    assert held == [True, False]
    assert not pinned.LOCKED.lock.locked()


IN_TIME = {
    "of the seeds": SamplingRequest(FANOUTS, temporal=TemporalQuery(edge_timestamp_attr_name="time")),
    "of edges": SamplingRequest(
        FANOUTS, temporal=TemporalQuery(edge_timestamp_attr_name="time", hop_time="edge", inclusive=True)
    ),
    "latest": SamplingRequest(
        FANOUTS, strategy="latest", temporal=TemporalQuery(edge_timestamp_attr_name="time", hop_time="edge")
    ),
    "weights": SamplingRequest(FANOUTS, probs_name="weight", temporal=TemporalQuery(edge_timestamp_attr_name="time")),
    "a window": SamplingRequest(FANOUTS, temporal=TemporalQuery(None, "time", pre_time_window=40)),
}


@pytest.mark.parametrize("pins", [False, True], ids=["on the device", "pinned"])
@pytest.mark.parametrize("name", IN_TIME)
def test_repeated_launches_sample_in_time(cuda: Cuda, name: str, pins: bool) -> None:
    here, request = graph(), IN_TIME[name]

    def sample_at(there: gf.FusedCSCSamplingGraph, number: int, put: Any) -> list[str]:
        seeds = seeds_of(number, torch.int64, typed=False)
        given = Seeds(put(seeds), put(seeds * 3 % 70 + 20 + number))
        return [digest(hop.to("cpu")) for hop in there.sample_hops(given, request, [number, number + 1, number + 2])]

    expected = [sample_at(here, number, torch.Tensor.clone) for number in range(8)]
    with cuda.running():
        there = graph()
        there = there.pin_memory_() if pins else there.to(device_of(cuda))
        assert [sample_at(there, number, cuda.put) for number in range(8)] == expected
        assert [hasattr(own, "repeat") for own in recorded(there)] == [True] * 2


@pytest.fixture
def emulated(cuda: Cuda) -> EmulatedCuda:
    """Return the stand-in; its launches are watched."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device doesn't tell what was started")
    return cuda


def test_repeated_launches_touch_only_memory_that_they_were_given(emulated: EmulatedCuda) -> None:
    here = graph(typed=True)
    with patch.object(EmulatedCuda, "watched", True), emulated.running():
        there = here.to(device_of(emulated))
        for number in range(0, 8, 2):
            assert sample(there, REQUESTS["uniform"], number, emulated.put) == sample(here, REQUESTS["uniform"], number)


def test_threads_repeat_the_same_launches_on_their_own_streams(cuda: Cuda) -> None:
    here, found = graph(), dict[int, list[str]]()
    expected = {number: sample(here, REQUESTS["weights"], number) for number in range(12)}
    with cuda.running():
        there = here.to(device_of(cuda))

        def work(numbers: Sequence[int]) -> None:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                for number in numbers:
                    found[number] = sample(there, REQUESTS["weights"], number, cuda.put)

        threads = [threading.Thread(target=work, args=(range(first, 12, 2),)) for first in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == expected


def test_a_reader_that_another_thread_takes_first_is_made_anew(cuda: Cuda) -> None:
    class Taken(list[Any]):
        """Readers of which there was one until it was asked for."""

        def __bool__(self) -> bool:
            return True

    with cuda.running():
        assert read_later(cuda.put(torch.arange(3)), Taken(), torch.cuda.current_stream())() == [0, 1, 2]


def test_a_change_of_one_result_of_repeated_launches_is_none_of_others_for_autograd(cuda: Cuda) -> None:
    with cuda.running():
        there = graph().to(device_of(cuda))
        for number in range(0, 6, 2):
            seeds = cuda.put(seeds_of(number, torch.int64, typed=False))
            hop = there.sample_hops(seeds, REQUESTS["uniform"], [1, 2, 3])[0]
        rows, csc = hop.original_row_node_ids, hop.sampled_csc
        assert isinstance(rows, torch.Tensor)
        assert isinstance(csc, gf.CSCFormatBase)
        before = rows._version
        csc.indices.add_(0)
        assert rows._version == before


def test_results_of_repeated_launches_outlive_their_graph_and_later_minibatches(cuda: Cuda) -> None:
    here, request, kept = graph(), REQUESTS["uniform"], dict[int, Any]()
    expected = {number: sample(here, request, number) for number in range(12)}
    with cuda.running():
        there = here.to(device_of(cuda))
        streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
        for number in range(12):
            torch.cuda.set_device(0)
            with torch.cuda.stream(streams[number // 2 % 2]):
                seeds = cuda.put(seeds_of(number, torch.int64, typed=False))
                kept[number] = there.sample_hops(seeds, request, [97 * number + hop for hop in range(3)])
        del there, seeds
        gc.collect()
        assert {number: [digest(hop.to("cpu")) for hop in hops] for number, hops in kept.items()} == expected


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "four types"])
def test_numbers_on_the_device_outlive_launches_that_read_them(emulated: EmulatedCuda, typed: bool) -> None:
    here, request = graph(typed=typed), REQUESTS["uniform"]
    if typed:
        request = SamplingRequest([torch.tensor([2, 3, 1, 2])] * 3)
    draws = draws_of(request, [97 * 6 + hop for hop in range(3)])
    with emulated.running():
        there = here.to(device_of(emulated))
        for number in range(0, 6, 2):
            sample(there, request, number, emulated.put)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            seeds = seeds_of(6, torch.int64, typed=typed)
            given = {name: emulated.put(part) for name, part in seeds.items()} if typed else emulated.put(seeds)
            finish = there.start(Seeds.of(given), request, draws)
            for prepared in PREPARED[there][1].values():
                prepared.launches.clear()
            import_launch().constants_on.cache_clear()
            gc.collect()
            found = [digest(hop.to("cpu")) for hop in finish()]
    assert found == sample(here, request, 6)


def test_a_graph_that_has_changed_is_sampled_by_launches_of_its_own(cuda: Cuda) -> None:
    here, request = graph(), REQUESTS["weights"]
    with cuda.running():
        there = here.to(device_of(cuda))
        for number in range(0, 6, 2):
            sample(there, request, number, cuda.put)
        weights = torch.rand(here.indices.numel(), generator=torch.Generator().manual_seed(2))
        here.edge_attributes, there.edge_attributes = {"weight": weights}, {"weight": cuda.put(weights)}
        for number in range(0, 6, 2):
            assert sample(there, request, number, cuda.put) == sample(here, request, number)


def test_seeds_in_the_memory_of_the_graph_are_replaced(cuda: Cuda) -> None:
    def sample_all(own: gf.FusedCSCSamplingGraph, put: Any) -> list[list[str]]:
        # The first two begin where an array of the graph does.
        seeds = [own.indices[:20]] * 2 + [put(torch.arange(first, first + 20)) for first in (40, 50, 60)]
        found = [own.sample_hops(each, REQUESTS["uniform"], [1, 2, 3]) for each in seeds]
        return [[digest(hop.to("cpu")) for hop in hops] for hops in found]

    expected = sample_all(graph(), torch.Tensor.clone)
    with cuda.running():
        assert sample_all(graph().to(device_of(cuda)), cuda.put) == expected


def test_a_key_of_0_is_replaced_when_launches_are_repeated(cuda: Cuda) -> None:
    here, seeds, request = graph(), torch.arange(20), SamplingRequest([torch.tensor([2])])
    with cuda.running():
        there = here.to(device_of(cuda))
        for key in (3, 0, (1 << 64) - 1, 0, 7):
            found = [digest(hop.to("cpu")) for hop in there.sample_hops(cuda.put(seeds), request, [key])]
            assert found == [digest(hop) for hop in here.sample_hops(seeds, request, [key])]


def test_a_seed_out_of_range_is_named_where_launches_are_repeated(cuda: Cuda) -> None:
    with cuda.running():
        there = graph().to(device_of(cuda))
        for number in range(0, 6, 2):
            sample(there, REQUESTS["uniform"], number, cuda.put)
        wrong = cuda.put(torch.arange(19, -1, -1) * 7)
        with pytest.raises(ValueError, match=r"seeds must be in 0 \.\. 119, but holds 133"):
            there.sample_hops(wrong, REQUESTS["uniform"], [1, 2, 3])


def test_a_launch_that_fails_leaves_nothing_behind(emulated: EmulatedCuda) -> None:
    here = graph()
    with emulated.running():
        there = here.to(device_of(emulated))
        for number in range(0, 6, 2):
            sample(there, REQUESTS["uniform"], number, emulated.put)
        with failing_launch(5) as launched:
            with pytest.raises(RuntimeError, match=r"CUDA could not launch a kernel: error \(719\)"):
                sample(there, REQUESTS["uniform"], 6, emulated.put)
            assert len(launched) == 5
            assert sample(there, REQUESTS["uniform"], 8, emulated.put) == sample(here, REQUESTS["uniform"], 8)


@contextmanager
def failing_launch(number: int) -> Iterator[list[int]]:
    """Make the n-th launch fail with a status; yield the addresses of kernels that are launched."""
    launch, own, launched = import_launch(), DRIVER.cuLaunchKernel, list[int]()

    def start(function: int, *given: Any) -> int:
        launched.append(function)
        return FAILED if len(launched) == number else int(own(function, *given))

    with patch.object(DRIVER, "cuLaunchKernel", start), patch.object(DRIVER, "cuGetErrorName", lambda *_: None):
        assert launch.launch_address() == LAUNCH_ADDRESS
        yield launched


def test_pages_that_are_released_while_a_launch_fails_are_unlocked(emulated: EmulatedCuda) -> None:
    def release(*_: Any) -> None:
        others.clear()
        gc.collect()

    with emulated.running():
        there, others = graph().pin_memory_(), [graph().pin_memory_()]
        # The second launch is the first one that reads pinned memory.
        with (
            failing_launch(2),
            patch.object(DRIVER, "cuGetErrorName", release),
            pytest.raises(RuntimeError, match="719"),
        ):
            sample(there, REQUESTS["uniform"], 0, emulated.put)
        assert others == []
        assert not pinned.LOCKED.released


def test_launches_are_kept_for_few_kinds_of_minibatches(cuda: Cuda) -> None:
    with cuda.running():
        there = graph().to(device_of(cuda))
        for number in range(1, 20):
            for _ in range(2):
                there.sample_hops(cuda.put(torch.arange(number)), SamplingRequest([torch.tensor([1])]), [number])
        assert len(recorded(there)) <= 16


def test_running_sums_of_several_chunks_are_those_of_all_values(cuda: Cuda) -> None:
    values = torch.randint(-5, 1 << 40, (7000,), generator=torch.Generator().manual_seed(1))
    with cuda.running():
        recorder = import_launch("launch_table").LaunchRecorder()
        with recorder.recording():
            found = import_launch("structure.running_sum").add_up(cuda.put(values))
        assert len(recorder.launches) == 2
        assert found.tolist() == values.cumsum(0).tolist()
