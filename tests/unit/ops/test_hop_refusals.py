"""Invalid arguments of operations on all hops are rejected."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed import ops
from tests.kinds.compare_kernels import moved
from tests.kinds.hops import changed as changed_arrays
from tests.kinds.hops import given_arrays, plain_hops, sample_all, sample_timed, sample_typed_timed
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda


def random_graph() -> ops.Graph:
    """Return a graph of three node types and five edge types; the middle type is no type's source."""
    num_nodes, chance = 600, torch.Generator().manual_seed(1)
    first_ids = torch.tensor([0, num_nodes // 2, num_nodes // 2 + 50, num_nodes])
    ends = torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 2]])
    kinds = torch.randint(0, 5, (20_000,), generator=chance)
    sources, destinations = (
        first_ids[side[kinds]] + (torch.rand(20_000, generator=chance) * (first_ids.diff()[side[kinds]])).long()
        for side in ends.T
    )
    order = torch.argsort(destinations * 5 + kinds)
    indptr, _, _ = ops.coo_to_csc(sources, destinations, num_nodes)
    return ops.Graph.checked(
        indptr, sources[order], types=kinds[order].to(torch.uint8), first_ids=first_ids.tolist(), ends=ends
    )


SEEDS = [torch.arange(0, 300, 7), torch.tensor([3, 3]), torch.tensor([], dtype=torch.int64)]
HOPS = [torch.tensor([4]), torch.tensor([1, 2, 3, 0, -1])]
INDPTR, INDICES = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0])
RISING = ops.TimeOrder(torch.tensor([1, 2, 3]))
COLUMNS = ops.Graph.checked(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), by_column=RISING)
ZERO, ONE, PAIR = torch.tensor([0]), torch.tensor([1]), [(1, 2)]
GRAPH = random_graph()
TIMED = ops.TimeOrder(torch.arange(GRAPH.num_edges))
"""The time of an edge is its position."""
TIMES = 20_000 - torch.arange(45)


def plain(**changed: Any) -> Any:
    right: dict[str, Any] = {"indptr": INDPTR, "indices": INDICES, "seeds": ZERO, "fanouts": [2, 2], "keys": [1, 2]}
    return sample_all(**right | changed)


def timed(**changed: Any) -> Any:
    right: dict[str, Any] = {"graph": COLUMNS, "seeds": ONE, "times": ONE, "fanouts": [1], "keys": [0]}
    return sample_timed(**right | changed)


def typed(**changed: Any) -> Any:
    right: dict[str, Any] = {"graph": GRAPH, "seeds": SEEDS, "fanouts": HOPS, "keys": [1, 2]}
    return ops.sample_hops(**right | changed)


def typed_in_time(**changed: Any) -> Any:
    right: dict[str, Any] = {
        "graph": changed_arrays(GRAPH, by_column=TIMED),
        "seeds": SEEDS,
        "times": TIMES,
        "fanouts": HOPS,
        "keys": [1, 2],
    }
    return sample_typed_timed(**right | changed)


def check(**arrays: Any) -> ops.Graph:
    """Check the arrays of a graph with types, of which some are others."""
    return ops.Graph.checked(**given_arrays(GRAPH) | arrays)


def test_all_hops_name_what_is_wrong() -> None:
    large = [2**58 + 1]
    plain(fanouts=large * 2), plain(fanouts=large, keys=PAIR, method="labor"), typed(), typed_in_time()
    timed(fanouts=large), timed(fanouts=large, keys=PAIR, method="labor")
    sums = torch.tensor([1, 2, 3])
    ends = torch.tensor([[0, 0], [2, 0], [0, 1], [0, 2], [2, 1]])
    check_refused([
        (lambda: plain(seeds=ONE + 2), ValueError, r"seeds must be in 0 \.\. 2, but holds 3"),
        (lambda: plain(keys=[1]), ValueError, "keys must hold 2 numbers, one per hop, but holds 1"),
        (lambda: plain(keys=[(0, 0)], method="labor"), ValueError, "keys must hold 2 pairs, one per hop, but holds 1"),
        (lambda: plain(keys=[1, -1]), ValueError, "keys must be 0 or more, but"),
        (lambda: plain(keys=[], fanouts=[]), ValueError, "fanouts is empty; give a number for each hop"),
        (lambda: plain(fanouts=[2, -2]), ValueError, "fanouts must be -1 .* or more, but hold.* -2"),
        (lambda: plain(fanouts=large * 2, replace=True), ValueError, "fanouts must be at most .* with replacement"),
        (lambda: timed(fanouts=large, replace=True), ValueError, "fanouts must be at most .* with replacement"),
        (lambda: plain(method="latest"), ValueError, "the latest edges are selected by their times; give the times"),
        (lambda: plain(method="all"), ValueError, "drawing.method must be one of uniform, labor, latest, but is 'all'"),
        (lambda: plain(rows="nodes"), ValueError, "drawing.rows must be one of node, tree, edge, but is 'nodes'"),
        (lambda: plain(cumulative=ops.GuidedSums(sums, torch.zeros(1).int())), ValueError,
         "guides must have 3 values, one for each running sum"),
        (lambda: plain_hops(COLUMNS, ZERO, [1], [1]), ValueError, "moments .* must be given if the graph has an order"),
        (lambda: timed(rows="node"), ValueError, "with times, drawing.rows must be"),
        (lambda: timed(times=torch.tensor([1, 2])), ValueError, "times must have 1 values, one per seed, but has 2"),
        (lambda: timed(window=-1), ValueError, "windows must be 0 or more, but one is -1"),
        (lambda: timed(method="latest", replace=True), ValueError, "edges are selected without replacement"),
        (lambda: typed(seeds=SEEDS[:2]), ValueError, "seeds must hold 3 tensors, one per node type, but holds 2"),
        (lambda: typed(seeds=[*SEEDS[:2], torch.tensor([250])]), ValueError,
         r"seeds\[2\] must be in 0 \.\. 249, but holds 250"),
        (lambda: typed(fanouts=[HOPS[0], HOPS[1][:2]]), ValueError, r"or 5 \(one per edge type\), but hold 2"),
        (lambda: typed(keys=[(1, 2), (3,)], drawing=ops.Drawing("labor")), ValueError, "each hop needs two keys"),
        (lambda: check(order=[0, 1, 2, 3, 3]), ValueError, "order must hold each of the 5 edge types"),
        (lambda: check(first_ids=[0, 300, 200, 600]), ValueError, "first_ids must not decrease"),
        (lambda: check(ends=None), ValueError, "ends is missing; give the source and destination node type"),
        (lambda: check(ends=ends), ValueError, "does not join its two nodes"),
        (lambda: check(ends=ends + torch.tensor([0, 2])), IndexError, r"ends must be in 0 \.\. 2"),
        (lambda: check(edge_times=torch.arange(9)), ValueError, "edge_times must have 20000 values, one per edge"),
        (lambda: check(by_type=TIMED._replace(times=torch.arange(9))), ValueError,
         "by_type.times must have 20000 values, one per edge"),
        (lambda: check(by_column=TIMED._replace(order=torch.full((20_000,), 9_000))), ValueError,
         "offset .* in its column, but one"),
        (lambda: check(by_column=torch.arange(20_000)), TypeError, "by_column must be a TimeOrder, but is"),
    ])  # fmt: skip


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the memory of this process to 2 GiB more than it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of this process is unknown")
@pytest.mark.parametrize("typed", [False, True])
def test_hops_of_int32_have_up_to_its_largest_number_of_edges(typed: bool) -> None:
    graph = GRAPH if typed else ops.Graph.checked(INDPTR, INDICES)
    narrow = changed_arrays(graph, indices=graph.indices.int(), indptr_dtype=torch.int32)
    num_types = 3 if typed else 1

    def sample(graph: ops.Graph, seeds: int, fanout: int) -> None:
        starts = [torch.zeros(seeds if kind == 0 else 0, dtype=graph.indices.dtype) for kind in range(num_types)]
        ops.sample_hops(graph, starts, [torch.tensor([fanout])], [1], drawing=ops.Drawing(replace=True))

    sample(narrow, 2, 1)
    with little_memory():
        # Hops that are allowed are too large for the memory.
        for own, seeds, fanout in ((narrow, 1, 2**31 - 1), (graph, 2, 2**30)):
            with pytest.raises(MemoryError):
                sample(own, seeds, fanout)
        with pytest.raises(ValueError, match="hop 0 would have 2147483648 edges, too many for int32"):
            sample(narrow, 2, 2**30)


def test_all_hops_on_a_gpu_name_what_is_wrong(cuda: Cuda) -> None:
    columns = ops.Graph.checked(torch.tensor([0, 1]), ZERO, by_column=ops.TimeOrder(ZERO))
    with cuda.running():
        there, zero = moved(columns, cuda.put), cuda.put(ZERO)
        graph = ops.Graph.unchecked(cuda.put(INDPTR), cuda.put(INDICES))
        arrays: dict[str, Any] = {name: cuda.put(getattr(GRAPH, name)) for name in ("indptr", "indices", "types")}
        by_type = changed_arrays(GRAPH, **arrays)
        seeds = [cuda.put(torch.tensor(part)) for part in ([0, 299], [1, 50], [0])]
        check_refused([
            (lambda: plain_hops(graph, zero - 1, [2, -1], [1, 2]), ValueError, r"must be in 0 \.\. 2, but holds -1"),
            (lambda: ops.sample_hops(by_type, seeds, HOPS, [1, 2]), ValueError, r"seeds\[1\] must be in 0"),
            (lambda: sample_timed(there, zero + 1, zero, [1], [0]), ValueError, r"must be in 0 \.\. 0, but holds 1"),
            (
                lambda: sample_timed(changed_arrays(columns, indptr=there.indptr), zero, zero, [1], [0]),
                ValueError, "but indices is on cpu",
            ),
        ])  # fmt: skip
