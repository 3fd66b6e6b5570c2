"""Assigns the nodes of a graph to parts. The result depends on the graph, the number of parts and the seed alone."""

import torch

from graphfeed import ops
from graphfeed.ops import fold
from graphfeed.ops.arguments import as_ids, brief, check_count, check_ids, check_vector, checked
from graphfeed.storage.graph.assignment.assign_ldg import assign_by_ldg
from graphfeed.storage.graph.assignment.assign_metis import assign_by_metis
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.type_names import from_type_dict, match_types, split_by_type, to_type_dict

METHODS = ("hash", "range", "ldg", "metis")
"""The names of the methods."""
MOST_PARTS = torch.iinfo(torch.int32).max


@checked
def assign_nodes(
    graph: GraphArrays, num_parts: int, method: str = "ldg", seed: int = 0, balance: ByType | None = None
) -> ByType:
    """Return the part of each node.

    The in-edges of a node belong to its part. Parts are balanced by their numbers of nodes; all methods but METIS
    balance each node type on its own. "ldg" also balances the items to train on, so that ranks with
    `DistributedItemSampler(owners=...)` have as many of their own part each.

    Args:
        graph: The graph, in memory or mapped by `load_graph`.
        num_parts: The number of parts, 1 or more. Where it exceeds the number of nodes, some parts are empty.
        method: "range" gives each part consecutive ids, whose edges are cut as the ids are ordered. "hash" gives it
            random ones: parts are alike, and nearly all edges are cut. "ldg" goes through the graph as a stream and
            puts nodes where their neighbours are, in little memory (`ldg_memory`). "metis" cuts the fewest edges, and
            takes the most time and memory; it needs the extra `partition`.
        seed: Decides what "hash" and "metis" draw; the other methods draw nothing.
        balance: The node of each item to balance, such as the nodes to train on, or the destinations of the edges; by
            node type if the graph has types, where types may be left out. Only for "ldg"; "hash" balances any items
            by chance.

    Returns:
        int32, shape (nodes,); by node type if the graph has types.

    Raises:
        ImportError: "metis" without pymetis.
        KeyError: A node type to balance that the graph doesn't have.
        TypeError: Items to balance are by type and the graph has no types, or the other way round; or are no integers.
        ValueError: An unknown method, fewer than one part, or more than int32 can number; an item of a node that is not
            there, or items for another method than "ldg".

    Example:
        >>> from graphfeed import from_coo
        >>> assign_nodes(from_coo(([0, 1], [1, 2]), num_nodes=4), num_parts=2, method="range")
        tensor([0, 0, 1, 1], dtype=torch.int32)
    """
    check_count("num_parts", num_parts, 1)
    if num_parts > MOST_PARTS:
        raise ValueError(f"num_parts must be at most {MOST_PARTS}, as parts are int32, but is {brief(num_parts)}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, but is {method!r}")
    if balance is not None and method != "ldg":
        raise ValueError(f"balance needs method 'ldg', but the method is {method!r}; leave one of them out")
    sizes = to_type_dict(graph.num_nodes)
    if method in ("ldg", "metis"):
        items = None if balance is None else items_of_nodes(graph, balance)
        parts = assign_by_ldg(graph, num_parts, items) if method == "ldg" else assign_by_metis(graph, num_parts, seed)
        by_type = split_by_type(parts, sizes)
    elif method == "range":
        by_type = {node_type: split_evenly(torch.arange(size), size, num_parts) for node_type, size in sizes.items()}
    else:
        orders = (ops.permute(0, size, size, fold(seed, number)) for number, size in enumerate(sizes.values()))
        by_type = {
            node_type: split_evenly(order, len(order), num_parts)
            for node_type, order in zip(sizes, orders, strict=True)
        }
    return from_type_dict(by_type)  # type: ignore[no-any-return]


def items_of_nodes(graph: GraphArrays, balance: ByType) -> torch.Tensor:
    """Return how many items each node has, int32, in the order of the graph's ids."""
    sizes, given = to_type_dict(graph.num_nodes), match_types("balance", balance, graph.num_nodes)
    if not given.keys() <= sizes.keys():
        raise KeyError(f"balance has the node types {list(given)}, but the graph has {list(sizes)}")
    counts = torch.zeros(graph.total_num_nodes, dtype=torch.int32)
    # The parts are views, so that items are counted in `counts`.
    for node_type, own in split_by_type(counts, sizes).items():
        name = "balance" if node_type is None else f"balance[{node_type!r}]"
        ids = as_ids(name, given.get(node_type, ()))
        check_vector(name, ids)
        check_ids(name, ids, sizes[node_type])
        # An id that is given twice counts twice.
        own.index_add_(0, ids.cpu(), torch.ones(len(ids), dtype=torch.int32))
    return counts


def split_evenly(positions: torch.Tensor, size: int, num_parts: int) -> torch.Tensor:
    # The pieces differ in size by one at most.
    return (positions * num_parts).div_(max(size, 1), rounding_mode="floor").to(torch.int32)


def stacked_assignment(graph: GraphArrays, assignment: ByType, num_parts: int) -> torch.Tensor:
    """Return an assignment as one tensor, in the order of the graph's ids.

    Raises:
        KeyError: A node type is missing, or the graph does not have it.
        TypeError: The assignment is by type and the graph has no types, or the other way round; or no int tensors.
        ValueError: The assignment does not have a part for each node, or a part out of range.
    """
    sizes, given = to_type_dict(graph.num_nodes), match_types("assignment", assignment, graph.num_nodes)
    if given.keys() != sizes.keys():
        raise KeyError(f"assignment must have the node types {list(sizes)}, but has {list(given)}")
    names = {node_type: "assignment" if node_type is None else f"assignment[{node_type!r}]" for node_type in sizes}
    return torch.cat(
        [checked_parts(names[node_type], given[node_type], size, num_parts) for node_type, size in sizes.items()]
    )


def checked_parts(name: str, parts: torch.Tensor, size: int, num_parts: int) -> torch.Tensor:
    check_vector(name, parts, (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
    if len(parts) != size:
        raise ValueError(f"{name} must have {size} values, one for each node, but has {len(parts)}")
    parts = parts.cpu()
    low, high = (int(parts.numpy().min()), int(parts.numpy().max())) if size else (0, 0)
    if low < 0 or high >= num_parts:
        raise ValueError(f"{name} must hold parts in 0 .. {num_parts - 1}, but goes from {low} to {high}")
    return parts
