"""Remove the edges that are to be predicted from the subgraphs sampled around them."""

import copy
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.pipeline.traverse import graphs_before, seed_types_before
from graphfeed.datapipes.sources.seeds import given_seeds
from graphfeed.datapipes.transform import Transform
from graphfeed.ops import CompletedFuture
from graphfeed.ops.arguments import brief, check_known, checked
from graphfeed.storage.graph import (
    EdgeType,
    exclude_from_each,
    from_type_dict,
    seed_type_str_to_ntypes,
    to_type_dict,
    type_name,
)

Reverses: TypeAlias = Mapping[str, str | None]
MAPPING = "reverse_etypes_mapping"


@checked
def exclude_seed_edges(
    minibatch: MiniBatch,
    include_reverse_edges: bool = False,
    reverse_etypes_mapping: Reverses | None = None,
    async_op: bool = False,
    *,
    by_id: bool = False,
) -> MiniBatch:
    """Return the mini-batch without the sampled edges that join the two endpoints of one of its seeds.

    They are removed from every hop, including parallel edges. Row ids, column ids and input nodes are kept. Labels are
    ignored: a negative that happens to be an edge is removed as well, because otherwise an edge between two endpoints
    would reveal that they are a negative.

    Args:
        minibatch: A mini-batch of edge seeds, shape (N, 2), with subgraphs and without edge features; not modified.
        include_reverse_edges: Whether to remove edges from destination to source as well.
        reverse_etypes_mapping: For edges by type: the reverse of each edge type among the seeds, or None if it has no
            reverse. An entry applies in both directions.
        async_op: Whether `sampled_subgraphs` has futures whose `wait()` returns the subgraph; they are already done.
        by_id: Whether to remove only the edges in `seed_edge_ids`, so that other edges between the same endpoints stay,
            such as earlier purchases. Reverse edges have other ids: all of them between the endpoints are removed.

    Raises:
        KeyError: The mapping names an edge type that neither the seeds nor the subgraphs have.
        ValueError: No subgraphs, fetched edge features, seeds that are not pairs, seeds of a type without a reverse, a
            mapping without `include_reverse_edges`, or `by_id` without ids.

    Example:
        >>> import torch, graphfeed as gf
        >>> graph = gf.from_coo(([1, 2, 0], [0, 0, 1]), num_nodes=3)
        >>> batch = MiniBatch(seeds=torch.tensor([[1, 0]]), sampled_subgraphs=[graph.in_subgraph(torch.tensor([0, 1]))])
        >>> exclude_seed_edges(batch, include_reverse_edges=True).sampled_subgraphs[0].sampled_csc.indices
        tensor([2])
    """
    check_mapping(reverse_etypes_mapping, include=include_reverse_edges)
    result = exclude(minibatch, reverse_etypes_mapping, include=include_reverse_edges, by_id=by_id)
    if async_op:
        result.sampled_subgraphs = list(map(CompletedFuture, result.sampled_subgraphs))
    return result


def check_mapping(mapping: object, *, include: bool) -> None:
    """Raise unless a mapping is None, or a dict while reverse edges are removed."""
    if mapping is None:
        return
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{MAPPING} must be a dict of edge types, but is {brief(mapping)}")
    if mapping and not include:
        raise ValueError(
            f"{MAPPING} is {brief(mapping)}, but include_reverse_edges is False, so no reverse edge would be removed; "
            "set include_reverse_edges=True, or leave out the mapping"
        )


def exclude(
    minibatch: MiniBatch, mapping: Reverses | None, *, include: bool, by_id: bool, known: Collection[Any] = ()
) -> MiniBatch:
    """Implement `exclude_seed_edges`; `known` has further edge types that the mapping may name."""
    subgraphs = minibatch.sampled_subgraphs
    if subgraphs is None:
        raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before exclude_seed_edges")
    if minibatch.edge_features is not None:
        raise ValueError("the mini-batch already has edge_features, a row per edge; put fetch_feature after")
    seeds, ids = given_seeds(minibatch), minibatch.seed_edge_ids if by_id else None
    for name, part in to_type_dict(seeds).items():
        if part.dim() != 2 or part.shape[1] != 2:
            of_type = f" of type {name!r}" if name else ""
            raise ValueError(f"seeds{of_type} must be edges, shape (N, 2), to be excluded, but have {list(part.shape)}")
    if by_id and (ids is None or not to_type_dict(seeds).keys() <= to_type_dict(ids).keys()):
        raise ValueError(
            "by_id needs the ids of the seeds' edges, but the mini-batch has no seed_edge_ids of each type; give the "
            "item set a member of that name"
        )
    pairs = {kind: part[:0] if by_id else part for kind, part in to_type_dict(seeds).items()}
    if include:
        sampled = {kind for layer in subgraphs for kind in to_type_dict(layer.sampled_csc)}
        for kind, reverse in reverses_of(to_type_dict(seeds), mapping, {*pairs, *sampled, *known} - {None}):
            swapped = to_type_dict(seeds)[kind].flip(1)
            pairs[reverse] = torch.cat([pairs[reverse], swapped]) if reverse in pairs else swapped
    result = copy.copy(minibatch)
    result.sampled_subgraphs = exclude_from_each(subgraphs, from_type_dict(pairs), ids)
    return result


def reverses_of(
    seed_types: Collection[Any], mapping: Reverses | None, known: Collection[Any]
) -> list[tuple[EdgeType, EdgeType]]:
    """Return pairs of an edge type of the seeds and its reverse; [(None, None)] for seeds without types.

    Raises:
        KeyError: A reverse is unknown, or a seed type has no reverse and the mapping names an unknown type.
        ValueError: The mapping has no reverse of a seed type, or one between other node types.
    """
    if None in seed_types:
        if mapping:
            raise TypeError(f"{MAPPING} is for edges by type, but the seeds have no types; leave it out")
        return [(None, None)]
    if mapping is None:
        raise ValueError(
            f"include_reverse_edges needs {MAPPING}, as the seeds have types {list(seed_types)}; "
            "give the reverse of each"
        )
    pairs, found = reverse_names(mapping), list[tuple[EdgeType, EdgeType]]()
    for kind in seed_types:
        own = [(reverse if name == kind else name) for name, reverse in pairs if kind in (name, reverse)]
        if not own:
            check_known(MAPPING, [name for pair in pairs for name in pair if name is not None], known, "edge type")
            raise ValueError(
                f"{MAPPING} has no reverse of the edge type {kind!r} of the seeds; add it, or {{{kind!r}: None}} if "
                "there is none"
            )
        found += [(kind, name) for name in dict.fromkeys(own) if name is not None]
    check_known(MAPPING, [str(name) for _, name in found], known, "edge type")
    for name, reverse in found:
        ends = [seed_type_str_to_ntypes(str(kind), 2) for kind in (name, reverse)]
        if ends[0] != ends[1][::-1]:
            raise ValueError(
                f"{MAPPING} has {brief(reverse)} as the reverse of {brief(name)}, but it does not lead from "
                f"{ends[0][1]!r} to {ends[0][0]!r}"
            )
    return found


def reverse_names(mapping: Mapping[Any, Any]) -> list[tuple[str, EdgeType]]:
    return [(type_name(name), type_name(reverse)) for name, reverse in mapping.items()]


class SeedEdgesExcluder(Transform, name="exclude_seed_edges", ignored=("asynchronous",), keeps_size=True, seeded=False):
    """Removes sampled edges that join the two endpoints of a seed, so that a model can't see what it is to predict.

    It calls `exclude_seed_edges` for each mini-batch. Put it after the sampler and before `fetch_feature`. The names in
    the mapping are checked against the edge types of the graph and of the items when the stage is created.

    Args:
        datapipe: Source of the mini-batches.
        include_reverse_edges: Whether to remove edges from destination to source as well.
        reverse_etypes_mapping: For edges by type: the reverse of each edge type among the seeds, or None if it has no
            reverse. An entry applies in both directions.
        by_id: Whether to remove only the edges in `seed_edge_ids`, so that other edges between the same endpoints stay.

    Example:
        >>> import torch, graphfeed as gf
        >>> graph = gf.from_coo(([1, 2, 0], [0, 0, 1]), num_nodes=3)
        >>> pipe = gf.ItemSampler(gf.ItemSet(torch.tensor([[1, 0]]), names="seeds"), batch_size=1)
        >>> pipe = pipe.sample_neighbor(graph, fanouts=[-1]).exclude_seed_edges(include_reverse_edges=True)
        >>> next(iter(pipe)).edge_ids(0)
        tensor([1])
    """

    include_reverse_edges: bool = False
    reverse_etypes_mapping: Reverses | None = None
    _: KW_ONLY
    by_id: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        mapping, graphs, seed_types = self.reverse_etypes_mapping, graphs_before(self), seed_types_before(self)
        check_mapping(mapping, include=self.include_reverse_edges)
        known = {kind for graph in graphs for kind in graph.edge_types} | (seed_types or set())
        self.__dict__["known"] = known
        if not graphs or not self.include_reverse_edges:
            return
        # If the seed types are unknown, a key of the mapping may be one of them, so only the reverses are checked.
        named = reverse_names(mapping or {})
        names = [name for pair in named for name in pair] if seed_types is not None else [name for _, name in named]
        check_known(MAPPING, [name for name in names if name is not None], known, "edge type")
        if seed_edges := [kind for kind in sorted(seed_types or ()) if ":" in kind]:
            reverses_of(seed_edges, mapping, known)

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        return exclude(
            minibatch, self.reverse_etypes_mapping, include=self.include_reverse_edges, by_id=self.by_id,
            known=self.__dict__.get("known", ()),
        )  # fmt: skip
