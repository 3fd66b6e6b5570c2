"""Mini-batches as PyG's data objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage.graph import SampledSubgraph, edge_index


def make_data(minibatch: MiniBatch, by_hop: bool = False) -> Any:
    """Return a mini-batch as a PyG `Data`, or `HeteroData` if the graph has types; see `MiniBatch.to_pyg_data`."""
    pyg = import_pyg("torch_geometric.data", "to_pyg_data()")
    if not is_typed(minibatch):
        data = pyg.Data()
        values = edge_values(minibatch, None, by_hop) | node_values(minibatch, None)
        return put(data, values | seed_values(minibatch, None))
    data = pyg.HeteroData()
    for kind in node_types(minibatch):
        put(data[kind], node_values(minibatch, kind) | seed_values(minibatch, kind))
    for kind in edge_types(minibatch):
        put(data[tuple(kind.split(":"))], edge_values(minibatch, kind, by_hop) | seed_values(minibatch, kind))
    return data


def put(store: Any, values: Mapping[str, Any]) -> Any:
    """Set values of one of PyG's stores, which leaves out those that are None, and return it."""
    for name, value in values.items():
        store[name] = value
    return store


def is_typed(minibatch: MiniBatch) -> bool:
    """Tell whether a mini-batch is of a graph with types."""
    if minibatch.sampled_subgraphs:
        return isinstance(minibatch.sampled_subgraphs[0].sampled_csc, dict)
    fields = (minibatch.input_nodes, minibatch.seeds, minibatch.labels)
    return any(isinstance(value, dict) for value in fields) or any(map(is_key_of_type, minibatch.node_features or ()))


def is_key_of_type(name: Any) -> bool:
    """Tell whether a feature's name is (type, name)."""
    return isinstance(name, tuple)


def node_types(minibatch: MiniBatch) -> list[str]:
    """Return the node types that a mini-batch has something of."""
    kinds = [kind for kind, _ in minibatch.node_features or {}]
    for values in (minibatch.input_nodes, minibatch.seeds, minibatch.labels):
        kinds += [kind for kind in values if ":" not in kind] if isinstance(values, dict) else []
    return list(dict.fromkeys(kinds))


def edge_types(minibatch: MiniBatch) -> list[str]:
    """Return the edge types that a mini-batch has something of."""
    kinds: list[str] = []
    for values in (*(hop.sampled_csc for hop in minibatch.sampled_subgraphs or ()), minibatch.seeds, minibatch.labels):
        kinds += [kind for kind in values if ":" in kind] if isinstance(values, dict) else []
    return list(dict.fromkeys(kinds))


def pick(values: Any, kind: Any) -> Any:
    """Return what belongs to a type."""
    return values.get(kind) if isinstance(values, dict) else values


def features_of(features: Mapping[Any, torch.Tensor], kind: str | None) -> dict[str, torch.Tensor]:
    """Return the features of a type by name."""
    own = [(name if is_key_of_type(name) else (kind, name), rows) for name, rows in features.items()]
    return {name: rows for (owner, name), rows in own if owner == kind}


def rename_single(features: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """Return features; one that is alone gets another name."""
    return {name: next(iter(features.values()))} if len(features) == 1 else features


def node_values(minibatch: MiniBatch, kind: str | None) -> dict[str, Any]:
    """Return what PyG keeps of the nodes of a type."""
    values: dict[str, Any] = rename_single(features_of(minibatch.node_features or {}, kind), "x")
    seeds = pick(minibatch.seeds, kind)
    values["n_id"] = pick(minibatch.input_nodes, kind)
    if not minibatch.sampled_subgraphs and minibatch.input_nodes is None and seeds is not None and seeds.dim() == 1:
        values["n_id"] = seeds
    if kind is not None and values["n_id"] is not None:
        values["num_nodes"] = len(values["n_id"])
    hops = minibatch.sampled_subgraphs or []
    rows = [hop.original_row_node_ids for hop in reversed(hops)]
    columns = hops[-1].original_column_node_ids if hops else None
    if columns is not None and None not in rows:
        sizes = [0, *(len(ids) if (ids := pick(own, kind)) is not None else 0 for own in (columns, *rows))]
        values["num_sampled_nodes"] = [outer - inner for inner, outer in pairwise(sizes)]
    return values


def seed_values(minibatch: MiniBatch, kind: str | None) -> dict[str, Any]:
    """Return what PyG keeps of the seeds of a type, which are nodes, or edges with a `compacted_seeds`."""
    values = {"input_id": pick(getattr(minibatch, "input_id", None), kind)}
    labels, seeds = pick(minibatch.labels, kind), pick(minibatch.seeds, kind)
    if minibatch.compacted_seeds is None:
        batch_size = None if seeds is None else len(seeds)
        return values | {"y": labels, "batch_size": batch_size, "seed_time": pick(minibatch.timestamp, kind)}
    pairs = pick(minibatch.compacted_seeds, kind)
    # PyG's layout of edges: a row of sources and one of destinations.
    index = None if pairs is None else pairs.to(torch.int64).T.contiguous()
    return values | {
        "edge_label_index": index,
        "edge_label": labels,
        "edge_label_time": pick(minibatch.timestamp, kind),
    }


@dataclass(frozen=True)
class EdgeUnion:
    """The edges of all hops, each once."""

    index: torch.Tensor
    """Sources and destinations, int64, shape (2, E)."""
    positions: torch.Tensor
    """Where they are among the edges of all hops, the innermost hop first."""
    counts: list[int] | None = None
    """How many edges each hop adds, if the edges are in the order of the hops."""


def edge_values(minibatch: MiniBatch, kind: str | None, by_hop: bool) -> dict[str, Any]:
    """Return what PyG keeps of the edges of a type."""
    hops = [hop for hop in reversed(minibatch.sampled_subgraphs or []) if pick(hop.sampled_csc, kind) is not None]
    if not hops:
        return {"edge_index": None}
    parts = [pick(hop.original_edge_ids, kind) for hop in hops]
    ids = None if any(part is None for part in parts) else torch.cat(parts)
    union = unite(hops, kind, ids if by_hop else None, by_hop)
    values = {"edge_index": union.index, "num_sampled_edges": union.counts}
    if ids is not None:
        values["e_id"] = ids[union.positions].to(torch.int64)
    layers = [features_of(layer, kind) for layer in reversed(minibatch.edge_features or [])]
    features = {}
    count = sum(len(pick(hop.sampled_csc, kind).indices) for hop in hops)
    for name in dict.fromkeys(name for layer in layers for name in layer):
        rows = torch.cat([layer[name] for layer in layers if name in layer])
        if len(rows) != count:
            raise ValueError(
                f"edge feature {name!r} has {len(rows)} rows, but sampled_subgraphs have {count} edges; "
                "put fetch_feature behind the stages that change the edges"
            )
        features[name] = rows[union.positions]
    return values | rename_single(features, "edge_attr")


def unite(hops: list[SampledSubgraph], kind: str | None, ids: torch.Tensor | None, by_hop: bool) -> EdgeUnion:
    """Return the edges of some hops, each once.

    The rows of a hop begin with the rows of the next inner hop, so a position means the same node in every hop. Edges
    are the same if their ids are, or if they join the same nodes where no ids are given.

    Args:
        hops: The innermost first.
        kind: The edge type.
        ids: The ids of all edges, in the order of the hops.
        by_hop: Whether to keep that order. Otherwise the edges are sorted by source and destination.
    """
    parts = [edge_index(pick(hop.sampled_csc, kind)) for hop in hops]
    index = torch.cat(parts, dim=1)
    # One number per edge: sorting those is many times as fast as `torch.unique(index, dim=1)`. It can't overflow.
    columns = max(len(pick(hop.sampled_csc, kind).indptr) for hop in hops)
    names = index[0] * columns + index[1] if ids is None else ids
    names, positions = torch.sort(names, stable=True)
    is_first = torch.ones_like(names, dtype=torch.bool)
    torch.ne(names[1:], names[:-1], out=is_first[1:])
    positions = positions.masked_select(is_first)
    if not by_hop:
        names = names.masked_select(is_first)
        sources = names // columns
        return EdgeUnion(torch.stack([sources, names - sources * columns]), positions)
    is_kept = torch.zeros_like(is_first)
    is_kept[positions] = True
    counts = [int(own.sum()) for own in torch.split(is_kept, [part.shape[1] for part in parts])]
    positions = is_kept.nonzero().squeeze(1)
    return EdgeUnion(index[:, positions], positions, counts)
