"""The seeds of a link loader, as PyG's `edge_label_index` gives them."""

from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import as_tensor, brief
from graphfeed.pyg.data.data_graph import edges_of
from graphfeed.pyg.data.edge_list import plain_index
from graphfeed.pyg.data.input_nodes import seed_items
from graphfeed.pyg.data.negative_sampling import NegativeSampling
from graphfeed.pyg.data.store_data import EdgeType, end_types
from graphfeed.pyg.data.tables import Tables, tables_of
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.graph import type_name


class InputEdges(NamedTuple):
    """The seed edges that a user gives to a loader, with their labels, times and ids."""

    index: Any = None
    """Shape (2, N); None is all edges. With types: an edge type, or (edge type, one of these); without, the type may be
    None."""
    labels: torch.Tensor | None = None
    times: torch.Tensor | None = None
    ids: torch.Tensor | None = None
    """What is reported of each seed in place of its position."""
    window: Any = None
    """How far back from its time each seed may look."""


class LinkItems(NamedTuple):
    """The seeds as items."""

    items: ItemSet | HeteroItemSet
    edge_type: EdgeType | None
    """The edge type; None if there are no types."""


def read_input_edges(data: Any, given: InputEdges, negatives: NegativeSampling | None) -> LinkItems:
    """Return the seeds as items named seeds, input_id and, if there are any, labels and timestamp.

    With binary negatives, labels are raised by one if the least of them is 0, as 0 stands for negatives.

    Raises:
        ValueError: Seeds without a type for data with types, nodes that there are not, labels for triplets, other
            lengths, or no seeds.
    """
    data = tables_of(data)
    edge_type, index, labels = None, given.index, given.labels
    if data.typed:
        edge_type, index = split_edge_type(data, index)
    elif isinstance(index, (tuple, list)) and len(index) == 2 and index[0] is None:
        index = index[1]  # PyG's form of (edge type, edges) where there are no types
    is_given = index is not None
    if not is_given:
        index = torch.stack(edges_of(data.edges[edge_type], edge_type).ends())
    pairs = plain_index(as_tensor("edge_label_index", index))
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"edge_label_index must have shape (2, N), but has {tuple(pairs.shape)}")
    count = pairs.shape[1]
    if count == 0:
        raise ValueError("edge_label_index is empty; give at least one edge")
    if is_given:
        check_ends(data, pairs, edge_type)
    if labels is not None and negatives is not None and negatives.is_triplet():
        raise ValueError(
            "edge_label must be None with triplets, which have no labels: src_index, dst_pos_index and "
            "dst_neg_index tell what is positive"
        )
    if labels is not None:
        labels = as_tensor("edge_label", labels).cpu()
        # Negatives have the label 0, so, as in PyG, others move up where they begin with it.
        if negatives is not None and labels.numel() and bool(labels.min() == 0):
            labels = labels + 1
    # One copy in the layout of this package, a row an edge, rather than one for each mini-batch.
    seeds = pairs.to(torch.int64).t().contiguous()
    members = {"labels": ("edge_label", labels), "timestamp": ("edge_label_time", given.times)}
    items = seed_items(seeds, given.ids, members, given.window)
    return LinkItems(items if edge_type is None else HeteroItemSet({type_name(edge_type): items}), edge_type)


def check_ends(data: Tables, pairs: torch.Tensor, edge_type: EdgeType | None) -> None:
    if pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise ValueError(f"edge_label_index must be ids, but is {pairs.dtype}")
    for row, name in enumerate(("sources", "destinations")):
        count = data.count_nodes(end_types(edge_type)[row])
        low, high = int(pairs[row].min()), int(pairs[row].max())
        if low < 0 or high >= count:
            raise ValueError(f"the {name} of edge_label_index must lie in 0 .. {count - 1}, but hold {low} .. {high}")


def split_edge_type(data: Tables, given: Any) -> tuple[EdgeType, Any]:
    """Return the edge type and the edges."""
    if isinstance(given, (tuple, list)) and given and all(isinstance(part, str) for part in given):
        edge_type, index = given, None
    elif isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        edge_type, index = given
    else:
        raise ValueError(
            f"edge_label_index must name an edge type, for data has {list(data.edges)}, but is {brief(given)}; "
            "give a type or (type, edges)"
        )
    known = data.edge_type(edge_type)
    if known is None and len(edge_type) == 3 and index is not None and {*edge_type[::2]} <= data.nodes.keys():
        known = tuple(edge_type)  # edges to predict, of which the data need not have any
    if known is None:
        raise ValueError(
            f"edge_label_index has the edge type {brief(edge_type)}, but data has {brief(list(data.edges))}; edges of "
            "another type must be given, and join node types of data"
        )
    return known, index
