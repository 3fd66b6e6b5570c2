"""Work of a mini-batch for a GPU's driver: the table in docs/gpu.md, which no case may exceed."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import pytest
import torch
from torch.utils._pytree import tree_leaves

import graphfeed as gf
from graphfeed.loader.transport.streams import parts_on_streams
from graphfeed.ops import Key, max_uva_threads, set_max_uva_threads
from graphfeed.ops.arguments import check_ids, mark_below
from graphfeed.storage import SamplingRequest, TemporalQuery
from graphfeed.storage.memory import count_bytes, tensors_in
from tests.stand_ins import emulated_cuda
from tests.stand_ins.emulated_cuda import EmulatedCuda, Pretended, device_of
from tests.stand_ins.late_work import arguments_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gpu.md"
ROW = re.compile(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
CROSSES = re.compile(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
NODES, EDGES = 40, 400
EDGE_TYPES = {
    f"user:{name}:{end}": 2 * name + number for name in range(3) for number, end in enumerate(("user", "item"))
}
THREE_HOPS = SamplingRequest([torch.tensor([2])] * 3)


def graph(*, typed: bool = False) -> gf.FusedCSCSamplingGraph:
    """Return a graph with weights and times, or one of 30 users and 10 items with six edge types."""
    torch.manual_seed(1)
    destinations, _ = torch.randint(0, NODES, (EDGES,)).sort()
    indptr = torch.searchsorted(destinations, torch.arange(NODES + 1))
    attributes = {"weight": torch.rand(EDGES), "time": torch.arange(EDGES)}
    if not typed:
        sources = torch.randint(0, NODES, (EDGES,))
        nodes = {"time": torch.zeros(NODES, dtype=torch.int64)}
        return gf.fused_csc_sampling_graph(indptr, sources, node_attributes=nodes, edge_attributes=attributes)
    types = 2 * torch.randint(0, 3, (EDGES,)) + (destinations >= 30)
    types = (destinations * 6 + types).sort()[0] % 6
    return gf.fused_csc_sampling_graph(
        indptr, torch.randint(0, 30, (EDGES,)), torch.tensor([0, 30, NODES]), types.to(torch.uint8),
        {"user": 0, "item": 1}, EDGE_TYPES,
    )  # fmt: skip


def in_time(there: gf.FusedCSCSamplingGraph, seeds: torch.Tensor, query: TemporalQuery) -> None:
    times = torch.full_like(seeds, EDGES)
    there.sample_hops(seeds, SamplingRequest(THREE_HOPS.fanouts, temporal=query), [1, 2, 3], seeds_timestamp=times)


def read_cached(there: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> None:
    """Read rows of sampled nodes through a cache for two rows."""
    if there not in CACHED:
        rows = gf.TorchBasedFeature(EmulatedCuda.memory.pin_memory(torch.rand(NODES, 4)))
        CACHED[there] = gf.gpu_cached_feature(rows, 64, seeds.device)
    mark_below(seeds, NODES)
    CACHED[there].read(seeds)


def read_there(there: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> None:
    """Read rows of sampled nodes."""
    mark_below(seeds, NODES)
    gf.TorchBasedFeature(there.indices[:NODES].view(NODES, 1)).read(seeds)


def fetch_of_sampled(there: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> None:
    """Sample on the CPU, pin and copy, and read rows of two pinned features."""
    rows = [EmulatedCuda.memory.pin_memory(torch.rand(NODES, 4)) for _ in range(2)]
    store = gf.BasicFeatureStore({("node", None, str(i)): gf.TorchBasedFeature(own) for i, own in enumerate(rows)})
    pipe = gf.ItemSampler(gf.ItemSet(torch.tensor([0, 9, 3]), names="seeds"), batch_size=3)
    (sampled,) = pipe.sample_neighbor(graph(), [2] * 3)
    copied = sampled.pin_memory().to(seeds.device, non_blocking=True)
    assert gf.FeatureFetcher(pipe, store, ["0", "1"])(copied).node_features["0"].device == seeds.device


def predict_links(there: gf.FusedCSCSamplingGraph, seeds: torch.Tensor) -> None:
    """Sample around links and their negatives, without their own edges."""
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(3), names="seeds"), batch_size=3)
    minibatch = gf.MiniBatch(seeds=torch.stack([seeds, seeds.flip(0)], 1), key=Key(0, 0, 0))
    stages: list[Any] = [pipe.sample_uniform_negative(there, 2), pipe.sample_neighbor(there, [2] * 3)]
    for stage in [*stages, pipe.exclude_seed_edges()]:
        minibatch = stage(minibatch)


CACHED: WeakKeyDictionary[gf.FusedCSCSamplingGraph, gf.GPUCachedFeature] = WeakKeyDictionary()
EDGE_TIME = TemporalQuery(edge_timestamp_attr_name="time")
BOTH_TIMES = TemporalQuery("time", "time", pre_time_window=100)
WEIGHTS = SamplingRequest(THREE_HOPS.fanouts, probs_name="weight")
LABOR = SamplingRequest(THREE_HOPS.fanouts, strategy="labor")
ALL = SamplingRequest([torch.tensor([-1])] * 3)
CASES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "3 hops": lambda there, seeds: there.sample_hops(seeds, THREE_HOPS, [1, 2, 3]),
    "3 hops, weights": lambda there, seeds: there.sample_hops(seeds, WEIGHTS, [1, 2, 3]),
    "3 hops, LABOR": lambda there, seeds: there.sample_hops(seeds, LABOR, [(1, 1), (2, 2), (3, 3)]),
    "3 hops, all neighbours": lambda there, seeds: there.sample_hops(seeds, ALL, [1, 2, 3]),
    "3 hops, 6 edge types": lambda there, seeds: there.sample_hops({"item": seeds}, THREE_HOPS, [1, 2, 3]),
    "3 hops, temporal": lambda there, seeds: in_time(there, seeds, EDGE_TIME),
    "3 hops, temporal, both times and a window": lambda there, seeds: in_time(there, seeds, BOTH_TIMES),
    "features in memory": read_there,
    "features with a GPU cache": read_cached,
    "sampled by the CPU, two pinned features": fetch_of_sampled,
    "3 hops, links and negatives, seed edges excluded": predict_links,
}  # fmt: skip


@contextmanager
def operators() -> Iterator[list[str]]:
    """Collect torch's operations on the device, except those that only create views or allocate memory."""
    names: list[str] = []
    run = emulated_cuda.run

    def noted(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = run(func, args, kwargs)
        there = any(isinstance(part, Pretended) for part in tree_leaves((args, kwargs, result)))
        if there and arguments_of(func) is not None:
            names.append(func.__name__)
        return result

    with patch.object(emulated_cuda, "run", noted):
        yield names


def work_of(case: str) -> tuple[int, int, int]:
    """Return the waits, kernels and torch operations of the fourth mini-batch of a graph."""
    cuda = EmulatedCuda()
    with cuda.running():
        there, seeds = graph(typed="types" in case).to(device_of(cuda)), cuda.put(torch.tensor([0, 9, 3]))
        for _ in range(3):  # launches are recorded before and after seeds are known to be in range
            CASES[case](there, seeds)
        cuda.waits.clear()
        cuda.launches.clear()
        with operators() as names:
            CASES[case](there, seeds)
        return len(cuda.waits), len(cuda.launches), len(names)


def test_minibatches_take_what_the_page_says() -> None:
    stated = {name: tuple(map(int, numbers)) for name, *numbers in ROW.findall(PAGE.read_text())}
    assert {case: work_of(case) for case in CASES} == stated


def test_the_first_minibatch_compiles_the_kernels_that_it_takes_and_no_others() -> None:
    cuda = EmulatedCuda()
    with cuda.running():
        CASES["3 hops"](graph().to(device_of(cuda)), cuda.put(torch.tensor([0, 9, 3])))
        assert emulated_cuda.import_launch().module.cache_info().currsize == 3


def test_of_a_pinned_graph_only_what_crosses_the_bus_is_read_by_few_threads() -> None:
    cuda, usual = EmulatedCuda(), max_uva_threads()
    set_max_uva_threads(256)
    for case in [case for case in CASES if "links" not in case]:  # whose nodes are few
        with cuda.running():
            cuda.launches.clear()
            there, seeds = graph(typed="types" in case).pin_memory_(), cuda.put(torch.arange(600) % 10)
            CASES[case](there, seeds)
            few = {name for name, threads in cuda.launches if threads <= 256}
        opens = {name for name, _ in cuda.launches if name.startswith(("count_", "fill_", "gather_late"))}
        assert few <= opens | {"copy_rows", "number_sets"}, case  # the last one has a thread for each of few sets
        assert not {"count_types", "fill_types", "enter_nodes", "append_rows"} & few, case
    set_max_uva_threads(usual)


def test_ids_that_were_copied_to_a_gpu_are_waited_for_only_where_they_are_wrong() -> None:
    cuda = EmulatedCuda()
    with cuda.running():
        there = gf.MiniBatch(input_nodes=torch.tensor([0, 5])).to(device_of(cuda)).input_nodes
        cuda.waits.clear()
        check_ids("ids", there, 6)
        assert cuda.waits == []
        with pytest.raises(ValueError, match=r"ids must be in 0 \.\. 4, but holds 5"):
            check_ids("ids", there, 5)


def crossing(sampled: list[gf.SampledSubgraph], *features: torch.Tensor) -> tuple[int, ...]:
    """Return the tensors of a mini-batch, and how often it is pinned, copied, and recorded on a stream."""
    cuda = EmulatedCuda()
    given = gf.MiniBatch(labels=torch.ones(3), sampled_subgraphs=sampled, node_features=dict(enumerate(features)))
    with cuda.running(), operators() as names, patch.object(EmulatedCuda.memory, "pin_memory") as pin:
        pin.side_effect = torch.clone
        there = gf.MiniBatch(**vars(given)).pin_memory().to(device_of(cuda), non_blocking=True)
        assert count_bytes(there) == count_bytes(given)
        return (
            len({*map(id, tensors_in(given))}),
            pin.call_count,
            names.count("_to_copy.default"),
            len(parts_on_streams(there)),
        )


def test_a_minibatch_crosses_the_bus_in_one_block() -> None:
    seeds, keys = torch.tensor([0, 9, 3]), [1, 2, 3]
    typed = graph(typed=True).sample_hops({"item": seeds}, THREE_HOPS, keys)
    plain = graph().sample_hops(seeds, THREE_HOPS, keys)
    counted = {
        "3 hops": crossing(plain),
        "3 hops, a large feature": crossing(plain, torch.ones(1 << 18)),
        "3 hops, 6 edge types": crossing(typed),
    }
    assert counted == {name: tuple(map(int, numbers)) for name, *numbers in CROSSES.findall(PAGE.read_text())}
