"""What `graphfeed doctor --first-hour` asks a GPU: `python -m graphfeed.gpu_steps STEP` prints findings as JSON.

The three steps about freed memory were wrong once: torch's allocator hands pinned memory out again as soon as it is
freed, also while a kernel reads it.
"""

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from graphfeed import (
    BasicFeatureStore,
    DataLoader,
    Datapipe,
    HeteroItemSet,
    ItemSampler,
    ItemSet,
    MiniBatch,
    TorchBasedFeature,
    fused_csc_sampling_graph,
)
from graphfeed.cuda_report import HUB, NUM_NODES, Finding, check_compiler, check_memory, look_around
from graphfeed.ops import calls, gather_rows, kernels
from graphfeed.ops.arguments import trust
from graphfeed.ops.compare_kernels import compare_kernels
from graphfeed.ops.memory import empty_locked
from graphfeed.storage.memory import available_memory, count_bytes, tensors_in

ROWS, WIDTH = 1 << 18, 8
"""Of the pinned memory that is freed: 16 MiB of int64."""
SQUARE, PRODUCTS = 4096, 100
"""The matrices that are multiplied to keep a GPU at work for 100 ms and more, and how often."""
OTHER_VALUE = 1


class Sizes(NamedTuple):
    """Of what is profiled: the shape of ogbn-products, with fewer edges."""

    num_nodes: int = 2_449_029
    mean_degree: int = 20
    num_features: int = 100
    batch_size: int = 1024
    warm_up: int = 10
    minibatches: int = 100
    table_bytes: tuple[int, ...] = (1 << 30, 1 << 32, 1 << 34, 3 << 34)
    """Of pinned tables, as far as half of the memory that is free has room for them."""
    read_rows: int = 135_000


SIZES = Sizes()
FANOUTS, EDGE_TYPES = (5, 10, 15), 4
POWER = 0.6
"""A column has `u ** -POWER` edges, for a random u from 0 to 1, times what gives them their mean length."""
LONG_GAP = 10
"""Microseconds without work on a GPU that count as a gap."""
WORK, CALLS = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
"""The names that torch's profiler has for what a GPU does, and for calls of CUDA."""

Freed: TypeAlias = tuple[torch.Tensor, torch.Tensor, Callable[[], object]]
"""What a kernel reads of pinned memory, what it must read, and a function that frees that memory."""


def check(device: torch.device) -> Iterator[Finding]:
    """Look for what a GPU needs, compile the kernels, and lock memory."""
    yield from look_around()
    yield check_compiler(device)
    yield check_memory(device)


def compare(group: Callable[[calls.Inputs], dict[str, calls.Call]], device: torch.device) -> Iterator[Finding]:
    """Compare the bits of some kernels' results with those of the CPU's."""
    for case, same, said in compare_kernels(device, calls.make_inputs(NUM_NODES, HUB), group):
        yield Finding("ok" if same else "failed", case, said)


def read_freed(program: Callable[[torch.device, Callable[[], None]], Freed], device: torch.device) -> Iterator[Finding]:
    """Free pinned memory while a kernel is still to read it, and put other values where torch then hands it out."""
    matrix, others = torch.ones(SQUARE, SQUARE, device=device), torch.full((ROWS * WIDTH,), OTHER_VALUE)

    def keep_busy() -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrix, matrix)

    same = True
    for _ in range(2):  # The first round compiles and allocates, for which the GPU is waited for.
        found, expected, free = program(device, keep_busy)
        read: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        read.record()
        late = not read.query()
        free()
        pinned = others.pin_memory()
        same &= torch.equal(found.cpu(), expected)
        del pinned
    # A kernel that was done shows nothing.
    said = (
        f"a kernel read {'the' if same else 'other'} values, and was {'at work' if late else 'done'} at their release"
    )
    yield Finding("failed" if not same else "ok" if late else "change", "freed memory", said)


def free_temporary(device: torch.device, keep_busy: Callable[[], None]) -> Freed:
    """Read a tensor that the user has pinned, and that nobody keeps."""
    rows, (here, ids) = numbered_rows(), random_ids(ROWS, ROWS, device)
    expected, held = rows[here], [rows.pin_memory()]
    keep_busy()
    return gather_rows(held[0], ids), expected, held.clear


def free_updated(device: torch.device, keep_busy: Callable[[], None]) -> Freed:
    """Read a pinned feature whose rows are replaced."""
    rows, (here, ids) = numbered_rows(), random_ids(ROWS, ROWS, device)
    expected, feature = rows[here], TorchBasedFeature(rows.clone()).pin_memory_()
    keep_busy()
    return feature.read(ids), expected, lambda: feature.update(rows + 1)


def free_graph(device: torch.device, keep_busy: Callable[[], None]) -> Freed:
    """Sample all edges of a pinned graph that is dropped."""
    sources, (here, seeds) = numbered_rows() % ROWS, random_ids(ROWS, ROWS, device)
    held = [fused_csc_sampling_graph(torch.arange(ROWS + 1) * WIDTH, sources.view(-1).clone()).pin_memory_()]
    expected = sources[here].view(-1)
    keep_busy()
    hop = held[0].sample_neighbors(seeds, torch.tensor([-1]))
    return hop.sampled_csc.indices, expected, held.clear


def numbered_rows() -> torch.Tensor:
    """Return rows of which no two have a value in common."""
    return torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH)


def random_ids(size: int, bound: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random ids on the CPU, and on a GPU, which is not waited for to check them."""
    here = torch.randint(bound, (size,))
    ids = here.to(device)
    trust(("ids", bound), (ids,))
    return here, ids


def read_tables(device: torch.device) -> Iterator[Finding]:
    """Read random rows of pinned tables in the order of the ids, and sorted: a GPU's TLB covers small tables only."""
    row_bytes, room = 4 * SIZES.num_features, available_memory() // 2
    sizes = [size for size in SIZES.table_bytes if size <= room]
    table = empty_locked((max(sizes, default=0) // row_bytes, SIZES.num_features), torch.float32)
    for size in sizes:
        part = table[: size // row_bytes]
        speeds = []
        for least in (size + 1, 0):
            # What decides about the order is a constant; this process ends with the step.
            kernels("rows.gather", torch.empty(0, device=device)).SORTED_BYTES = least  # type: ignore[attr-defined]
            ids = [random_ids(SIZES.read_rows, len(part), device) for _ in range(SIZES.warm_up)]
            gather_rows(part, ids[0][1])
            torch.cuda.synchronize()
            begin = time.perf_counter()
            read = sum(gather_rows(part, own).nbytes for _, own in ids)
            torch.cuda.synchronize()
            speeds.append(f"{read / (time.perf_counter() - begin) / 1e9:.2f} GB/s")
        yield Finding("ok", f"rows of {size / 2**30:g} GiB", f"{speeds[0]} in the order of the ids, {speeds[1]} sorted")


def sampled(graph_on: str, rows_on: str, device: torch.device, typed: bool = False) -> Datapipe:
    """Return a pipeline whose graph and features each lie on the GPU, are pinned, or are for the CPU's threads.

    With types, edges also have weights.
    """
    nodes = SIZES.num_nodes
    # Columns have lengths by a power law, with this mean; nodes with low ids are sources of more edges than others.
    degrees = (torch.rand(nodes) ** -POWER * SIZES.mean_degree * (1 - POWER)).long().clamp_(1, nodes)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    sources = (torch.rand(int(indptr[-1])) ** 2 * nodes).long().clamp_(max=nodes - 1)
    graph: Any = fused_csc_sampling_graph(indptr, sources, **(by_type(indptr, nodes) if typed else {}))
    rows: Any = TorchBasedFeature(torch.rand(nodes, SIZES.num_features))
    graph, rows = (
        whole.to(device) if where == "gpu" else whole.pin_memory_() if where == "pinned" else whole
        for whole, where in ((graph, graph_on), (rows, rows_on))
    )
    items: Any = ItemSet(nodes, names="seeds")
    pipe: Any = ItemSampler(HeteroItemSet({"node": items}) if typed else items, SIZES.batch_size, shuffle=True)
    fanouts = [[-(-fanout // EDGE_TYPES)] * EDGE_TYPES if typed else fanout for fanout in FANOUTS]
    wanted = {"graph": graph, "fanouts": fanouts, "prob_name": "weight" if typed else None}
    if graph_on == "cpu":
        pipe = pipe.sample_neighbor(**wanted).copy_to(device)
    else:
        pipe = pipe.copy_to(device).sample_neighbor(**wanted)
    store = BasicFeatureStore({("node", "node" if typed else None, "feat"): rows})
    found: Datapipe = pipe.fetch_feature(store, {"node": ["feat"]} if typed else ["feat"])
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


def profile(graph_on: str, rows_on: str, device: torch.device, *, typed: bool = False) -> Iterator[Finding]:
    """Make mini-batches as fast as they come, without a model, and then as many with torch's profiler."""
    count, activities = SIZES.minibatches, torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
    pipe = sampled(graph_on, rows_on, device, typed)
    with DataLoader(pipe, seed=0) as loader, tempfile.TemporaryDirectory() as folder:
        minibatches = chain.from_iterable(repeat(loader))
        measure(minibatches, SIZES.warm_up)
        edges, read, seconds = measure(minibatches, count)
        with torch.profiler.profile(activities=activities) as profiled:
            measure(minibatches, count)
        del minibatches
        trace = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text("utf-8", "replace"))["traceEvents"]
    yield Finding("ok", "mini-batches", f"{1e3 * seconds / count:.3f} ms and {edges // count} edges each")
    yield Finding("ok", "edges", f"{edges / seconds / 1e6:.1f} M/s")
    over = "over the bus" if rows_on == "pinned" else "of the GPU's memory"
    yield Finding("ok", "rows", f"{read / seconds / 1e9:.2f} GB/s {over}, {read // count} bytes each mini-batch")
    yield from count_events(events, count)


def measure(minibatches: Iterator[MiniBatch], count: int) -> tuple[int, int, float]:
    """Take mini-batches; return how many edges and bytes of rows they had, and the seconds until the GPU was done."""
    torch.cuda.synchronize()
    edges, read, begin = 0, 0, time.perf_counter()
    for minibatch in islice(minibatches, count):
        hops: Any = minibatch.sampled_subgraphs
        edges += sum(ids.numel() for ids in tensors_in([hop.original_edge_ids for hop in hops]))
        read += count_bytes(minibatch.node_features)
    torch.cuda.synchronize()
    return edges, read, time.perf_counter() - begin


def count_events(events: Sequence[Mapping[str, Any]], count: int) -> Iterator[Finding]:
    """Count in the trace of torch's profiler what a GPU did for some mini-batches; its times are microseconds."""
    work = sorted((own for own in events if own.get("cat") in WORK), key=lambda own: float(own["ts"]))
    if not work:
        yield Finding("change", "trace", "has no work of a GPU; the driver may let only administrators profile")
        return
    kernels = sum(own["cat"] == "kernel" for own in work)
    copied = sum(own.get("args", {}).get("bytes", 0) for own in work if "HtoD" in own["name"])
    waits = [own["dur"] for own in events if own.get("cat") in CALLS and "Synchronize" in own["name"]]
    gaps, begin, end = [], work[0]["ts"], work[0]["ts"]
    for own in work:
        gaps.append(max(own["ts"] - end, 0))
        end = max(end, own["ts"] + own["dur"])
    long = sum(gap > LONG_GAP for gap in gaps)
    each, idle = "each mini-batch", sum(gaps) / max(end - begin, 1e-9)
    yield Finding("ok", "kernels", f"{kernels / count:.1f} {each}, and {(len(work) - kernels) / count:.1f} copies")
    yield Finding("ok", "copies to the GPU", f"{copied / count:.0f} bytes {each}")
    yield Finding("ok", "waits", f"{len(waits) / count:.1f} {each}, of {sum(waits) / count:.0f} us")
    yield Finding(
        "ok", "gaps", f"{long / count:.1f} {each} of more than {LONG_GAP} us; idle for {idle:.0%} of the time"
    )


GROUPS = {
    "rows": calls.calls_on_rows,
    "structure": calls.calls_on_structure,
    "checks": calls.calls_of_checks,
    "edges": calls.calls_on_edges,
    "one hop": calls.calls_of_one_hop,
    "all hops": calls.calls_of_all_hops,
    "one hop in time": calls.calls_in_time,
}
STEPS: dict[str, Callable[[torch.device], Iterator[Finding]]] = {
    "checks": check,
    **{f"kernels: {name}": partial(compare, group) for name, group in GROUPS.items()},
    "freed memory: a temporary tensor": partial(read_freed, free_temporary),
    "freed memory: an updated feature": partial(read_freed, free_updated),
    "freed memory: a dropped graph": partial(read_freed, free_graph),
    "profile: graph and features on the GPU": partial(profile, "gpu", "gpu"),
    "profile: graph and features pinned": partial(profile, "pinned", "pinned"),
    "profile: sampled by threads, features pinned": partial(profile, "cpu", "pinned"),
    "profile: weights and types, on the GPU": partial(profile, "gpu", "gpu", typed=True),
    "profile: weights and types, pinned": partial(profile, "pinned", "pinned", typed=True),
    "rows of pinned tables": read_tables,
}


def no_gpu(device: torch.device) -> Iterator[Finding]:
    """Stand for a step where there is no GPU."""
    yield Finding("missing", "GPU", f"torch finds no {device}")


def main(name: str) -> int:
    """Run a step, and print what it finds as soon as it does; return the exit status."""
    step = STEPS[name] if name == "checks" or torch.cuda.is_available() else no_gpu
    try:
        print_findings(step(torch.device("cuda", 0)))
    except Exception as error:
        print_findings([Finding("failed", "step", f"{type(error).__name__}: {error}")])
        traceback.print_exc()
        return 1
    return 0


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings for the process that started this one, also if this one ends with the next."""
    for finding in findings:
        sys.stdout.write(json.dumps(finding._asdict()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
