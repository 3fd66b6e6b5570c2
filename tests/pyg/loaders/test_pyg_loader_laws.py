"""What holds for every loader: equal mini-batches with any workers, in each epoch, and on from the middle of one."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from graphfeed import ProcessExecutor, pyg
from tests.pyg.neighborhood import events, heterogeneous, homogeneous, values_of
from tests.pyg.stores import in_stores, sorted_data

SAINT: dict[str, Any] = {"num_steps": 5, "sample_coverage": 3}
EITHER: Any = {"user": None, "item": None}
WINDOW = {"user": torch.arange(40) % 11, "item": 9}


def drop_some(output: Any) -> Any:
    kept = torch.rand(len(output.row)) < 0.5
    output.row, output.col, output.edge = output.row[kept], output.col[kept], output.edge[kept]
    return output


def add_noise(data: Any) -> Any:
    data.noise = torch.rand(3)
    return data


def nodes(**options: Any) -> Any:
    return partial(pyg.NeighborLoader, homogeneous(), [3, 2], shuffle=True, **{"batch_size": 20, **options})


def typed(seeds: Any = "user", **options: Any) -> Any:
    return partial(pyg.NeighborLoader, heterogeneous(), [2, 2], seeds, shuffle=True, batch_size=10, **options)


def links(**options: Any) -> Any:
    return partial(pyg.LinkNeighborLoader, homogeneous(), [2, 2], shuffle=True, **{"batch_size": 30, **options})


def in_time(name: str) -> Any:
    return nodes(input_time=torch.arange(60), time_attr=name)


def balanced(**options: Any) -> Any:
    data = homogeneous()
    return pyg.NeighborLoader(data, [1], sampler=pyg.ImbalancedSampler(data.y // 40), batch_size=8, **options)


def sampled(**options: Any) -> Any:
    sampler = torch.utils.data.WeightedRandomSampler([1.0] * 60, 30)
    return pyg.NeighborLoader(homogeneous(), [1], sampler=sampler, batch_size=8, **options)


def batched(**options: Any) -> Any:
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(range(60)), 7, drop_last=False)
    return pyg.NeighborLoader(homogeneous(), [1], batch_sampler=sampler, **options)


def stored(**options: Any) -> Any:
    pair = in_stores(sorted_data(True, "csc"), "csc")
    return pyg.NeighborLoader(pair, [3, 2], "item", batch_size=8, shuffle=True, **options)


def zipped(**options: Any) -> Any:
    loaders = [nodes()(), nodes()(), links()()]
    return pyg.ZipLoader(loaders, batch_size=16, shuffle=True, **options)


LOADERS: dict[str, Callable[..., Any]] = {
    "nodes": nodes(transform=add_noise),
    "nodes, function of the output": nodes(transform_sampler_output=drop_some),
    "nodes, disjoint": nodes(disjoint=True),
    "nodes, weights, induced": nodes(weight_attr="weight", subgraph_type="induced"),
    "nodes, node times": in_time("time"),
    "nodes, edge times": in_time("edge_time"),
    "nodes, edges in PyG's own kind of tensor": nodes(as_edge_index=True),
    "nodes, balanced": balanced,
    "nodes, torch's sampler": sampled,
    "nodes, torch's sampler of mini-batches": batched,
    "nodes of types": typed(),
    "nodes of types, in stores": stored,
    "nodes of types, in stores, fetched by workers": partial(stored, filter_per_worker=True),
    "nodes of types, disjoint": typed(disjoint=True),
    "nodes of types, induced": typed(subgraph_type="induced"),
    "nodes of types, times": typed(time_attr="time"),
    "nodes of types, windows": typed(EITHER, time_attr="time", time_window=WINDOW),
    "links": links(),
    "links, binary": links(neg_sampling="binary"),
    "links, triplets": links(neg_sampling=("triplet", 2), disjoint=True),
    "links, without the edges of seeds": links(exclude_seed_edges="reverse"),
    "hgt": partial(pyg.HGTLoader, heterogeneous(), [2, 3], "user", batch_size=9, shuffle=True),
    "clusters": partial(pyg.ClusterLoader, pyg.ClusterData(homogeneous(), 9), batch_size=2, shuffle=True),
    "saint, nodes": partial(pyg.GraphSAINTNodeSampler, homogeneous(), 8, **SAINT),
    "saint, edges": partial(pyg.GraphSAINTEdgeSampler, homogeneous(), 8, **SAINT),
    "saint, walks": partial(pyg.GraphSAINTRandomWalkSampler, homogeneous(), 8, 2, **SAINT),
    "parts": partial(pyg.RandomNodeLoader, heterogeneous(), 5, shuffle=True),
    "roots": partial(pyg.ShaDowKHopSampler, homogeneous(), 2, 2, batch_size=9, shuffle=True),
    "events": partial(pyg.TemporalDataLoader, events(), 7, 1.0),
    "several": zipped,
}


def epoch(loader: Any) -> list[Any]:
    return [[values_of(part) for part in (batch if isinstance(batch, tuple) else [batch])] for batch in loader]


@pytest.mark.parametrize("name", LOADERS)
def test_workers_make_no_difference_and_an_epoch_goes_on_in_the_middle(name: str) -> None:
    inline, begun = (LOADERS[name](seed=5) for _ in range(2))
    whole, after = epoch(inline), epoch(inline)
    assert whole != after
    list(islice(begun, 2))
    for num_workers in (1, 3):
        with LOADERS[name](seed=5, num_workers=num_workers) as loader:
            assert [epoch(loader), epoch(loader)] == [whole, after]
            loader.load_state_dict(begun.state_dict())
            assert epoch(loader) == whole[2:]


@pytest.mark.slow
def test_worker_processes_make_no_difference() -> None:
    with ProcessExecutor(1) as executor:
        for name, make in LOADERS.items():
            with make(seed=5, num_workers=1, executor=executor) as loader:
                assert epoch(loader) == epoch(make(seed=5)), name


@pytest.mark.slow
def test_a_loader_has_processes_of_its_own() -> None:
    with stored(seed=5, num_workers=2, worker="process") as loader:
        assert epoch(loader) == epoch(stored(seed=5))
