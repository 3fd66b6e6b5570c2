"""The seeds of a link loader, as PyG's `edge_label_index` gives them."""

from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.pyg.data.data_graph import count_nodes
from graphfeed.pyg.data.edge_list import plain_index
from graphfeed.pyg.data.store_data import as_data
from graphfeed.pyg.loaders.extra_options import as_windows
from graphfeed.pyg.samplers.negative_sampling import NegativeSampling
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.graph.type_names import type_name


class InputEdges(NamedTuple):
    """What a user says about the seeds."""

    index: Any = None
    """Shape (2, N); None is all edges. With types: an edge type, or (edge type, one of these)."""
    labels: torch.Tensor | None = None
    times: torch.Tensor | None = None
    ids: torch.Tensor | None = None
    """What is reported of each seed in place of its position."""
    window: Any = None
    """How far back from its time each seed may look."""


class LinkItems(NamedTuple):
    """The seeds as items."""

    items: ItemSet | HeteroItemSet
    kind: tuple[str, str, str] | None
    """The edge type; None if there are no types."""


def read_input_edges(data: Any, given: InputEdges, negatives: NegativeSampling | None) -> LinkItems:
    """Return the seeds as items named seeds, input_id and, if there are any, labels and timestamp.

    With binary negatives, labels are raised by one if the least of them is 0, as 0 stands for negatives.

    Raises:
        ValueError: Seeds without a type for data with types, nodes that there are not, labels for triplets, other
            lengths, or no seeds.
    """
    data = as_data(data) if isinstance(data, (tuple, list)) else data
    kind, index, labels = None, given.index, given.labels
    if not hasattr(data, "_store"):
        kind, index = split_kind(data, index)
    is_given = index is not None
    if not is_given:
        index = data.edge_index if kind is None else data[kind].edge_index
    pairs = plain_index(as_tensor("edge_label_index", index))
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"edge_label_index must have shape (2, N), but has {tuple(pairs.shape)}")
    count = pairs.shape[1]
    if count == 0:
        raise ValueError("edge_label_index is empty; give at least one edge")
    if is_given:
        check_ends(data, pairs, kind)
    if labels is not None and negatives is not None and negatives.is_triplet():
        raise ValueError(
            "edge_label must be None with triplets, which have no labels: src_index, dst_pos_index and "
            "dst_neg_index tell what is positive"
        )
    # One copy in the layout of this package, a row an edge, rather than one for each mini-batch.
    members = {
        "seeds": pairs.to(torch.int64).t().contiguous(),
        "input_id": torch.arange(count) if given.ids is None else as_tensor("input_id", given.ids).cpu(),
    }
    for name, values in (("labels", labels), ("timestamp", given.times)):
        if values is not None:
            members[name] = as_tensor(NAMES[name], values).cpu()
    if given.window is not None:
        members["pre_time_window"] = as_windows(given.window, count)
    for name, values in members.items():
        if len(values) != count:
            raise ValueError(f"{NAMES.get(name, name)} must have {count} values, one per edge, but has {len(values)}")
    if negatives is not None and labels is not None and bool(members["labels"].min() == 0):
        members["labels"] = members["labels"] + 1
    items = ItemSet(tuple(members.values()), names=tuple(members))
    return LinkItems(items if kind is None else HeteroItemSet({type_name(kind): items}), kind)


def check_ends(data: Any, pairs: torch.Tensor, kind: tuple[str, str, str] | None) -> None:
    """Raise unless edges join nodes of the data."""
    if pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise ValueError(f"edge_label_index must be ids, but is {pairs.dtype}")
    for row, name in enumerate(("sources", "destinations")):
        count = count_nodes(data, None if kind is None else (kind[0], kind[2])[row])
        low, high = int(pairs[row].min()), int(pairs[row].max())
        if low < 0 or high >= count:
            raise ValueError(f"the {name} of edge_label_index must lie in 0 .. {count - 1}, but hold {low} .. {high}")


NAMES = {"labels": "edge_label", "timestamp": "edge_label_time", "pre_time_window": "time_window"}


def split_kind(data: Any, given: Any) -> tuple[tuple[str, str, str], Any]:
    """Return the edge type and the edges."""
    if isinstance(given, (tuple, list)) and given and all(isinstance(part, str) for part in given):
        kind, index = given, None
    elif isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        kind, index = given
    else:
        raise ValueError(
            f"edge_label_index must name an edge type, for data has {list(data.edge_types)}, but is {brief(given)}; "
            "give a type or (type, edges)"
        )
    known = data._to_canonical(*kind)
    if known not in data.edge_types:
        raise ValueError(f"edge_label_index has the edge type {kind}, but data has {list(data.edge_types)}")
    return known, index
