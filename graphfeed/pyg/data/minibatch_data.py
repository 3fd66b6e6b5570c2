"""Mini-batches as PyG's data objects."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch, spread
from graphfeed.ops.arguments import brief
from graphfeed.ops.structure import join_columns, mark_first
from graphfeed.pyg.data.data_features import as_given, join_frames
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage.graph import columns_of


def make_data(minibatch: MiniBatch, by_hop: bool = False) -> Any:
    """Return a mini-batch as a PyG `Data`, or `HeteroData` if the graph has types; see `MiniBatch.to_pyg_data`."""
    pyg = import_pyg("torch_geometric.data", "to_pyg_data()")
    if not is_typed(minibatch):
        data = pyg.Data()
        parts = (*edge_values(minibatch, None, by_hop), *node_values(minibatch, None))
        return put(data, None, *parts, seed_values(minibatch, None))
    data = pyg.HeteroData()
    for name in type_names(minibatch):
        edge_type = tuple(name.split(":")) if ":" in name else None
        own = edge_values(minibatch, name, by_hop) if edge_type else node_values(minibatch, name)
        put(data[edge_type or name], name, *own, seed_values(minibatch, name))
    return data


def put(store: Any, owner: str | None, *parts: Mapping[str, Any]) -> Any:
    """Set values, without those that are None, in one of PyG's stores, and return it."""
    names = set()
    for name, value in ((name, value) for part in parts for name, value in part.items() if value is not None):
        if name in names:
            raise ValueError(
                f"{name!r}{f' of {brief(owner)}' if owner else ''} would be there twice in PyG's data: a feature and "
                "something else have that name; give the feature another one, or leave out one of the two"
            )
        names.add(name)
        store[name] = value
    return store


def is_typed(minibatch: MiniBatch) -> bool:
    if minibatch.sampled_subgraphs:
        return isinstance(minibatch.sampled_subgraphs[0].sampled_csc, dict)
    fields = (minibatch.input_nodes, minibatch.seeds, minibatch.labels)
    # Features by type have pairs as keys.
    return any(isinstance(value, (dict, tuple)) for value in (*fields, *(minibatch.node_features or ())))


def type_names(minibatch: MiniBatch) -> list[str]:
    names = [node_type for node_type, _ in minibatch.node_features or {}]
    hops = [hop.sampled_csc for hop in minibatch.sampled_subgraphs or ()]
    for values in (*hops, minibatch.input_nodes, minibatch.seeds, minibatch.labels):
        names += values if isinstance(values, dict) else []
    return list(dict.fromkeys(names))


def pick(values: Any, name: Any) -> Any:
    return values.get(name) if isinstance(values, dict) else values


def as_in_data(
    minibatch: MiniBatch, domain: str, owner: str | None, features: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return features in the shape and under the names that PyG's data have."""
    dims = minibatch.feature_dims or {}
    shaped = {name: as_given(rows, dims.get((domain, owner, name), 0)) for name, rows in features.items()}
    # A feature that is alone gets PyG's name, unless it is what PyG calls labels.
    if len(shaped) == 1 and "y" not in shaped:
        return {"x" if domain == "node" else "edge_attr": next(iter(shaped.values()))}
    return shaped


def features_of(features: Mapping[Any, torch.Tensor], owner: str | None) -> dict[str, torch.Tensor]:
    keys = {key if isinstance(key, tuple) else (owner, key): rows for key, rows in features.items()}
    return {name: rows for (of_type, name), rows in keys.items() if of_type == owner}


def node_values(minibatch: MiniBatch, name: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the features of the nodes of a type, and what else PyG keeps of them."""
    seeds = pick(minibatch.seeds, name)
    values = {"n_id": pick(minibatch.input_nodes, name)}
    if not minibatch.sampled_subgraphs and minibatch.input_nodes is None and seeds is not None and seeds.dim() == 1:
        # What was not sampled has the seeds alone.
        values["n_id"] = seeds
    if name is not None and values["n_id"] is not None:
        values["num_nodes"] = len(values["n_id"])
    hops = minibatch.sampled_subgraphs or []
    rows = [hop.original_row_node_ids for hop in reversed(hops)]
    columns = hops[-1].original_column_node_ids if hops else None
    if columns is not None and all(own is not None for own in rows):
        # The rows of a hop begin with those of the one before, so what it adds is the difference.
        sizes = [0, *(len(ids) if (ids := pick(own, name)) is not None else 0 for own in (columns, *rows))]
        values["num_sampled_nodes"] = [outer - inner for inner, outer in pairwise(sizes)]
    return as_in_data(minibatch, "node", name, features_of(minibatch.node_features or {}, name)), values


def seed_values(minibatch: MiniBatch, name: str | None) -> dict[str, Any]:
    """Return what PyG keeps of the seeds of a type, which are nodes, or edges with a `compacted_seeds`."""
    values = {"input_id": pick(getattr(minibatch, "input_id", None), name)}
    labels, seeds = pick(minibatch.labels, name), pick(minibatch.seeds, name)
    if minibatch.compacted_seeds is None:
        batch_size = None if seeds is None else len(seeds)
        return values | {"y": labels, "batch_size": batch_size, "seed_time": pick(minibatch.timestamp, name)}
    pairs, times = pick(minibatch.compacted_seeds, name), pick(minibatch.timestamp, name)
    # PyG's layout of edges: a row of sources and one of destinations.
    index = None if pairs is None else pairs.to(torch.int64).T.contiguous()
    if pairs is not None and times is not None:
        times = spread("compacted_seeds", pairs, times, pick(minibatch.indexes, name))
    return values | {"edge_label_index": index, "edge_label": labels, "edge_label_time": times}


def edge_values(
    minibatch: MiniBatch, edge_type: str | None, by_hop: bool
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the features of the edges of a type, and what else PyG keeps of them."""
    hops = [hop for hop in reversed(minibatch.sampled_subgraphs or []) if pick(hop.sampled_csc, edge_type) is not None]
    if not hops:
        return {}, {}
    cscs = [pick(hop.sampled_csc, edge_type) for hop in hops]
    indptrs, rows = [csc.indptr for csc in cscs], [csc.indices for csc in cscs]
    counts = list(map(len, rows))
    ids = [pick(hop.original_edge_ids, edge_type) for hop in hops]
    known = not any(part is None for part in ids)
    # Where ids are unknown, edges of a column are the same if they come from the same node.
    numbers = ids if known else rows
    marks = mark_first(indptrs, numbers)
    if rows[0].is_cpu:
        joined = join_columns(indptrs, rows, numbers, marks)
        index, edges = joined[:2], joined[2]
    else:
        index = torch.stack([join(rows, marks).to(torch.int64), join(list(map(columns_of, cscs)), marks)])
        edges = join(numbers, marks).to(torch.int64)
    features = edge_features(minibatch, edge_type, counts, marks)
    values = {"edge_index": index, "e_id": edges if known else None}
    if by_hop:
        # How many edges of each hop an earlier one has.
        left_out = [len(part) and len(part) - int(part.count_nonzero()) for part in marks]
        features = as_in_data(minibatch, "edge", edge_type, features)
        return features, {**values, "num_sampled_edges": [a - b for a, b in zip(counts, left_out, strict=True)]}
    # By source and destination, as GraphBolt has them.
    order = torch.sort(index[0] * max(map(len, indptrs)) + index[1], stable=True)[1]
    values = {"edge_index": index[:, order], "e_id": edges[order] if known else None}
    sorted_rows = {name: own[order] for name, own in features.items()}
    return as_in_data(minibatch, "edge", edge_type, sorted_rows), values


def join(parts: Sequence[Any], marks: Sequence[torch.Tensor]) -> Any:
    """Return the values of all edges, hop after hop, but of the first ones of each hop only those that are marked."""
    own = zip(parts, marks, strict=True)
    # Only edges of the columns that an earlier hop had may be there already, and these come first.
    pieces = [piece for part, kept in own for piece in (part[: len(kept)][kept], part[len(kept) :])]
    return torch.cat(pieces) if isinstance(pieces[0], torch.Tensor) else join_frames(pieces)


def edge_features(
    minibatch: MiniBatch, edge_type: str | None, counts: list[int], marks: list[torch.Tensor]
) -> dict[str, Any]:
    """Return the features of the edges of a type that are kept; `counts` are those of all edges of each hop."""
    both = zip(minibatch.edge_features or [], minibatch.sampled_subgraphs or [], strict=False)
    layers = [features_of(layer, edge_type) for layer, hop in both if pick(hop.sampled_csc, edge_type) is not None]
    features = {}
    for name in dict.fromkeys(name for layer in layers for name in layer):
        # A hop may have no edges of the type, and then no rows.
        empty = next(layer[name] for layer in layers if name in layer)[:0]
        parts = [layer.get(name, empty) for layer in reversed(layers)]
        if list(map(len, parts)) != counts:
            raise ValueError(
                f"edge feature {name!r} has {sum(map(len, parts))} rows, but sampled_subgraphs have {sum(counts)} "
                "edges; put fetch_feature behind the stages that change the edges"
            )
        features[name] = join(parts, marks)
    return features
