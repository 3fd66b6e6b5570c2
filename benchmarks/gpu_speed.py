"""Cost of mini-batches on a GPU: `python -m benchmarks.gpu_speed STEP [FOLDER]` prints it and writes a trace there."""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch

import graphfeed as gf
from graphfeed.ops.arguments import mark_below
from graphfeed.storage.memory import available_memory, count_bytes, tensors_in
from graphfeed.testing import limits


class Sizes(NamedTuple):
    """Of what is measured: the shape of ogbn-products, with fewer edges."""

    num_nodes: int = 2_449_029
    mean_degree: int = 20
    num_features: int = 100
    batch_size: int = 1024
    warm_up: int = 10
    minibatches: int = 100
    traced: int = 10
    table_bytes: tuple[int, ...] = (1 << 30, 1 << 32, 1 << 34, 3 << 34)
    """Of pinned tables, as far as half of the memory that is free has room for them."""
    read_rows: int = 135_000


SIZES = Sizes()
FANOUTS, EDGE_TYPES = (5, 10, 15), 4
POWER = 0.6
"""A column has `u ** -POWER` edges, for a random u from 0 to 1, times what gives them their mean length."""
LONG_GAP = 10
"""Microseconds without work on a GPU that count as a gap."""
SHOWN = 8
"""The kernels that took longest, which are shown by themselves."""
WORK, CALLS = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
"""The names that torch's profiler has for what a GPU does, and for calls of CUDA."""


def sampled(graph_on: str, rows_on: str, device: torch.device, typed: bool, sizes: Sizes) -> gf.Datapipe:
    """Return a pipeline whose graph and features are on the GPU, pinned, or read by the CPU's threads.

    With types, edges also have weights.
    """
    nodes = sizes.num_nodes
    # Columns have lengths by a power law, with this mean; nodes with low ids are sources of more edges than others.
    degrees = (torch.rand(nodes) ** -POWER * sizes.mean_degree * (1 - POWER)).long().clamp_(1, nodes)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    sources = (torch.rand(int(indptr[-1])) ** 2 * nodes).long().clamp_(max=nodes - 1)
    graph: Any = gf.fused_csc_sampling_graph(indptr, sources, **(by_type(indptr, nodes) if typed else {}))
    rows: Any = gf.TorchBasedFeature(torch.rand(nodes, sizes.num_features))
    graph, rows = (
        whole.to(device) if where == "gpu" else whole.pin_memory_() if where == "pinned" else whole
        for whole, where in ((graph, graph_on), (rows, rows_on))
    )
    items: Any = gf.ItemSet(nodes, names="seeds")
    pipe: Any = gf.ItemSampler(gf.HeteroItemSet({"node": items}) if typed else items, sizes.batch_size, shuffle=True)
    fanouts = [[-(-fanout // EDGE_TYPES)] * EDGE_TYPES if typed else fanout for fanout in FANOUTS]
    wanted = {"graph": graph, "fanouts": fanouts, "prob_name": "weight" if typed else None}
    if graph_on == "cpu":
        pipe = pipe.sample_neighbor(**wanted).copy_to(device)
    else:
        pipe = pipe.copy_to(device).sample_neighbor(**wanted)
    store = gf.BasicFeatureStore({("node", "node" if typed else None, "feat"): rows})
    found: gf.Datapipe = pipe.fetch_feature(store, {"node": ["feat"]} if typed else ["feat"])
    return found


def by_type(indptr: torch.Tensor, nodes: int) -> dict[str, Any]:
    """Return the other arrays of a graph whose columns have edges of each type, with weights."""
    degrees = indptr.diff()
    places = torch.arange(int(indptr[-1])) - indptr[:-1].repeat_interleave(degrees)
    types = places * EDGE_TYPES // degrees.repeat_interleave(degrees)
    return {
        "node_type_offset": torch.tensor([0, nodes]),
        "type_per_edge": types.to(torch.uint8),
        "node_type_to_id": {"node": 0},
        "edge_type_to_id": {f"node:{number}:node": number for number in range(EDGE_TYPES)},
        "edge_attributes": {"weight": torch.rand(len(types))},
    }


def profile(
    graph_on: str, rows_on: str, device: torch.device, trace: Path, sizes: Sizes = SIZES, *, typed: bool = False
) -> Iterator[tuple[str, str]]:
    """Make mini-batches as fast as they come, without a model, and then some with torch's profiler."""
    count, activities = sizes.minibatches, torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    with gf.DataLoader(sampled(graph_on, rows_on, device, typed, sizes), seed=0) as loader:
        minibatches = chain.from_iterable(repeat(loader))
        measure(minibatches, sizes.warm_up)
        edges, read, seconds = measure(minibatches, count)
        with torch.profiler.profile(activities=activities) as profiled:
            measure(minibatches, sizes.traced)
        del minibatches
    profiled.export_chrome_trace(str(trace))
    yield "mini-batches", f"{1e3 * seconds / count:.3f} ms and {edges // count} edges each"
    yield "edges", f"{edges / seconds / 1e6:.1f} M/s"
    over = "over the bus" if rows_on == "pinned" else "of the GPU's memory"
    yield "rows", f"{read / seconds / 1e9:.2f} GB/s {over}, {read // count} bytes each mini-batch"
    yield from count_events(json.loads(trace.read_text("utf-8", "replace"))["traceEvents"], sizes.traced)


def measure(minibatches: Iterator[gf.MiniBatch], count: int) -> tuple[int, int, float]:
    """Take mini-batches; return how many edges and bytes of rows they had, and the seconds until the GPU was done."""
    torch.cuda.synchronize()
    edges, read, begin = 0, 0, time.perf_counter()
    for minibatch in islice(minibatches, count):
        edges += sum(ids.numel() for ids in tensors_in([hop.original_edge_ids for hop in minibatch.sampled_subgraphs]))
        read += count_bytes(minibatch.node_features)
    torch.cuda.synchronize()
    return edges, read, time.perf_counter() - begin


def count_events(events: Sequence[Mapping[str, Any]], count: int) -> Iterator[tuple[str, str]]:
    """Count in the trace of torch's profiler what a GPU did for some mini-batches; its times are microseconds."""
    work = sorted((own for own in events if own.get("cat") in WORK), key=lambda own: float(own["ts"]))
    if not work:
        yield "trace", "has no work of a GPU; the driver may let only administrators profile"
        return
    copied = sum(own.get("args", {}).get("bytes", 0) for own in work if "HtoD" in own["name"])
    waits = [own["dur"] for own in events if own.get("cat") in CALLS and "Synchronize" in own["name"]]
    took: Counter[str] = Counter()
    gaps, begin, end, launched = [], work[0]["ts"], work[0]["ts"], 0
    for own in work:
        gaps.append(max(own["ts"] - end, 0))
        end = max(end, own["ts"] + own["dur"])
        if own["cat"] == "kernel":
            launched += 1
            took[own["name"]] += own["dur"]
    long = sum(gap > LONG_GAP for gap in gaps)
    each, idle = "each mini-batch", sum(gaps) / max(end - begin, 1e-9)
    yield "kernels", f"{launched / count:.1f} {each}, and {(len(work) - launched) / count:.1f} copies"
    yield "copies to the GPU", f"{copied / count:.0f} bytes {each}"
    yield "waits", f"{len(waits) / count:.1f} {each}, of {sum(waits) / count:.0f} us"
    yield "gaps", f"{long / count:.1f} {each} of more than {LONG_GAP} us; idle for {idle:.0%} of the time"
    for name, microseconds in took.most_common(SHOWN):
        yield name, f"{microseconds / count:.1f} us {each}"


def read_tables(device: torch.device, _trace: Path, sizes: Sizes = SIZES) -> Iterator[tuple[str, str]]:
    """Read random rows of pinned tables in the order of the ids, and sorted: a GPU's TLB covers small tables only."""
    row_bytes, room = 4 * sizes.num_features, available_memory() // 2
    fitting = [size for size in sizes.table_bytes if size <= room]
    for size in fitting:
        # In the memory that features lie in: shared, and on huge pages where Linux gives them.
        table = gf.TorchBasedFeature(torch.zeros(size // row_bytes, sizes.num_features))
        table.pin_memory_()
        speeds = []
        for least in (size + 1, 0):
            ids = [torch.randint(size // row_bytes, (sizes.read_rows,)).to(device) for _ in range(sizes.warm_up)]
            for own in ids:
                mark_below(own, size // row_bytes)
            with limits(sorted_bytes=least):
                table.read(ids[0])
                torch.cuda.synchronize()
                begin = time.perf_counter()
                read = sum(table.read(own).nbytes for own in ids)
                torch.cuda.synchronize()
            speeds.append(f"{read / (time.perf_counter() - begin) / 1e9:.2f} GB/s")
        yield f"rows of {size / 2**30:g} GiB", f"{speeds[0]} in the order of the ids, {speeds[1]} sorted"


STEPS: dict[str, Callable[..., Iterator[tuple[str, str]]]] = {
    "gpu-gpu": partial(profile, "gpu", "gpu"),
    "pinned-pinned": partial(profile, "pinned", "pinned"),
    "cpu-pinned": partial(profile, "cpu", "pinned"),
    "typed-gpu-gpu": partial(profile, "gpu", "gpu", typed=True),
    "typed-pinned-pinned": partial(profile, "pinned", "pinned", typed=True),
    "tables": read_tables,
}
"""Where the graph and the features lie."""


def main(name: str, folder: str | None = None) -> None:
    """Run a step, and print what it finds as soon as it does."""
    with tempfile.TemporaryDirectory() as temporary:
        for subject, said in STEPS[name](torch.device("cuda", 0), Path(folder or temporary, f"{name}.json")):
            sys.stdout.write(f"{subject:<24} {said}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
