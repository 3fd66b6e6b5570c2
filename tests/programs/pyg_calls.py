"""A valid call of each public callable of `graphfeed.pyg`."""

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from typing import Any

import torch

import graphfeed as gf
from graphfeed import pyg
from graphfeed.pyg.data import import_pyg
from tests.kinds.public_calls import EDGES, ENDS, IDS, NODES, Call, call, graph, minibatch, of_loader


def data() -> Any:
    pyg_data = import_pyg("torch_geometric.data", "tests")
    times, weights = torch.arange(NODES), torch.ones(EDGES)
    return pyg_data.Data(x=torch.ones(NODES, 2), edge_index=ENDS, time=times, w=weights, edge_time=torch.arange(EDGES))


def typed_data() -> Any:
    pyg_data = import_pyg("torch_geometric.data", "tests").HeteroData()
    pyg_data["a"].x, pyg_data["b"].x = torch.ones(NODES, 2), torch.ones(NODES, 2)
    pyg_data["a", "to", "b"].edge_index = pyg_data["b", "to", "a"].edge_index = ENDS
    return pyg_data


def events() -> Any:
    times = torch.arange(EDGES)
    return import_pyg("torch_geometric.data", "tests").TemporalData(src=ENDS[0], dst=ENDS[1], t=times)


def torch_options(**more: Any) -> dict[str, Any]:
    """Return all arguments of torch's loader, and more."""
    options = import_module("graphfeed.pyg.loaders.pyg_loader").TorchOptions
    return {field.name: field.default for field in fields(options)} | {"shuffle": None} | more


PYG: dict[str, Callable[[], Call]] = {
    "from_pyg": lambda: call(gf.from_pyg, data=data()),
    "to_pyg": lambda: call(gf.to_pyg, graph=graph()),
    "MiniBatch.to_pyg_data": lambda: call(minibatch().to_pyg_data),
    "NeighborLoader": lambda: of_loader(pyg.NeighborLoader, data(), [2], IDS),
    "NeighborLoader of options": lambda: of_loader(
        pyg.NeighborLoader, data(), [2], IDS, IDS, time_attr="time", **torch_options(time_window=3, as_edge_index=False)
    ),
    "NeighborLoader of types": lambda: of_loader(pyg.NeighborLoader, typed_data(), [2], "a"),
    "NeighborSampler of PyG": lambda: call(pyg.NeighborSampler, data=data(), num_neighbors=[2]),
    "NodeLoader": lambda: of_loader(pyg.NodeLoader, data(), pyg.NeighborSampler(data(), [2]), IDS),
    "LinkLoader": lambda: of_loader(pyg.LinkLoader, data(), pyg.NeighborSampler(data(), [2]), ENDS),
    "LinkNeighborLoader": lambda: of_loader(pyg.LinkNeighborLoader, data(), [2], ENDS, exclude_seed_edges="reverse"),
    "LinkNeighborLoader of types": lambda: of_loader(
        pyg.LinkNeighborLoader, typed_data(), [2], ("a", "to", "b"), neg_sampling="binary"
    ),
    "HGTLoader": lambda: of_loader(pyg.HGTLoader, typed_data(), [2], "a"),
    "HGTSampler": lambda: call(pyg.HGTSampler, data=typed_data(), num_samples=[2]),
    "ClusterLoader": lambda: of_loader(pyg.ClusterLoader, pyg.ClusterData(data(), 2, log=False), **torch_options()),
    "GraphSAINTNodeSampler": lambda: of_loader(pyg.GraphSAINTNodeSampler, data(), 2, sample_coverage=1, log=False),
    "GraphSAINTEdgeSampler": lambda: of_loader(pyg.GraphSAINTEdgeSampler, data(), 2),
    "GraphSAINTRandomWalkSampler": lambda: of_loader(pyg.GraphSAINTRandomWalkSampler, data(), 2, 2),
    "ZipLoader": lambda: of_loader(pyg.ZipLoader, [pyg.NeighborLoader(data(), [2])]),
    "TemporalDataLoader": lambda: of_loader(pyg.TemporalDataLoader, events(), 2, 1.0),
    "ListedLinkLoader": lambda: of_loader(
        pyg.ListedLinkLoader, typed_data(), [2], ("a", IDS), ("b", torch.ones(len(IDS), NODES).to_sparse_csr()), NODES
    ),
    "NegativeSampling": lambda: call(pyg.NegativeSampling, mode="binary"),
    "ClusterData": lambda: call(pyg.ClusterData, data=data(), num_parts=2, log=False),
    "RandomNodeLoader": lambda: of_loader(pyg.RandomNodeLoader, data(), 2),
    "ShaDowKHopSampler": lambda: of_loader(pyg.ShaDowKHopSampler, data(), 1, 2),
    "ImbalancedSampler": lambda: call(pyg.ImbalancedSampler, dataset=torch.tensor([0, 1, 1]), num_samples=3),
}
