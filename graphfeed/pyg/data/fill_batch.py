"""Conversion of mini-batches to PyG's data objects."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch, spread_to_seeds
from graphfeed.ops.arguments import brief
from graphfeed.ops.structure import join_columns, mark_first
from graphfeed.pyg.data.features_of_data import as_given, join_frames
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.storage.graph import layer_columns


def fill_batch(minibatch: MiniBatch, by_hop: bool = False) -> Any:
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
    """Set the values that aren't None in one of PyG's stores, and return it."""
    names = set()
    for name, value in ((name, value) for part in parts for name, value in part.items() if value is not None):
        if name in names:
            raise ValueError(
                f"{name!r}{f' of {brief(owner)}' if owner else ''} would occur twice in PyG's data: a feature and "
                "another value have that name; rename the feature, or leave out one of the two"
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


def pick_columns(values: Any, name: Any) -> Any:
    return values.get(name) if isinstance(values, dict) else values


def as_in_data(
    minibatch: MiniBatch, domain: str, owner: str | None, features: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return features in the shape and under the names that PyG's data use."""
    dims = minibatch.feature_dims or {}
    shaped = {name: as_given(rows, dims.get((domain, owner, name), 0)) for name, rows in features.items()}
    # A single feature gets PyG's name, unless it is `y`, PyG's name for labels.
    if len(shaped) == 1 and "y" not in shaped:
        return {"x" if domain == "node" else "edge_attr": next(iter(shaped.values()))}
    return shaped


def batch_features(features: Mapping[Any, torch.Tensor], owner: str | None) -> dict[str, torch.Tensor]:
    keys = {key if isinstance(key, tuple) else (owner, key): rows for key, rows in features.items()}
    return {name: rows for (of_type, name), rows in keys.items() if of_type == owner}


def node_values(minibatch: MiniBatch, name: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the features of the nodes of a type, and PyG's other attributes of these nodes."""
    seeds = pick_columns(minibatch.seeds, name)
    values = {"n_id": pick_columns(minibatch.input_nodes, name)}
    if not minibatch.sampled_subgraphs and minibatch.input_nodes is None and seeds is not None and seeds.dim() == 1:
        # Without sampling, the mini-batch has only the seeds.
        values["n_id"] = seeds
    if name is not None and values["n_id"] is not None:
        values["num_nodes"] = len(values["n_id"])
    hops = minibatch.sampled_subgraphs or []
    rows = [hop.original_row_node_ids for hop in reversed(hops)]
    columns = hops[-1].original_column_node_ids if hops else None
    if columns is not None and all(own is not None for own in rows):
        # The rows of a hop begin with those of the previous one, so the hop adds the difference.
        sizes = [0, *(len(ids) if (ids := pick_columns(own, name)) is not None else 0 for own in (columns, *rows))]
        values["num_sampled_nodes"] = [outer - inner for inner, outer in pairwise(sizes)]
    return as_in_data(minibatch, "node", name, batch_features(minibatch.node_features or {}, name)), values


def seed_values(minibatch: MiniBatch, name: str | None) -> dict[str, Any]:
    """Return PyG's attributes of the seeds of a type: nodes, or edges if there are `compacted_seeds`."""
    values = {"input_id": pick_columns(getattr(minibatch, "input_id", None), name)}
    labels, seeds = pick_columns(minibatch.labels, name), pick_columns(minibatch.seeds, name)
    if minibatch.compacted_seeds is None:
        batch_size = None if seeds is None else len(seeds)
        return values | {"y": labels, "batch_size": batch_size, "seed_time": pick_columns(minibatch.timestamp, name)}
    pairs, times = pick_columns(minibatch.compacted_seeds, name), pick_columns(minibatch.timestamp, name)
    # PyG's layout of edges: a row of sources and one of destinations.
    index = None if pairs is None else pairs.to(torch.int64).T.contiguous()
    if pairs is not None and times is not None:
        times = spread_to_seeds("compacted_seeds", pairs, times, pick_columns(minibatch.indexes, name))
    return values | {"edge_label_index": index, "edge_label": labels, "edge_label_time": times}


def edge_values(
    minibatch: MiniBatch, edge_type: str | None, by_hop: bool
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the features of the edges of a type, and PyG's other attributes of these edges."""
    hops = [
        hop
        for hop in reversed(minibatch.sampled_subgraphs or [])
        if pick_columns(hop.sampled_csc, edge_type) is not None
    ]
    if not hops:
        return {}, {}
    cscs = [pick_columns(hop.sampled_csc, edge_type) for hop in hops]
    indptrs, rows = [csc.indptr for csc in cscs], [csc.indices for csc in cscs]
    counts = list(map(len, rows))
    ids = [pick_columns(hop.original_edge_ids, edge_type) for hop in hops]
    known = not any(part is None for part in ids)
    # Without ids, edges of a column are considered equal if they have the same source.
    numbers = ids if known else rows
    marks = mark_first(indptrs, numbers)
    if rows[0].is_cpu:
        joined = join_columns(indptrs, rows, numbers, marks)
        index, edges = joined[:2], joined[2]
    else:
        index = torch.stack(
            [concat_values(rows, marks).to(torch.int64), concat_values(list(map(layer_columns, cscs)), marks)]
        )
        edges = concat_values(numbers, marks).to(torch.int64)
    features = edge_features(minibatch, edge_type, counts, marks)
    weights = [pick_columns(hop.edge_weights, edge_type) for hop in hops]
    weight = None if any(part is None for part in weights) else concat_values(weights, marks)
    values = {"edge_index": index, "e_id": edges if known else None, "edge_weight": weight}
    if by_hop:
        # Number of edges of each hop that an earlier hop has, too.
        left_out = [len(part) and len(part) - int(part.count_nonzero()) for part in marks]
        features = as_in_data(minibatch, "edge", edge_type, features)
        return features, {**values, "num_sampled_edges": [a - b for a, b in zip(counts, left_out, strict=True)]}
    # Sorted by source and destination, as in GraphBolt.
    order = torch.sort(index[0] * max(map(len, indptrs)) + index[1], stable=True)[1]
    values = {name: None if own is None else own[..., order] for name, own in values.items()}
    sorted_rows = {name: own[order] for name, own in features.items()}
    return as_in_data(minibatch, "edge", edge_type, sorted_rows), values


def concat_values(parts: Sequence[Any], marks: Sequence[torch.Tensor]) -> Any:
    """Join the values of all hops' edges. Of the first values of each hop, only the marked ones are kept."""
    own = zip(parts, marks, strict=True)
    # Only edges of columns that an earlier hop had can be duplicates, and these come first.
    pieces = [piece for part, kept in own for piece in (part[: len(kept)][kept], part[len(kept) :])]
    return torch.cat(pieces) if isinstance(pieces[0], torch.Tensor) else join_frames(pieces)


def edge_features(
    minibatch: MiniBatch, edge_type: str | None, counts: list[int], marks: list[torch.Tensor]
) -> dict[str, Any]:
    """Return the features of the edges of a type without duplicates; `counts` includes the duplicates of each hop."""
    both = zip(minibatch.edge_features or [], minibatch.sampled_subgraphs or [], strict=False)
    layers = [
        batch_features(layer, edge_type) for layer, hop in both if pick_columns(hop.sampled_csc, edge_type) is not None
    ]
    features = {}
    for name in dict.fromkeys(name for layer in layers for name in layer):
        # A hop without edges of the type has no rows.
        empty = next(layer[name] for layer in layers if name in layer)[:0]
        parts = [layer.get(name, empty) for layer in reversed(layers)]
        if list(map(len, parts)) != counts:
            raise ValueError(
                f"edge feature {name!r} has {sum(map(len, parts))} rows, but sampled_subgraphs have {sum(counts)} "
                "edges; put fetch_feature after the stages that change the edges"
            )
        features[name] = concat_values(parts, marks)
    return features
