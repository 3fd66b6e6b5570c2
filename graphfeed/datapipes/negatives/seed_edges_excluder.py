"""Remove the edges that are to be predicted from the subgraphs sampled around them."""

import copy
from collections.abc import Mapping
from typing import Any

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.sources.seeds import given_seeds
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import CompletedFuture
from graphfeed.ops.arguments import brief, checked
from graphfeed.storage import add_reverse_edges
from graphfeed.storage.graph import ByType, exclude_from_each


@checked
def exclude_seed_edges(
    minibatch: MiniBatch,
    include_reverse_edges: bool = False,
    reverse_etypes_mapping: Mapping[str, str] | None = None,
    async_op: bool = False,
) -> MiniBatch:
    """Return the mini-batch without the sampled edges that join the two ends of one of its seeds.

    They are removed from every hop, parallel edges too. Row and column ids stay, and so do the input nodes. Labels are
    ignored: a negative that happens to be an edge is removed as well, since otherwise an edge between two ends would
    give away that they are a negative.

    Args:
        minibatch: A mini-batch of edge seeds, shape (N, 2), with subgraphs and without edge features; is not changed.
        include_reverse_edges: Whether edges from the second end to the first are removed too.
        reverse_etypes_mapping: For edges by type: the reverse of each edge type whose reverse is removed too.
        async_op: Whether `sampled_subgraphs` holds futures whose `wait()` returns the subgraph, computed at once.

    Raises:
        ValueError: No subgraphs, edge features, seeds that are not pairs, or typed seeds with `include_reverse_edges`
            and no mapping.

    Example:
        >>> import torch, graphfeed as gf
        >>> graph = gf.from_coo(([1, 2, 0], [0, 0, 1]), num_nodes=3)
        >>> batch = MiniBatch(seeds=torch.tensor([[1, 0]]), sampled_subgraphs=[graph.in_subgraph(torch.tensor([0, 1]))])
        >>> exclude_seed_edges(batch, include_reverse_edges=True).sampled_subgraphs[0].sampled_csc.indices
        tensor([2])
    """
    if minibatch.sampled_subgraphs is None:
        raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before exclude_seed_edges")
    if minibatch.edge_features is not None:
        raise ValueError("the mini-batch has edge_features already, a row an edge; put fetch_feature after")
    edges = given_seeds(minibatch)
    check_pairs(edges)
    if include_reverse_edges:
        if isinstance(edges, dict) and reverse_etypes_mapping is None:
            raise ValueError(
                f"include_reverse_edges needs reverse_etypes_mapping, as the seeds have types {list(edges)}; "
                "give the reverse of each"
            )
        edges = add_reverse_edges(edges, reverse_etypes_mapping)
    result = copy.copy(minibatch)
    layers: list[Any] = exclude_from_each(minibatch.sampled_subgraphs, edges)
    result.sampled_subgraphs = list(map(CompletedFuture, layers)) if async_op else layers
    return result


def check_pairs(seeds: ByType) -> None:
    for name, part in seeds.items() if isinstance(seeds, dict) else [("", seeds)]:
        if part.dim() != 2 or part.shape[1] != 2:
            of_type = f" of type {name!r}" if name else ""
            raise ValueError(f"seeds{of_type} must be edges, shape (N, 2), to be excluded, but have {list(part.shape)}")


class SeedEdgesExcluder(Transform, name="exclude_seed_edges"):
    """Removes sampled edges that join the two ends of a seed, so that a model can't read what it is to predict.

    It calls `exclude_seed_edges` for each mini-batch. It comes after the sampler and before `fetch_feature`.

    Example:
        >>> import torch, graphfeed as gf
        >>> graph = gf.from_coo(([1, 2, 0], [0, 0, 1]), num_nodes=3)
        >>> pipe = gf.ItemSampler(gf.ItemSet(torch.tensor([[1, 0]]), names="seeds"), batch_size=1)
        >>> pipe = pipe.sample_neighbor(graph, fanouts=[-1]).exclude_seed_edges(include_reverse_edges=True)
        >>> next(iter(pipe)).edge_ids(0)
        tensor([1])
    """

    include_reverse_edges: bool = False
    """Whether edges from the second end to the first are removed too."""
    reverse_etypes_mapping: Mapping[str, str] | None = None
    """For edges by type: the reverse of each edge type whose reverse is removed too."""
    asynchronous: bool = False
    """Has no effect: the loader's workers overlap mini-batches already."""

    same_size = True  # few edges are removed

    def __post_init__(self) -> None:
        super().__post_init__()
        mapping: object = self.reverse_etypes_mapping
        if mapping is not None and not isinstance(mapping, Mapping):
            raise TypeError(f"reverse_etypes_mapping must be a dict of edge types, but is {brief(mapping)}")

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        return exclude_seed_edges(minibatch, self.include_reverse_edges, self.reverse_etypes_mapping)
