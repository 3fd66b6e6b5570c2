"""What is asked of a GPU, asked of what stands for one."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch

from graphfeed import gpu_steps
from graphfeed.cuda_report import Finding
from graphfeed.gpu_steps import STEPS, Sizes, count_events, main, read_freed
from graphfeed.ops import compare_kernels, kernels
from graphfeed.ops.calls import calls, make_inputs
from graphfeed.ops.memory import pinned
from tests.loader.late_streams import late_streams
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, device_of


@pytest.fixture
def there(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Return the device while it runs, for work that is small where it is a stand-in."""
    if isinstance(cuda, EmulatedCuda):
        for name, size in {"ROWS": 64, "SQUARE": 2, "PRODUCTS": 1}.items():
            monkeypatch.setattr(gpu_steps, name, size)
    monkeypatch.setattr(gpu_steps, "SIZES", Sizes(300, 6, 8, 20, 1, 3, (1 << 12, 1 << 14), 50))
    with cuda.running(), late_streams() if isinstance(cuda, EmulatedCuda) else nullcontext():
        yield torch.device(device_of(cuda))


FREED = [name for name in STEPS if name.startswith("freed memory")]


@pytest.mark.parametrize("name", FREED)
def test_what_is_freed_is_there_for_a_kernel_that_is_still_to_read_it(name: str, there: torch.device) -> None:
    (found,) = STEPS[name](there)
    assert found in [
        Finding("ok", "freed memory", "a kernel read the values, and was at work at their release"),
        Finding("change", "freed memory", "a kernel read the values, and was done at their release"),
    ]


def test_other_values_are_told(cuda: Cuda, there: torch.device) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device has no faults to show on demand")
    with patch.object(pinned, "is_locked_in_place", lambda tensor: True):  # so nothing is copied behind the kernel
        (found,) = read_freed(gpu_steps.free_temporary, there)
    assert found == Finding("failed", "freed memory", "a kernel read other values, and was at work at their release")


def test_mini_batches_are_the_same_wherever_graph_and_features_lie(there: torch.device) -> None:
    told: dict[bool, list[list[int]]] = {True: [], False: []}
    for name in STEPS:
        if name.startswith("profile"):
            torch.manual_seed(0)
            found = {finding.subject: finding.said for finding in STEPS[name](there)}
            assert ("over the bus" in found["rows"]) == ("pinned" in name)
            sizes = [re.search(r"(\d+) (edges|bytes) each", found[part]) for part in ("mini-batches", "rows")]
            told["types" in name].append([int(size[1]) for size in sizes if size])
    for sizes_of_each, count in zip(told.values(), (2, 3), strict=True):
        assert sizes_of_each == [sizes_of_each[0]] * count
        edges, read = sizes_of_each[0]
        assert edges >= 20  # one for each seed
        assert read >= 20 * 8 * 4


def test_pinned_tables_are_read_in_both_orders(there: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    gather: Any = kernels("rows.gather", torch.empty(0, device=there))
    monkeypatch.setattr(gather, "SORTED_BYTES", gather.SORTED_BYTES)
    with patch.object(torch, "sort", side_effect=torch.sort) as sort:
        found = list(STEPS["rows of pinned tables"](there))
    assert [finding.subject for finding in found] == ["rows of 3.8147e-06 GiB", "rows of 1.52588e-05 GiB"]
    assert all(re.fullmatch(r".+ GB/s in the order of the ids, .+ GB/s sorted", finding.said) for finding in found)
    assert sort.call_count == 2 * 2


def event(category: str, name: str, begin: float, took: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": took, "args": arguments}


def test_a_trace_is_counted() -> None:
    """Its form is that of PyTorch 2: times in microseconds, in no order, with events of other kinds."""
    events = [
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1000, 50, bytes=4096, stream=7),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1140, 10, bytes=8),
        event("kernel", "copy_rows", 1020, 80),  # on another stream, beside the copy
        event("kernel", "count_neighbors", 1105, 15),
        event("cuda_runtime", "cudaStreamSynchronize", 900, 30),
        event("cuda_driver", "cuLaunchKernel", 800, 5),
        event("cuda_runtime", "cudaEventSynchronize", 950, 10),
        event("cpu_op", "aten::Synchronize", 100, 900),
        {"ph": "M", "name": "process_name", "args": {}},
    ]
    assert [(subject, said) for _, subject, said in count_events(events, 2)] == [
        ("kernels", "1.0 each mini-batch, and 1.0 copies"),
        ("copies to the GPU", "2048 bytes each mini-batch"),
        ("waits", "1.0 each mini-batch, of 20 us"),
        ("gaps", "0.5 each mini-batch of more than 10 us; idle for 17% of the time"),
    ]
    (nothing,) = count_events(events[-2:], 2)
    assert nothing.status == "change"


def test_the_groups_of_kernels_are_all_of_them() -> None:
    inputs = make_inputs(12, 300)
    assert {name for group in gpu_steps.GROUPS.values() for name in group(inputs)} == calls(inputs).keys()


def test_the_kernels_of_a_group_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_steps, "NUM_NODES", 12)
    monkeypatch.setattr(gpu_steps, "HUB", 30)
    asked: list[str] = []

    def compare(name: str, *_: Any) -> compare_kernels.Comparison:
        asked.append(name)
        return compare_kernels.Comparison(name, name != "isin", "said")

    monkeypatch.setattr(compare_kernels, "compare", compare)
    found = list(STEPS["kernels: structure"](torch.device("cpu")))
    assert [finding.subject for finding in found] == asked
    assert [finding.subject for finding in found if finding.status == "failed"] == ["isin"]


def test_what_was_found_is_printed_before_what_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(device: torch.device) -> Iterator[Finding]:
        yield Finding("ok", "first", str(device))
        raise RuntimeError("no kernel image")

    monkeypatch.setitem(STEPS, "fails", fails)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main("fails") == 1
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {"status": "ok", "subject": "first", "said": "cuda:0"},
        {"status": "failed", "subject": "step", "said": "RuntimeError: no kernel image"},
    ]
    assert "Traceback" in printed.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is not missing")
def test_without_a_gpu_the_checks_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    main("checks")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "torch finds no CUDA device" in [finding["said"] for finding in found]
    assert [finding["subject"] for finding in found][-2:] == ["compiler", "locked memory"]
    assert found[-1]["status"] == "failed"
    main("kernels: rows")
    assert json.loads(capsys.readouterr().out)["status"] == "missing"
