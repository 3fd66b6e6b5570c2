"""How many threads a kernel is started with, and what it is given: the one place where nothing else checks."""

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from graphfeed.ops.memory import pinned
from tests.ops.emulated_cuda import DEVICE, Cuda, EmulatedCuda, import_launch
from tests.ops.strict_cupy import OWN


@pytest.fixture
def there(cuda: Cuda) -> Iterator[EmulatedCuda]:
    """Return the stand-in while it runs."""
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device doesn't tell what was started")
    with cuda.running():
        yield cuda
        OWN.given.clear()


@pytest.fixture
def launch(there: EmulatedCuda) -> ModuleType:
    """Return the launching module."""
    return import_launch()


@pytest.mark.parametrize(("size", "threads"), [(0, []), (1, [256]), (256, [256]), (257, [512]), (5000, [1024])])
def test_all_items_get_threads_in_whole_blocks(
    there: EmulatedCuda, launch: ModuleType, size: int, threads: list[int]
) -> None:
    rows, before = there.put(torch.arange(size)), there.put(torch.full((size,), -1))
    with patch.object(launch, "MAX_BLOCKS", 4):
        launch.launch("sums_before_columns", size, rows, 8, size, rows + 1, before)
    assert [count for _, count in there.launches] == threads
    assert before.tolist() == list(range(size))


@pytest.mark.parametrize(("limit", "threads"), [(1, 256), (255, 256), (511, 256), (512, 512), (10240, 2048)])
def test_a_kernel_that_reads_over_the_bus_has_at_least_one_block(
    there: EmulatedCuda, launch: ModuleType, limit: int, threads: int
) -> None:
    rows, before = there.put(torch.arange(2000)), there.put(torch.full((2000,), -1))
    with patch.object(pinned, "LIMIT", pinned.Limit(limit)):
        launch.launch("sums_before_columns", 2000, there.pin(torch.arange(2000)), 8, 2000, rows + 1, before)
    assert there.launches == [("sums_before_columns", threads)]
    assert before.tolist() == list(range(2000))


def test_an_empty_tensor_of_the_cpu_is_not_read_over_the_bus(there: EmulatedCuda, launch: ModuleType) -> None:
    rows, index, out = (there.put(torch.arange(2000)) for _ in range(3))
    with patch.object(pinned, "LIMIT", pinned.Limit(1)):
        none = torch.empty(0, dtype=torch.int64)
        launch.launch("copy_rows", 2000, rows, index, 8, 2000, None, 1, 8, 0, out, none)
    assert there.launches == [("copy_rows", 2048)]


def test_each_argument_takes_eight_bytes(there: EmulatedCuda, launch: ModuleType) -> None:
    given, locked = there.put(torch.arange(4)), there.pin(torch.arange(4))
    cases: list[tuple[Any, Any]] = [
        (given, np.uint64(given.data_ptr())),
        (given[1:], np.uint64(given.data_ptr() + 8)),
        (given[2:2], np.uint64(0)),
        (locked, np.uint64(locked.data_ptr())),
        (torch.empty(0), np.uint64(0)),  # which no page is locked for
        (None, np.int64(0)),
        (-7, np.int64(-7)),
        (True, np.int64(1)),
        (np.uint64(2**63), np.uint64(2**63)),
    ]
    for value, expected in cases:
        found = launch.as_argument(value)
        assert (type(found), int(found)) == (type(expected), int(expected))


def test_a_kernel_gets_no_values_with_gaps(there: EmulatedCuda, launch: ModuleType) -> None:
    for values in (there.put(torch.arange(8))[::2], there.pin(torch.arange(8))[::2]):
        with pytest.raises(AssertionError):
            launch.as_argument(values)


def test_a_kernel_is_not_started_on_memory_that_is_not_page_locked(there: EmulatedCuda, launch: ModuleType) -> None:
    with pytest.raises(
        ValueError, match=r"given 3 values in the CPU's memory that are not page-locked; page-lock them"
    ):
        launch.launch("number_sets", 3, 1, torch.arange(3), 3, there.put(torch.full((3,), -1)))
    assert there.launches == []


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x[x > 1],
        lambda x: x.__setitem__(x > 1, x[:2].clone()),
        lambda x: x.masked_select(x > 1),
        lambda x: torch.isin(x, x),
        lambda x: x.unique(),
        lambda x: x.unique_consecutive(),
        lambda x: x.nonzero(),
        lambda x: x.bincount(),
        lambda x: x.repeat_interleave(x),
        lambda x: x.equal(x),
        lambda x: x[0].item(),
        lambda x: int(x[0]),
        lambda x: bool(x[0] > 1),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
    ],
)
def test_the_stand_in_counts_what_a_device_is_waited_for(there: EmulatedCuda, waits: Any) -> None:
    values = there.put(torch.arange(4))
    waits(values)
    assert len(there.waits) == 1


def test_the_stand_in_counts_no_other_operations(there: EmulatedCuda) -> None:
    values = there.put(torch.arange(4))
    values[values > 1] = 7
    values[torch.ones_like(values)] = values.masked_fill(values > 1, 0).cumsum(0)
    values.index_select(0, values.clamp(max=3)).sort()
    values.repeat_interleave(torch.ones_like(values), output_size=4)
    torch.searchsorted(values, values)
    assert there.waits == []


def test_a_small_table_is_copied_without_waiting_and_may_change_then(there: EmulatedCuda, launch: ModuleType) -> None:
    table = torch.tensor([5, 6])
    copied = launch.upload(table, DEVICE)
    assert there.waits == []
    table.zero_()
    assert copied.tolist() == [5, 6]


def test_a_cupy_that_knows_no_protocol_takes_the_address_of_a_stream(launch: ModuleType) -> None:
    older = SimpleNamespace(cuda=SimpleNamespace(Stream=object(), ExternalStream=lambda *given: given))
    second = torch.device("meta", 1)
    torch.cuda.set_device(second)
    with torch.cuda.stream(torch.cuda.Stream(second)), patch.object(launch, "cupy", older):  # type: ignore[no-untyped-call]
        assert launch.stream_of(second) == (torch.cuda.current_stream(second).cuda_stream, 1)
