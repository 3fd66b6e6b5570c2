"""Graphs shared by the tests of partitioning."""

import torch

import graphfeed as gf
from tests.kinds.pipelines import random_edges

COUNTS = {"user": 90, "item": 40, "shop": 0}


def plain(num_nodes: int = 100, num_edges: int = 700) -> gf.FusedCSCSamplingGraph:
    """Return a graph without types, whose attributes identify their nodes and edges."""
    return gf.from_coo(
        random_edges(num_nodes, num_nodes, num_edges, 0),
        num_nodes,
        node_attributes={"time": torch.arange(num_nodes) * 10},
        edge_attributes={
            "weight": torch.arange(num_edges) / 2,
            "vector": torch.arange(num_edges)[:, None] * torch.ones(2),
        },
    )


def typed() -> gf.FusedCSCSamplingGraph:
    """Return a graph with a node type without nodes, and an edge type without edges."""
    edges = {
        "user:likes:item": random_edges(90, 40, 300, 1),
        "item:liked_by:user": random_edges(40, 90, 300, 2),
        "user:knows:user": random_edges(90, 90, 200, 3),
        "shop:sells:item": torch.empty(2, 0, dtype=torch.int64),
    }
    return gf.from_coo(
        edges,
        COUNTS,
        node_attributes={"time": {kind: torch.arange(count) * 10 for kind, count in COUNTS.items()}},
        edge_attributes={"weight": {kind: torch.arange(ends.shape[1]) / 2 for kind, ends in edges.items()}},
    )


def communities(num_nodes: int, size: int, degree: int) -> gf.FusedCSCSamplingGraph:
    """Return a graph of node groups, spread over the ids, with nine of ten edges inside of groups."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, num_nodes, (num_nodes * degree,), generator=generator)
    near = ends // size * size + torch.randint(0, size, ends.shape, generator=generator)
    far = torch.randint(0, num_nodes, ends.shape, generator=generator)
    stays = torch.rand(ends.shape, generator=generator) < 0.9
    ids = torch.randperm(num_nodes, generator=generator)
    edges = torch.stack([ids[torch.where(stays, near, far)], ids[ends]])
    return gf.from_coo(torch.cat([edges, edges.flip(0)], dim=1), num_nodes)


FEATURES = {"x": (torch.bfloat16, (1,)), "y": (torch.float32, (8, 3))}


def sizes_of(graph: gf.SamplingGraph) -> dict[str | None, int]:
    """Return the number of nodes of each type."""
    sizes = graph.num_nodes
    return dict(sizes.items()) if isinstance(sizes, dict) else {None: sizes}


def codes_of(graph: gf.FusedCSCSamplingGraph) -> gf.BasicFeatureStore:
    """Return features that identify ids: two of each node type, two of an edge type, and one of the graph."""
    found: dict[tuple[str, str | None, str], gf.Feature] = {}
    for number, (kind, size) in enumerate(sizes_of(graph).items()):
        for name, (dtype, shape) in FEATURES.items():
            ids = torch.arange(size).view(-1, *[1] * len(shape)) + 100 * number
            found["node", kind, name] = gf.TorchBasedFeature(ids.expand(-1, *shape).to(dtype).contiguous())
    kind, count = ("user:likes:item", 300) if graph.node_type_to_id else (None, graph.total_num_edges)
    found["edge", kind, "e"] = gf.TorchBasedFeature(torch.arange(count)[:, None])
    found["edge", kind, "other"] = gf.TorchBasedFeature(torch.arange(count).view(-1, 1, 1) * torch.ones(1, 2, 3))
    found["graph", None, "mean"] = gf.TorchBasedFeature(torch.tensor([[1.5, 2.5]]))
    return gf.BasicFeatureStore(found)
