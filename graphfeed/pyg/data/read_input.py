"""Conversion of the seeds of PyG's loaders, nodes or edges, to items; and the options for negatives."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import check_amount
from graphfeed.ops.arguments import as_tensor, brief, check_ids, checked, holds_whole
from graphfeed.ops.sampling import as_times
from graphfeed.pyg.data.graph_of_data import data_edges
from graphfeed.pyg.data.store_data import EdgeType, end_types, plain_index
from graphfeed.pyg.data.tables import Tables, tables_of
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.graph import NegativeQuery, NodeWeights, etype_str_to_tuple, type_name


@checked
@dataclass
class NegativeSampling:
    """How a link loader draws negatives. `torch_geometric.sampler.NegativeSampling` is accepted, too.

    Raises:
        ValueError: The mode is neither "binary" nor "triplet", or the amount is not positive, or not an integer for
            triplets.

    Example:
        >>> NegativeSampling("triplet", amount=2.0).amount
        2
    """

    mode: Any
    """"binary": `amount` pairs of random nodes per edge. "triplet": `amount` random destinations for the source of
    each edge."""
    amount: float = 1
    src_weight: torch.Tensor | None = None
    """Weight of each node as a source; None: uniform."""
    dst_weight: torch.Tensor | None = None
    """Weight of each node as a destination; None: uniform."""
    strict: bool = False
    """Whether edges of the graph are excluded from the negatives, unlike in PyG."""

    def __post_init__(self) -> None:
        self.mode = getattr(self.mode, "value", self.mode)  # PyG's is an enumeration
        check_amount(self.mode, self.amount)
        if self.mode == "triplet":
            self.amount = math.ceil(self.amount)

    @classmethod
    def cast(cls, given: Any) -> "NegativeSampling | None":
        """Convert None, a mode, a tuple or dict of arguments, or an object of this class or of PyG's."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, (tuple, list)):
            return cls(*given)
        if isinstance(given, Mapping):
            return cls(**given)
        if hasattr(given, "mode") and hasattr(given, "amount"):
            return cls(given.mode, given.amount, given.src_weight, given.dst_weight)
        raise TypeError(
            f"neg_sampling must be 'binary', 'triplet', (mode, amount) or a NegativeSampling, but is {brief(given)}"
        )

    def is_binary(self) -> bool:
        """Return whether both nodes of a negative are drawn."""
        return bool(self.mode == "binary")

    def is_triplet(self) -> bool:
        """Return whether only destinations are drawn, for the source of each edge."""
        return bool(self.mode == "triplet")

    def query(self, time_name: str | None) -> NegativeQuery:
        """Return the query for negatives.

        Args:
            time_name: Node attribute with the times from which nodes exist; None: nodes always exist.
        """
        source, destination = (
            None if part is None else NodeWeights(part) for part in (self.src_weight, self.dst_weight)
        )
        return NegativeQuery(source, destination, self.strict, time_name)


class InputNodes(NamedTuple):
    """The seed nodes given to a loader, with their times and ids."""

    nodes: Any = None
    """Ids or a mask; None: all nodes. With types: a type, (type, one of these), or a dict of these by type."""
    times: Any = None
    """Time of each seed; by type if the nodes are."""
    ids: Any = None
    """Id to report for each seed instead of its position; by type if the nodes are."""
    node_times: Any = None
    """Times of all nodes, used for seeds if `times` is None."""
    time_attr: str | None = None
    """Name of the attribute for temporal sampling, which requires a time for each seed; None: not temporal."""
    window: Any = None
    """Width of the time window before each seed's time; by type if the nodes are."""


class InputSeeds(NamedTuple):
    """The seeds as items, and their type."""

    items: ItemSet | HeteroItemSet
    input_type: Any
    """Node type or edge type; None if there are no types, or seeds of several types."""

    @property
    def edge_types(self) -> tuple[Any, ...]:
        """Edge types of seeds that are edges; (None,) if there are no types."""
        by_type = self.items.by_type if isinstance(self.items, HeteroItemSet) else ()
        return tuple(map(etype_str_to_tuple, by_type)) or (None,)


def read_input_nodes(data: Any, given: InputNodes) -> InputSeeds:
    """Return the seeds as items with seeds, input_id and, if there are times, timestamp.

    The `input_id` of a seed is its position, or its node id if a mask selects the seeds, as in PyG. Seeds need a type
    if data has types, and times for temporal sampling.
    """
    data = tables_of(data)
    if not data.typed:
        if isinstance(given.nodes, (str, Mapping)):
            raise ValueError(f"input_nodes is {brief(given.nodes)}, but data has no types; give ids or a mask")
        return InputSeeds(make_items(given, data.count_nodes(), "input_nodes"), None)
    by_type = given.nodes
    if isinstance(by_type, str):
        by_type = {by_type: None}
    elif isinstance(by_type, (tuple, list)) and len(by_type) == 2 and isinstance(by_type[0], str):
        by_type = {by_type[0]: by_type[1]}
    if not isinstance(by_type, Mapping) or not by_type:
        raise ValueError(
            f"input_nodes must name a node type, because data has {list(data.nodes)}, but is {brief(given.nodes)}; "
            "give a type, (type, ids) or {type: ids}"
        )
    unknown = [node_type for node_type in by_type if node_type not in data.nodes]
    if unknown:
        raise ValueError(f"input_nodes has the node type {unknown[0]!r}, but data has {list(data.nodes)}")
    items = {}
    for node_type, nodes in by_type.items():
        if isinstance(given.window, Mapping) and node_type not in given.window:
            raise ValueError(f"time_window has no window for {node_type!r}; give one for each type of the seeds")
        times, ids, node_times, window = (
            values.get(node_type) if isinstance(values, Mapping) else values
            for values in (given.times, given.ids, given.node_times, given.window)
        )
        own = InputNodes(nodes, times, ids, node_times, given.time_attr, window)
        items[node_type] = make_items(own, data.count_nodes(node_type), f"input_nodes of {node_type!r}")
    return InputSeeds(HeteroItemSet(items), next(iter(items)) if len(items) == 1 else None)


def make_items(given: InputNodes, num_nodes: int, name: str) -> ItemSet:
    """Return the seeds of one type as items."""
    nodes, ids = given.nodes, given.ids
    nodes = torch.arange(num_nodes, device="cpu") if nodes is None else as_tensor(name, nodes).cpu()
    if nodes.dtype == torch.bool:
        if nodes.shape != (num_nodes,):
            raise ValueError(f"{name} is a mask of shape {tuple(nodes.shape)}, but there are {num_nodes} nodes")
        nodes = nodes.nonzero().squeeze(1)
        ids = nodes if ids is None else ids
    if nodes.dim() != 1 or not holds_whole(nodes):
        raise ValueError(f"{name} must be ids, shape (N,), or a mask, but is {brief(given.nodes)}")
    nodes = nodes.to(torch.int64)
    if len(nodes) == 0:
        raise ValueError(f"{name} is empty; give at least one seed")
    check_ids(name, nodes, num_nodes)
    times = None
    if given.times is not None:
        times = as_tensor("input_time", given.times).cpu()
        # Without temporal sampling, times are only reported, so any value is allowed.
        times = times if given.time_attr is None else as_times("input_time", times)
    elif given.node_times is not None:
        times = given.node_times[nodes]
    elif given.time_attr is not None:
        raise ValueError(f"{name} have no {given.time_attr!r}; give input_time, a time for each seed")
    return seed_items(nodes, ids, {"timestamp": ("input_time", times)}, given.window)


def seed_items(seeds: torch.Tensor, ids: Any, members: Mapping[str, tuple[str, Any]], window: Any) -> ItemSet:
    """Return seeds as items with `input_id` and the given members, except those that are None."""
    count = len(seeds)
    windows = None if window is None else as_windows(window, count)
    input_id = torch.arange(count, device="cpu") if ids is None else ids
    found = {}
    # By member: the name of the argument, for messages, and the values.
    for name, (argument, values) in {
        "seeds": ("seeds", seeds),
        "input_id": ("input_id", input_id),
        **members,
        "pre_time_window": ("time_window", windows),
    }.items():
        if values is not None:
            found[name] = as_tensor(argument, values).cpu()
            if len(found[name]) != count:
                raise ValueError(f"{argument} must have {count} values, one for each seed, but has {len(values)}")
    return ItemSet(tuple(found.values()), names=tuple(found))


def as_windows(window: Any, count: int) -> torch.Tensor:
    windows = as_tensor("time_window", window).cpu()
    if not holds_whole(windows):
        raise TypeError(f"time_window must be integers, as the times are, but is {brief(window)}")
    windows = windows.to(torch.int64).expand(count) if windows.dim() == 0 else windows.to(torch.int64)
    if windows.numel() and int(windows.min()) < 0:
        raise ValueError(f"time_window must be 0 or more, but is {brief(window)}")
    return windows.contiguous()


class InputEdges(NamedTuple):
    """The seed edges given to a loader, with their labels, times and ids."""

    index: Any = None
    """Shape (2, N); None: all edges. With types: an edge type, (edge type, one of these), or a dict of these by edge
    type; without types, the type may be None. If this is a dict, so are the other fields."""
    labels: Any = None
    times: Any = None
    ids: Any = None
    """Id to report for each seed instead of its position."""
    window: Any = None
    """Width of the time window before each seed's time."""


def read_input_edges(data: Any, given: InputEdges, negatives: NegativeSampling | None) -> InputSeeds:
    """Return the seeds as items with seeds, input_id and, if they are given, labels and timestamp.

    With binary negatives, labels are raised by one if the smallest is 0, because 0 marks negatives. Triplets have no
    labels. Seeds need a type if data has types.
    """
    data = tables_of(data)
    if isinstance(given.index, Mapping):
        return read_edges_by_type(data, given, negatives)
    edge_type, index, labels = None, given.index, given.labels
    if data.typed:
        edge_type, index = split_edge_type(data, index)
    elif isinstance(index, (tuple, list)) and len(index) == 2 and index[0] is None:
        index = index[1]  # PyG's form of (edge type, edges) without types
    is_given = index is not None
    if not is_given:
        index = torch.stack(data_edges(data.edges[edge_type], edge_type).ends())
    pairs = plain_index(as_tensor("edge_label_index", index))
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"edge_label_index must have shape (2, N), but has {tuple(pairs.shape)}")
    count = pairs.shape[1]
    if count == 0:
        raise ValueError("edge_label_index is empty; give at least one edge")
    if is_given:
        check_link_ends(data, pairs, edge_type)
    if labels is not None and negatives is not None and negatives.is_triplet():
        raise ValueError(
            "edge_label must be None with triplets, which have no labels: src_index, dst_pos_index and "
            "dst_neg_index show which pairs are positive"
        )
    if labels is not None:
        labels = as_tensor("edge_label", labels).cpu()
        # Negatives have label 0, so, as in PyG, labels that begin at 0 are raised by one.
        if negatives is not None and labels.numel() and bool(labels.min() == 0):
            labels = labels + 1
    # Convert to this package's layout, one row per edge, once instead of for each mini-batch.
    seeds = pairs.to(torch.int64).t().contiguous()
    members = {"labels": ("edge_label", labels), "timestamp": ("edge_label_time", given.times)}
    items = seed_items(seeds, given.ids, members, given.window)
    return InputSeeds(items if edge_type is None else HeteroItemSet({type_name(edge_type): items}), edge_type)


def read_edges_by_type(data: Tables, given: InputEdges, negatives: NegativeSampling | None) -> InputSeeds:
    if not data.typed or not given.index:
        has = "has no edge type" if data.typed else "is a dict by edge type, but data has no types"
        raise ValueError(f"edge_label_index {has}; give at least one edge, shape (2, N)")
    values = given._asdict()
    for field, argument in (("labels", "edge_label"), ("times", "edge_label_time"), ("ids", "input_id")):
        check_by_type(argument, values[field], given.index)
    if isinstance(given.window, Mapping):
        check_by_type("time_window", given.window, given.index)
    by_field = {field: by_name(own) if isinstance(own, Mapping) else {} for field, own in values.items()}
    labels = {name: as_tensor("edge_label", own) for name, own in by_field["labels"].items()}
    if negatives is not None and any(own.numel() and bool(own.min() == 0) for own in labels.values()):
        # Raise the labels of all types or of none, so that a label means the same for each type.
        by_field["labels"] = {name: own + 1 for name, own in labels.items()}
    items: dict[str, ItemSet] = {}
    for name, index in by_field["index"].items():
        own = InputEdges(
            (tuple(name.split(":")), index), *(by_field[field].get(name) for field in ("labels", "times", "ids"))
        )
        window = by_field["window"].get(name, None if isinstance(given.window, Mapping) else given.window)
        read: Any = read_input_edges(data, own._replace(window=window), negatives)
        if (found := type_name(read.input_type)) in items:
            raise ValueError(f"edge_label_index has the edge type {found!r} twice; give its edges in one tensor")
        items |= read.items.by_type
    return InputSeeds(HeteroItemSet(items), read.input_type if len(items) == 1 else None)


def by_name(values: Mapping[Any, Any]) -> dict[str, Any]:
    # A tuple may be an abbreviated edge type.
    return {of if isinstance(of, str) else ":".join(map(str, of)): value for of, value in values.items()}


def check_by_type(argument: str, values: Any, index: Mapping[Any, Any]) -> None:
    """Raise unless a value is given for each edge type of the seeds, or for none."""
    names = list(by_name(index))
    if values is not None and (not isinstance(values, Mapping) or set(by_name(values)) != set(names)):
        raise ValueError(
            f"{argument} must be a dict with the edge types of edge_label_index, {brief(names)}, but is {brief(values)}"
        )


def check_link_ends(data: Tables, pairs: torch.Tensor, edge_type: EdgeType | None) -> None:
    if not holds_whole(pairs):
        raise ValueError(f"edge_label_index must be ids, but is {pairs.dtype}")
    for row, name in enumerate(("sources", "destinations")):
        check_ids(f"edge_label_index ({name})", pairs[row], data.count_nodes(end_types(edge_type)[row]))


def split_edge_type(data: Tables, given: Any) -> tuple[EdgeType, Any]:
    """Return the edge type and the edges."""
    if isinstance(given, (tuple, list)) and given and all(isinstance(part, str) for part in given):
        edge_type, index = given, None
    elif isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        edge_type, index = given
    else:
        raise ValueError(
            f"edge_label_index must name an edge type, because data has {list(data.edges)}, but is {brief(given)}; "
            "give a type or (type, edges)"
        )
    known = data.edge_type(edge_type)
    if known is None and len(edge_type) == 3 and index is not None and {*edge_type[::2]} <= data.nodes.keys():
        known = tuple(edge_type)  # seed edges may have a type that data doesn't have
    if known is None:
        raise ValueError(
            f"edge_label_index has the edge type {brief(edge_type)}, but data has {brief(list(data.edges))}; edges of "
            "another type must be given, and join node types of data"
        )
    return known, index
