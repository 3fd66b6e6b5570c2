"""Ranks of a process group that train on joint mini-batches: gradients equal those of one machine."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import CooperativeConv
from graphfeed.distributed.ranks.peers import shared_peers
from tests.kinds.joint import BATCH_SIZE, alone, codes, items, names, of_ranks, parts_of
from tests.kinds.partitioned_graphs import plain, typed
from tests.stand_ins.rank_processes import rank_and_size, run_cases


class Layer(torch.nn.Module):
    """Adds the rows of its sources to each column, without parameters per type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 3).double()

    def forward(self, hop: Any, rows: torch.Tensor) -> torch.Tensor:
        columns = gf.expand_indptr(hop.sampled_csc.indptr, torch.int64)
        out = rows[: len(hop.original_column_node_ids)].clone()
        found: torch.Tensor = self.linear(out.index_add(0, columns, rows[hop.sampled_csc.indices])).tanh()
        return found


def gradients(pipe: gf.Datapipe, count: int) -> list[torch.Tensor]:
    """Return the losses of some mini-batches, and the sum of their gradients."""
    torch.manual_seed(0)
    layers, exchange = [Layer(3), Layer(3)], CooperativeConv()
    losses = []
    with gf.DataLoader(pipe, 2, seed=3) as loader:
        for batch in islice(loader, count):
            rows = batch.node_features["code"].double() / 1000
            for number, (layer, hop) in enumerate(zip(layers, batch.sampled_subgraphs, strict=True)):
                rows = layer(hop, exchange(hop, rows) if number else rows)
            result = exchange(batch, rows)
            loss = (result * batch.seeds[:, None]).sum()
            loss.backward()
            losses.append(loss.detach())
    parameters: list[Any] = [parameter for layer in layers for parameter in layer.parameters()]
    return [torch.stack(losses), *(parameter.grad for parameter in parameters)]


def train(kind: str, count: int) -> None:
    """Run a rank: gradients must equal those of one machine, and it must fetch less if all ranks have all rows."""
    rank, world_size = rank_and_size()
    graph = plain()
    own, store = parts_of(graph, rank, world_size, None)
    whole = gf.BasicFeatureStore({("node", None, "code"): gf.TorchBasedFeature(codes(torch.arange(100)))})
    if kind == "whole":
        own, store = graph, whole
    pipe = of_ranks(graph, own, store, "sample_neighbor")
    explained = gf.DataLoader(pipe, 2, seed=3).explain()
    assert "Ranks build joint mini-batches: each samples and fetches" in explained
    found = gradients(pipe, count)
    for part in found:
        distributed.all_reduce(part)
    single = alone(graph, "sample_neighbor", world_size).fetch_feature(whole, ["code"])
    for one, other in zip(found, gradients(single, count), strict=True):
        assert torch.allclose(one, other)
    traffic = shared_peers().traffic
    rows = torch.tensor([traffic.rows_needed, traffic.rows_read])
    distributed.all_reduce(rows)
    assert kind == "parts" or rows[1] < 0.8 * rows[0]


def typed_layer(hop: Any, rows: dict[str, torch.Tensor], weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """Add the rows of its sources to each column, in a graph with types."""
    out = {kind: rows[kind][: len(ids)] for kind, ids in hop.original_column_node_ids.items()}
    for name, csc in hop.sampled_csc.items():
        source, _, end = name.split(":")
        columns = gf.expand_indptr(csc.indptr, torch.int64)
        out[end] = out[end].index_add(0, columns, rows[source][csc.indices])
    return {kind: (own @ weight).tanh() for kind, own in out.items()}


def typed_gradients(pipe: gf.Datapipe, count: int) -> list[torch.Tensor]:
    """Return the loss of mini-batches with types, and its gradients; each rank computes it for its own seeds."""
    weights = [torch.full((3, 3), 0.1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    exchange, total = CooperativeConv(), torch.zeros((), dtype=torch.float64)
    with gf.DataLoader(pipe, 2, seed=3) as loader:
        for batch in islice(loader, count):
            rows = {kind: own.double() / 1000 for (kind, _), own in batch.node_features.items()}
            rows = {kind: rows.get(kind, torch.zeros(0, 3, dtype=torch.float64)) for kind in ("user", "item", "shop")}
            for number, (weight, hop) in enumerate(zip(weights, batch.sampled_subgraphs, strict=True)):
                rows = typed_layer(hop, exchange(hop, rows) if number else rows, weight)
            result = exchange(batch, rows)
            loss = sum((result[kind] * ids[:, None]).sum() for kind, ids in batch.seeds.items())
            loss.backward()
            total += loss.detach()
    return [total, *(weight.grad for weight in weights if weight.grad is not None)]


def train_with_types() -> None:
    """Run a rank: gradients must equal those of one machine, with seeds of different types on the ranks."""
    rank, world_size = rank_and_size()
    graph = typed()
    own, store = parts_of(graph, rank, world_size, None)
    seeds = gf.DistributedItemSampler(items(graph), BATCH_SIZE, drop_uneven_inputs=True)
    pipe = seeds.sample_neighbor(own, [3, 4], cooperative=True).fetch_feature(store, names(graph), cooperative=True)
    count = len(pipe)  # ranks drop the last ones
    found = typed_gradients(pipe, count)
    for part in found:
        distributed.all_reduce(part)
    single = gf.ItemSampler(items(graph), world_size * BATCH_SIZE).sample_neighbor(graph, [3, 4])
    whole = {
        ("node", kind, "code"): gf.TorchBasedFeature(codes(torch.arange(graph.num_nodes[kind])))  # type: ignore[index]
        for kind in ("user", "item")
    }
    wanted = typed_gradients(single.fetch_feature(gf.BasicFeatureStore(whole), names(graph)), count)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other)


def a_stage_says_that_it_needs_a_loader() -> None:
    graph = plain()
    pipe = gf.DistributedItemSampler(items(graph), BATCH_SIZE).sample_neighbor(graph, [2], cooperative=True)
    with pytest.raises(RuntimeError, match="has cooperative=True, but ranks cooperate only in a DataLoader"):
        next(iter(pipe))


def parts_are_trained_on() -> None:
    train("parts", 4)


def whole_graphs_are_trained_on() -> None:
    train("whole", 4)


def parts_and_whole_graphs_are_trained_on_for_a_step() -> None:
    train("whole", 2)
    train("parts", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "world_size"),
    [
        ([parts_and_whole_graphs_are_trained_on_for_a_step, a_stage_says_that_it_needs_a_loader], 2),
        pytest.param(
            [whole_graphs_are_trained_on, parts_are_trained_on, train_with_types], 3, marks=pytest.mark.thorough
        ),
    ],
)
def test_ranks_of_a_process_group_train_as_one_machine_and_fetch_less(
    tmp_path: Path, cases: list[Callable[[], None]], world_size: int
) -> None:
    run_cases(cases, world_size, tmp_path)
