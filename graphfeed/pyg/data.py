"""Mini-batches as PyG's data objects."""

from typing import Any

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.optional import import_optional
from graphfeed.pyg.layer_data import edge_index
from graphfeed.storage.graph.sampled_subgraph import SampledSubgraph


def make_data(minibatch: MiniBatch) -> Any:
    """Return a mini-batch as a PyG `Data`, or `HeteroData` if the graph has types; see `MiniBatch.to_pyg_data`."""
    pyg = import_optional("torch_geometric.data", "to_pyg_data()", "pip install 'graphfeed[pyg]'")
    if minibatch.sampled_subgraphs is None:
        raise ValueError("the mini-batch has no sampled_subgraphs; sample before to_pyg_data()")
    edges = union_of(minibatch.sampled_subgraphs)
    if isinstance(minibatch.input_nodes, dict):
        return fill_typed(pyg.HeteroData(), minibatch, edges, minibatch.input_nodes)
    data = pyg.Data()
    data.edge_index = edges.get("")
    features = minibatch.node_features or {}
    for name, value in features.items():
        data["x" if len(features) == 1 else name] = value
    data.n_id = minibatch.input_nodes
    if minibatch.compacted_seeds is None:
        data.y = minibatch.labels
        data.batch_size = None if minibatch.seeds is None else len(minibatch.seeds)
    else:
        data.edge_label_index, data.edge_label = pairs_of(minibatch.compacted_seeds), minibatch.labels
    return data


def fill_typed(data: Any, minibatch: MiniBatch, edges: dict[str, torch.Tensor], nodes: dict[str, torch.Tensor]) -> Any:
    """Fill a `HeteroData` and return it."""
    for kind, own in edges.items():
        data[tuple(kind.split(":"))].edge_index = own
    names = [kind for kind, _ in minibatch.node_features or {}]
    for (kind, name), value in (minibatch.node_features or {}).items():
        data[kind]["x" if names.count(kind) == 1 else name] = value
    for kind, ids in nodes.items():
        data[kind].n_id = ids
        data[kind].num_nodes = len(ids)
    labels: Any = minibatch.labels or {}
    if isinstance(minibatch.compacted_seeds, dict):
        for kind, own in minibatch.compacted_seeds.items():
            data[tuple(kind.split(":"))].edge_label_index = pairs_of(own)
            if kind in labels:
                data[tuple(kind.split(":"))].edge_label = labels[kind]
    elif isinstance(minibatch.seeds, dict):
        for kind, own in minibatch.seeds.items():
            data[kind].batch_size = len(own)
            if kind in labels:
                data[kind].y = labels[kind]
    return data


def pairs_of(seeds: Any) -> torch.Tensor:
    """Return edge seeds in PyG's layout: int64, shape (2, N)."""
    return torch.as_tensor(seeds).to(torch.int64).T.contiguous()


def union_of(subgraphs: list[SampledSubgraph]) -> dict[str, torch.Tensor]:
    """Return the edges of all hops, each once, by edge type; the type of a graph without types is "".

    The rows of a hop begin with the rows of the next inner hop, so a position means the same node in every hop.
    """
    hops: dict[str, list[torch.Tensor]] = {}
    for subgraph in subgraphs:
        csc = subgraph.sampled_csc
        for kind, own in (csc if isinstance(csc, dict) else {"": csc}).items():
            hops.setdefault(kind, []).append(edge_index(own))
    return {kind: torch.unique(torch.cat(parts, dim=1), dim=1) for kind, parts in hops.items()}
