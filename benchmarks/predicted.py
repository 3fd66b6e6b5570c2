"""Predicted times of the cases on a GPU, from their bytes, counted without a GPU, and the speed of memory.

`tests/stand_ins/counted_cuda.py` counts the bytes: full sectors of 32 bytes, only once per block of threads, and the
tensors of torch's operations in between. Over the bus, sectors of a line of 128 bytes are one request. Nothing was
measured on a GPU. A kernel may be slower than memory,
and a cache may contain data that several blocks read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.scale import Scale
from benchmarks.table import Row, align, number, render
from benchmarks.timing import Case, in_turn
from graphfeed import ops
from graphfeed.ops.memory import empty_locked

FANOUTS = (15, 10, 5)
COUNTS = [torch.tensor([own]) for own in FANOUTS]
"""Fan-outs, starting with the hop of the seeds."""
LABOR = ops.Drawing("labor")
BATCH_SIZE, GATHERED_ROWS = 1024, 135_000
"""Sizes of the mini-batch whose bytes were counted."""
KERNEL_SECONDS, OPERATOR_SECONDS, WAIT_SECONDS = 3e-5, 6e-6, 2e-5
"""Overheads of a kernel, of an operation of torch, and of a wait of the CPU for a number.

On a core of a Xeon, with a CUDA that does nothing (`gpu_host_time.py`), `launch` took 27 us per kernel of a loader, and
an operation of torch 2 us. The share of the driver is assumed, 3 to 4 us, as is the wait. A loader repeats launches
that it has recorded: 28 of them took 15 us there.
"""
REQUESTS_A_SECOND = 768 / 1.3e-6
"""Over PCIe 4.0 and 5.0: with 10-bit tags, a device can have 768 requests in flight. Each takes some 1.3 us."""


@dataclass(frozen=True)
class Device:
    """Speeds of a GPU as published by its maker, in bytes per second."""

    name: str
    memory: float
    bus: float
    bus_name: str


DEVICES = (
    Device("A100", 2.039e12, 31.5e9, "PCIe 4.0"),
    Device("H100", 3.35e12, 63e9, "PCIe 5.0"),
)


@dataclass(frozen=True)
class Work:
    """Costs of one mini-batch of a case."""

    device_bytes: float
    bus_bytes: float
    bus_requests: float
    kernels: int
    operators: int
    waits: int

    def limit(self, device: Device) -> float:
        """Return the transfer time of the bytes, in memory and over the bus concurrently."""
        over_the_bus = max(self.bus_bytes / device.bus, self.bus_requests / REQUESTS_A_SECOND)
        return max(self.device_bytes / device.memory, over_the_bus)

    def predicted(self, device: Device, share: float = 1.0) -> float:
        """Return the expected time of a share of the mini-batch, in seconds."""
        calls = self.kernels * KERNEL_SECONDS + self.operators * OPERATOR_SECONDS + self.waits * WAIT_SECONDS
        return share * self.limit(device) + calls


WORK = {
    "rows on the device": Work(112_320_048, 0, 0, 1, 2, 1),
    "rows in pinned memory": Work(56_160_048, 56_117_824, 539_473, 1, 2, 1),
    "sampling, graph on the device": Work(186_928_856, 0, 0, 16, 8, 1),
    "sampling, graph in pinned memory": Work(178_755_928, 12_769_696, 344_975, 19, 8, 1),
    "LABOR from a 16th of the seeds, graph on the device": Work(82_170_968, 0, 0, 16, 8, 1),
}
"""On a graph of the shape of ogbn-products, with rows of 400 bytes and ids of 8: 289,977 edges, or 20,749 by LABOR."""


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in page-locked memory, as `pin_memory_()` of graphs and features creates it."""
    return empty_locked(tensor.shape, tensor.dtype).copy_(tensor)


def cases(arrays: dict[str, torch.Tensor], device: torch.device, scale: Scale) -> dict[str, Case]:
    """Return each case with its arrays: `indptr`, `indices` and `features`, on the CPU."""
    seeds = torch.randint(arrays["indptr"].numel() - 1, (scale.batch_size,)).to(device)
    rows = torch.randint(len(arrays["features"]), (scale.gathered_rows,)).to(device)
    few, keys = seeds[: -(-len(seeds) // 16)], [1, 2, 3]
    there = {name: part.to(device) for name, part in arrays.items()}
    pinned = {name: pin(part) for name, part in arrays.items()}

    def sample(held: dict[str, torch.Tensor], seeds: torch.Tensor, keys: Sequence[Any], drawing: ops.Drawing) -> Case:
        graph = ops.Graph.checked(held["indptr"], held["indices"])  # once for all mini-batches
        return lambda _: ops.sample_hops(graph, [seeds], COUNTS, keys, drawing)

    def gather(held: dict[str, torch.Tensor]) -> Case:
        return lambda _: ops.gather_rows(held["features"], rows)

    return {
        "rows on the device": gather(there),
        "rows in pinned memory": gather(pinned),
        "sampling, graph on the device": sample(there, seeds, keys, ops.Drawing()),
        "sampling, graph in pinned memory": sample(pinned, seeds, keys, ops.Drawing()),
        "LABOR from a 16th of the seeds, graph on the device": sample(there, few, [(key, key) for key in keys], LABOR),
    }


def share_of(case: str, scale: Scale) -> float:
    """Return the size of a run's mini-batch, relative to the counted one."""
    return scale.gathered_rows / GATHERED_ROWS if case.startswith("rows") else scale.batch_size / BATCH_SIZE


def expected() -> list[list[str]]:
    """Return for each case its name, its bytes, and for each device the transfer time and the expected time."""
    return [
        [
            case, f"{work.device_bytes / 1e6:.0f} MB", f"{work.bus_bytes / 1e6:.0f} MB", f"{work.bus_requests:,}",
            *(f"{1e3 * work.limit(own):.2f} / {1e3 * work.predicted(own):.2f} ms" for own in DEVICES),
        ]
        for case, work in WORK.items()
    ]  # fmt: skip


def prediction() -> str:
    """Return the expected times for each GPU model, without a GPU."""
    names = [f"{own.name}, {own.bus_name}" for own in DEVICES]
    heading = ["expected, no GPU was measured", "in its memory", "over the bus", "requests", *names]
    lines = align([heading, *expected()], left=range(len(heading)))
    return "\n".join([*lines, "the time that bytes and requests take / the time with calls and waits", ""])


def comparison(own_cases: dict[str, Case], name: str, scale: Scale, clock: Callable[[], float]) -> str:
    """Return a table of times measured on a GPU and their predictions, which exist for A100 and H100."""
    known = next((own for own in DEVICES if own.name in name), None)
    times = in_turn(own_cases, scale.repeats, clock)
    rows = []
    for case, own in times.items():
        expected = None if known is None else WORK[case].predicted(known, share_of(case, scale))
        told = "" if expected is None else f", expected {number(1e3 * expected)} ms"
        ratio = None if expected is None else own.median / expected
        rows.append(Row(case + told, "ms", own.times(1e3), ratio))
    title = "measured, with the ratio to what is expected of the device" if known else "measured; nothing is expected"
    return render(f"{title}: fan-outs {FANOUTS}, {scale.gathered_rows} rows", rows)
