"""Mini-batches as PyG's data objects."""

from collections.abc import Mapping
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
    for name in type_names(minibatch):
        if ":" in name:
            put(data[tuple(name.split(":"))], edge_values(minibatch, name, by_hop) | seed_values(minibatch, name))
        else:
            put(data[name], node_values(minibatch, name) | seed_values(minibatch, name))
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
    return any(isinstance(value, (dict, tuple)) for value in (*fields, *(minibatch.node_features or ())))


def type_names(minibatch: MiniBatch) -> list[str]:
    """Return the node types and edge types that a mini-batch has something of; edge types have colons."""
    names = [node_type for node_type, _ in minibatch.node_features or {}]
    hops = [hop.sampled_csc for hop in minibatch.sampled_subgraphs or ()]
    for values in (*hops, minibatch.input_nodes, minibatch.seeds, minibatch.labels):
        names += values if isinstance(values, dict) else []
    return list(dict.fromkeys(names))


def pick(values: Any, name: Any) -> Any:
    """Return what belongs to a type."""
    return values.get(name) if isinstance(values, dict) else values


def features_of(features: Mapping[Any, torch.Tensor], owner: str | None) -> dict[str, torch.Tensor]:
    """Return the features of a type by name; without types, all."""
    keys = {key if isinstance(key, tuple) else (owner, key): rows for key, rows in features.items()}
    return {name: rows for (of_type, name), rows in keys.items() if of_type == owner}


def rename_single(features: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """Return features; one that is alone gets another name."""
    return {name: next(iter(features.values()))} if len(features) == 1 else features


def node_values(minibatch: MiniBatch, name: str | None) -> dict[str, Any]:
    """Return what PyG keeps of the nodes of a type."""
    values: dict[str, Any] = rename_single(features_of(minibatch.node_features or {}, name), "x")
    seeds = pick(minibatch.seeds, name)
    values["n_id"] = pick(minibatch.input_nodes, name)
    if not minibatch.sampled_subgraphs and minibatch.input_nodes is None and seeds is not None and seeds.dim() == 1:
        values["n_id"] = seeds
    if name is not None and values["n_id"] is not None:
        values["num_nodes"] = len(values["n_id"])
    hops = minibatch.sampled_subgraphs or []
    rows = [hop.original_row_node_ids for hop in reversed(hops)]
    columns = hops[-1].original_column_node_ids if hops else None
    if columns is not None and None not in rows:
        sizes = [0, *(len(ids) if (ids := pick(own, name)) is not None else 0 for own in (columns, *rows))]
        values["num_sampled_nodes"] = [outer - inner for inner, outer in pairwise(sizes)]
    return values


def seed_values(minibatch: MiniBatch, name: str | None) -> dict[str, Any]:
    """Return what PyG keeps of the seeds of a type, which are nodes, or edges with a `compacted_seeds`."""
    values = {"input_id": pick(getattr(minibatch, "input_id", None), name)}
    labels, seeds = pick(minibatch.labels, name), pick(minibatch.seeds, name)
    if minibatch.compacted_seeds is None:
        batch_size = None if seeds is None else len(seeds)
        return values | {"y": labels, "batch_size": batch_size, "seed_time": pick(minibatch.timestamp, name)}
    pairs = pick(minibatch.compacted_seeds, name)
    # PyG's layout of edges: a row of sources and one of destinations.
    index = None if pairs is None else pairs.to(torch.int64).T.contiguous()
    return values | {
        "edge_label_index": index,
        "edge_label": labels,
        "edge_label_time": pick(minibatch.timestamp, name),
    }


def edge_values(minibatch: MiniBatch, edge_type: str | None, by_hop: bool) -> dict[str, Any]:
    """Return what PyG keeps of the edges of a type."""
    hops = [hop for hop in reversed(minibatch.sampled_subgraphs or []) if pick(hop.sampled_csc, edge_type) is not None]
    if not hops:
        return {"edge_index": None}
    parts = [pick(hop.original_edge_ids, edge_type) for hop in hops]
    ids = None if any(part is None for part in parts) else torch.cat(parts)
    index, positions, counts = unite(hops, edge_type, ids if by_hop else None, by_hop)
    values: dict[str, Any] = {"edge_index": index, "num_sampled_edges": counts}
    if ids is not None:
        values["e_id"] = ids[positions].to(torch.int64)
    layers = [features_of(layer, edge_type) for layer in reversed(minibatch.edge_features or [])]
    features = {}
    count = sum(len(pick(hop.sampled_csc, edge_type).indices) for hop in hops)
    for name in dict.fromkeys(name for layer in layers for name in layer):
        rows = torch.cat([layer[name] for layer in layers if name in layer])
        if len(rows) != count:
            raise ValueError(
                f"edge feature {name!r} has {len(rows)} rows, but sampled_subgraphs have {count} edges; "
                "put fetch_feature behind the stages that change the edges"
            )
        features[name] = rows[positions]
    return values | rename_single(features, "edge_attr")


def unite(
    hops: list[SampledSubgraph], edge_type: str | None, ids: torch.Tensor | None, by_hop: bool
) -> tuple[torch.Tensor, torch.Tensor, list[int] | None]:
    """Return the edges of some hops, each once.

    The rows of a hop begin with the rows of the next inner hop, so a position means the same node in every hop. Edges
    are the same if their ids are, or if they join the same nodes where no ids are given.

    Args:
        hops: The innermost first.
        edge_type: The edge type.
        ids: The ids of all edges, in the order of the hops.
        by_hop: Whether to keep that order. Otherwise the edges are sorted by source and destination.

    Returns:
        Sources and destinations, int64, shape (2, E); where these edges are among those of all hops; and how many each
        hop adds, in that order.
    """
    parts = [edge_index(pick(hop.sampled_csc, edge_type)) for hop in hops]
    index = torch.cat(parts, dim=1)
    # One number per edge: sorting those is many times as fast as `torch.unique(index, dim=1)`. It can't overflow.
    columns = max(len(pick(hop.sampled_csc, edge_type).indptr) for hop in hops)
    names = index[0] * columns + index[1] if ids is None else ids
    names, positions = torch.sort(names, stable=True)
    is_first = torch.ones_like(names, dtype=torch.bool)
    torch.ne(names[1:], names[:-1], out=is_first[1:])
    positions = positions.masked_select(is_first)
    if not by_hop:
        names = names.masked_select(is_first)
        sources = names // columns
        return torch.stack([sources, names - sources * columns]), positions, None
    is_kept = torch.zeros_like(is_first)
    is_kept[positions] = True
    counts = [int(own.sum()) for own in torch.split(is_kept, [part.shape[1] for part in parts])]
    positions = is_kept.nonzero().squeeze(1)
    return index[:, positions], positions, counts
