"""The measurements for a GPU, run on an emulated one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from graphfeed.ops import kernels
from tests.gpu import speed
from tests.gpu.speed import STEPS, Sizes, count_events
from tests.loader.late_streams import running
from tests.ops.emulated_cuda import Cuda, device_of


@pytest.fixture
def there(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Return the device while it runs, for little work."""
    monkeypatch.setattr(speed, "SIZES", Sizes(300, 6, 8, 20, 1, 3, 3, (1 << 12, 1 << 14), 50))
    with running(cuda):
        yield torch.device(device_of(cuda))


def test_mini_batches_are_the_same_wherever_graph_and_features_lie(there: torch.device, tmp_path: Path) -> None:
    told: dict[bool, list[list[int]]] = {True: [], False: []}
    for name in STEPS.keys() - {"tables"}:
        torch.manual_seed(0)
        found = dict(STEPS[name](there, tmp_path / "trace.json"))
        assert ("over the bus" in found["rows"]) == ("pinned" in name)
        sizes = [re.search(r"(\d+) (edges|bytes) each", found[part]) for part in ("mini-batches", "rows")]
        told["typed" in name].append([int(size[1]) for size in sizes if size])
    for sizes_of_each, count in zip(told.values(), (2, 3), strict=True):
        assert sizes_of_each == [sizes_of_each[0]] * count
        edges, read = sizes_of_each[0]
        assert edges >= 20  # one for each seed
        assert read >= 20 * 8 * 4


def test_pinned_tables_are_read_in_both_orders(there: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    gather: Any = kernels("rows.gather", torch.empty(0, device=there))
    monkeypatch.setattr(gather, "SORTED_BYTES", gather.SORTED_BYTES)
    with patch.object(torch, "sort", side_effect=torch.sort) as sort:
        found = dict(STEPS["tables"](there, Path()))
    assert list(found) == ["rows of 3.8147e-06 GiB", "rows of 1.52588e-05 GiB"]
    assert all(re.fullmatch(r".+ GB/s in the order of the ids, .+ GB/s sorted", said) for said in found.values())
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
    assert dict(count_events(events, 2)) == {
        "kernels": "1.0 each mini-batch, and 1.0 copies",
        "copies to the GPU": "2048 bytes each mini-batch",
        "waits": "1.0 each mini-batch, of 20 us",
        "gaps": "0.5 each mini-batch of more than 10 us; idle for 17% of the time",
        "copy_rows": "40.0 us each mini-batch",
        "count_neighbors": "7.5 us each mini-batch",
    }
    assert "has no work" in dict(count_events(events[-2:], 2))["trace"]
