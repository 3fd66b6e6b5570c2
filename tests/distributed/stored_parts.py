"""Mini-batches of a graph, from a partition in files or from the whole graph."""

from typing import Any

from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, open_part
from tests.digests import digest


def digests(root: str) -> list[str]:
    """Return digests of the mini-batches that this rank makes from its part."""
    part = open_part(root, distributed.get_rank())
    found = digests_of(PartitionedGraph(part.graph), part.partitioned_features())
    distributed.barrier()
    return found


def digests_of(graph: gf.SamplingGraph, features: gf.FeatureStore) -> list[str]:
    """Return digests of an epoch."""
    sizes = graph.num_nodes
    items: Any = gf.ItemSet(sizes["user"] if isinstance(sizes, dict) else sizes, names="seeds")
    if isinstance(sizes, dict):
        items = gf.HeteroItemSet({"user": items})
    pipe = gf.ItemSampler(items, batch_size=16, shuffle=True).sample_neighbor(graph, fanouts=[3, 4])
    names: Any = {"user": ["feat"]} if isinstance(sizes, dict) else ["feat"]
    with gf.DataLoader(pipe.fetch_feature(features, names), 0, seed=1) as loader:
        return [digest(batch) for batch in loader]
