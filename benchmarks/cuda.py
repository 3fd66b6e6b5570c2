"""Operations on a GPU, relative to the device's limit for each of them, measured in the same run.

Rows in device memory: a copy of the same size in that memory. Rows in pinned memory of the host: a copy of the same
size over the bus. Sampling: torch reading the same number of values at random positions of the same arrays, a kernel a
hop. Relabelling: torch's `unique` of the same ids, which doesn't keep the order of first appearance. Then sampled edges
per second relative to one core of the CPU, and training steps with a concurrent loader. Some results are compared with
predictions from the bytes moved (`predicted.py`), which are printed without a GPU, too.
"""

import time
from collections.abc import Iterator

import torch

from benchmarks import predicted, steps
from benchmarks.graphs import load_edges, load_features
from benchmarks.predicted import pin
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, Times, in_turn, one_core
from graphfeed import ops

DEVICE = torch.device("cuda")
FANOUTS, COUNTS = predicted.FANOUTS, predicted.COUNTS
UVA_THREADS = (1024, 10240, 1 << 20)


def report(scale: Scale) -> Iterator[str]:
    """Yield a table per operation, or a message that there is no device."""
    if not torch.cuda.is_available():
        yield "cuda: torch finds no CUDA device here, so nothing was measured.\n"
        yield predicted.prediction()
        return
    yield f"cuda: {torch.cuda.get_device_name()}\n"
    yield predicted.prediction()
    features = torch.from_numpy(load_features(scale.products, scale.cache))
    yield gather_table("gather on the device; ratio to a copy of as many bytes in it", features.to(DEVICE), scale)
    yield gather_table("gather from pinned memory; ratio to a copy of as many bytes over the bus", pin(features), scale)
    indptr, indices = (torch.from_numpy(part) for part in load_edges(scale.products, scale.cache))
    there = ops.Graph.unchecked(indptr.to(DEVICE), indices.to(DEVICE))
    yield sampling_table(there, scale)
    yield edges_table(ops.Graph.unchecked(indptr, indices), there, scale)
    arrays = {"indptr": indptr, "indices": indices, "features": features}
    yield predicted.comparison(
        predicted.cases(arrays, DEVICE, scale), torch.cuda.get_device_name(), scale, device_clock
    )
    yield from steps.report(scale, DEVICE, device_clock)


def device_clock() -> float:
    """Wait until the device is done, and return the time."""
    torch.cuda.synchronize()
    return time.perf_counter()


def gather_table(title: str, values: torch.Tensor, scale: Scale) -> str:
    """Time reading random rows, with different ids in each round."""
    count = scale.gathered_rows
    index = torch.randint(len(values), (scale.repeats, count)).to(DEVICE)
    block = values[:count] if len(values) >= count else values.repeat(-(-count // len(values)), 1)[:count]
    block = block.contiguous() if block.device.type != "cpu" else pin(block)
    taken = torch.empty(block.shape, dtype=block.dtype, device=DEVICE)
    limit = "copy of as many bytes"
    cases: dict[str, Case] = {limit: lambda _: taken.copy_(block)}
    if values.device.type == "cpu":
        before = ops.max_uva_threads()
        for threads in UVA_THREADS:
            cases[f"ops.gather_rows, at most {threads} threads"] = limited(threads, values, index)
    else:
        cases["ops.gather_rows"] = lambda number: ops.gather_rows(values, index[number])
        cases["torch indexing"] = lambda number: values[index[number]]
    times = in_turn(cases, scale.repeats, device_clock)
    if values.device.type == "cpu":
        ops.set_max_uva_threads(before)
    rows = compare(times, limit, "ms", 1e3)
    return render(f"{title}: {count} random rows of {values[:1].nbytes} bytes", rows)


def limited(threads: int, values: torch.Tensor, index: torch.Tensor) -> Case:
    """Return a case that reads pinned rows with the given number of threads."""

    def read(number: int) -> torch.Tensor:
        ops.set_max_uva_threads(threads)
        return ops.gather_rows(values, index[number])

    return read


def sampling_table(graph: ops.Graph, scale: Scale) -> str:
    """Time all hops of a mini-batch and their parts, with different seeds in each round."""
    indptr, indices, nodes = graph.indptr, graph.indices, graph.indptr.numel() - 1
    seeds = torch.randint(nodes, (scale.repeats, scale.batch_size)).to(DEVICE)
    keys = list(range(len(FANOUTS)))
    pairs = [(key, key) for key in keys]
    first = ops.sample_hops(graph, [seeds[0]], COUNTS, keys)
    positions = [hop.edges[0].positions for hop in first]
    read = [(hop.columns[0], own, ops.gather_rows(indices, own)) for hop, own in zip(first, positions, strict=True)]
    limit = "torch reads as many values at random"
    columns, _, neighbors = read[-1]

    def read_all(_: int) -> list[torch.Tensor]:
        return [part for own, edges, _ in read for part in (indptr[own], indices[edges])]

    cases: dict[str, Case] = {
        limit: read_all,
        "ops.sample_hops": lambda number: ops.sample_hops(graph, [seeds[number]], COUNTS, keys),
        "ops.sample_hops, LABOR": lambda number: ops.sample_hops(
            graph, [seeds[number]], COUNTS, pairs, predicted.LABOR
        ),
        "ops.compact, last hop": lambda _: ops.compact(columns, neighbors),
        "torch.unique, last hop": lambda _: torch.unique(torch.cat([columns, neighbors]), return_inverse=True),
    }
    times = in_turn(cases, scale.repeats, device_clock)
    edges = sum(own.numel() for own in positions)
    rows = compare(times, limit, "ms", 1e3)
    return render(f"sampling {edges} edges, fan-outs {FANOUTS} from the seeds outward; ratio to random reads", rows)


def edges_table(here: ops.Graph, there: ops.Graph, scale: Scale) -> str:
    """Time all hops from the same seeds on one core, on the device, and on the device with a pinned graph."""
    seeds = torch.randint(here.indptr.numel() - 1, (scale.repeats, scale.batch_size))
    pinned = ops.Graph.unchecked(pin(here.indptr), pin(here.indices))
    keys = list(range(len(FANOUTS)))
    counts: list[int] = []
    for own in seeds:
        layers = ops.sample_hops(here, [own], COUNTS, keys)
        assert layers is not None
        counts.append(sum(hop.edges[0].positions.numel() for hop in layers))

    def sample(graph: ops.Graph, own: torch.Tensor) -> Case:
        return lambda number: ops.sample_hops(graph, [own[number]], COUNTS, keys)

    def sample_here(number: int) -> object:
        with one_core():
            return sample(here, seeds)(number)

    cases: dict[str, Case] = {
        "one core of the CPU": sample_here,
        "device, graph on it": sample(there, seeds.to(DEVICE)),
        "device, graph in pinned memory": sample(pinned, seeds.to(DEVICE)),
    }
    times = in_turn(cases, scale.repeats, device_clock)
    rows = []
    for name, own in times.items():
        rate = Times([1e-6 * count / seconds for count, seconds in zip(counts, own.values, strict=True)])
        rows.append(Row(name, "M edges/s", rate, times["one core of the CPU"].over(own)))
    return render(f"sampled edges a second, fan-outs {FANOUTS} from the seeds outward; ratio to one core", rows)
