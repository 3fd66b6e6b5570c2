"""Assignment of nodes to partitions. It depends only on the graph, the number of parts, the seed and the items."""

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed import ops
from graphfeed.ops import fold
from graphfeed.ops.arguments import as_ids, brief, check_count, check_ids, check_vector, checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits, import_optional, install_hint, progress_bar
from graphfeed.ops.structure import Items, place_nodes
from graphfeed.storage.graph.by_type import ByType
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.type_names import from_type_dict, match_types, split_by_type, to_type_dict

PASSES = 10
"""Maximum number of passes over the graph."""
SETTLED = 0.001
"""Passes end once a pass moves at most this fraction of the nodes."""
SLACK = 0.03
"""Fraction by which a part may exceed the mean number of nodes of a type."""
RANGE_NODES = 1 << 19
"""Number of nodes placed between two updates of the progress bar."""


@checked
def ldg_memory(num_nodes: int, num_parts: int) -> int:
    """Return the maximum memory of `assign_by_ldg` in bytes, besides graph and items, for any number of edges.

    Example:
        >>> ldg_memory(num_nodes=111_000_000, num_parts=8) / 2**20 < 500
        True
    """
    return (
        4 * num_nodes + 128 * max(min(RANGE_NODES, current_limits().part_values), min(num_parts, num_nodes)) + (1 << 20)
    )


def assign_by_ldg(graph: GraphArrays, num_parts: int, items: torch.Tensor | None = None) -> torch.Tensor:
    """Return the part of each node by linear deterministic greedy partitioning, in several passes.

    A node is assigned to the part with most of its in-neighbours, weighted by the remaining capacity of the part
    (Stanton and Kliot: Streaming graph partitioning for large distributed graphs, KDD 2012). Later passes use the
    previous assignment of all other nodes (Nishimura and Ugander: Restreaming graph partitioning, KDD 2013). A part has
    at most 3 % more nodes of each type than the mean, rounded up. Nodes without assigned neighbours fill the emptiest
    parts. `items` is the number of items of each node, to balance items in the same way; if nodes and items can't both
    be balanced, items are. The time grows with the number of edges, and hardly with the number of parts.

    In-edges are read sequentially, so the arrays may be mapped files larger than memory. The best partitions need edges
    in both directions. The result is int32, shape (nodes,), in the order of the graph's ids.
    """
    indptr, indices = graph.csc_indptr.cpu(), graph.indices.cpu()
    offsets = graph.first_ids()
    # On huge pages, a pass over a random graph of 60 million nodes is 1.4 times as fast.
    parts = buffers.empty_long_lived(graph.total_num_nodes, torch.int32, buffers.CPU, private=True).fill_(-1)
    # Empty parts are filled in order, so parts beyond the number of nodes stay empty.
    step = min(RANGE_NODES, current_limits().part_values)
    filled = min(num_parts, max(graph.total_num_nodes, 1))
    loads = torch.zeros((len(offsets) - 1, filled), dtype=torch.int64, device="cpu")
    item_loads = torch.zeros_like(loads)
    with progress_bar("assigning nodes", PASSES * indices.numel(), "edge") as progress:
        for _ in range(PASSES):
            moved = 0
            for number, (first, last) in enumerate(pairwise(offsets)):
                # Each type is balanced separately.
                limit = most_of(last - first, num_parts)
                item_limit = 0 if items is None else most_of(int(items[first:last].sum()), num_parts)
                for start in range(first, last, step):
                    stop = min(start + step, last)
                    columns = indptr[start : stop + 1]
                    own = None if items is None else Items(items[start:stop].long(), item_loads[number], item_limit)
                    # In place: later nodes of a pass use the new parts of earlier ones.
                    moved += place_nodes(columns, indices, parts, loads[number], start, limit, own)
                    progress.update(int(columns[-1] - columns[0]))
            if moved <= SETTLED * parts.numel():
                break
    return parts


def most_of(total: int, num_parts: int) -> int:
    return math.ceil(total / num_parts * (1 + SLACK))


SEEDS = (1 << 31) - 1
"""Maximum seed of METIS. The seeds 0 and 1 are equivalent."""


def assign_by_metis(graph: GraphArrays, num_parts: int, seed: int = 0, recursive: bool | None = None) -> torch.Tensor:
    """Return the part of each node by METIS (Karypis and Kumar: A fast and high quality multilevel scheme, 1998).

    Edges count in both directions, parallel edges add up, and self-loops are ignored. Random graphs with ten edges per
    node needed 260 bytes per edge. `recursive` selects recursive bisection; by default, pymetis decides by the number
    of parts. Raises an ImportError without pymetis. The result is int32, shape (nodes,), in the order of the graph's
    ids.
    """
    pymetis = import_optional("pymetis", "the method 'metis'", install_hint("partition"))
    num_nodes = graph.total_num_nodes
    if num_parts == 1 or num_nodes <= num_parts:  # METIS needs more nodes than parts
        return torch.arange(num_nodes, dtype=torch.int32, device="cpu") % num_parts
    starts, neighbors, weights = both_directions(graph)
    _, parts = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(starts, neighbors),
        eweights=weights,
        recursive=recursive,
        options=pymetis.Options(seed=1 + seed % SEEDS),
    )
    return torch.tensor(np.asarray(parts, dtype=np.int32), device="cpu")


def both_directions(graph: GraphArrays) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the undirected graph for METIS: starts, neighbours without duplicates, and weights of the edges."""
    ends = ops.expand_indptr(graph.csc_indptr.cpu(), torch.int64)
    sources = graph.indices.cpu().to(torch.int64)
    # METIS rejects self-loops.
    distinct = sources != ends
    sources, ends = sources[distinct], ends[distinct]
    num_nodes = graph.total_num_nodes
    # A single number per pair, so that sorting orders the edges and finds duplicates.
    both = np.concatenate([(ends * num_nodes + sources).numpy(), (sources * num_nodes + ends).numpy()])
    # Duplicates become a single neighbour, weighted by their number.
    pairs, weights = np.unique(both, return_counts=True)
    starts = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs // num_nodes, minlength=num_nodes), out=starts[1:])
    return starts, pairs % num_nodes, weights


METHODS = ("hash", "range", "ldg", "metis")
"""Names of the methods."""
MOST_PARTS = torch.iinfo(torch.int32).max


@checked
def assign_nodes(
    graph: GraphArrays, num_parts: int, method: str = "ldg", seed: int = 0, balance: ByType | None = None
) -> ByType:
    """Assign each node to a part.

    The in-edges of a node belong to its part. Parts have similar numbers of nodes; all methods except METIS balance
    each node type separately. "ldg" also balances training items, so that ranks with
    `DistributedItemSampler(owners=...)` have similar numbers of items in their own parts.

    Args:
        graph: The graph, in memory or mapped by `load_graph`.
        num_parts: Number of parts, 1 or more. If it exceeds the number of nodes, some parts are empty.
        method: "range" assigns consecutive ids; the number of cut edges depends on the order of ids. "hash" assigns
            random ids; parts are similar, and nearly all edges are cut. "ldg" streams the graph and places nodes near
            their neighbours, with little memory (`ldg_memory`). "metis" cuts the fewest edges, and needs the most time
            and memory, and the extra `partition`.
        seed: Random seed of "hash" and "metis"; the other methods are deterministic.
        balance: The node of each item to balance, such as the training nodes, or the destinations of training edges; by
            node type if the graph has types; types may be left out. Only for "ldg"; "hash" balances any items by
            chance.

    Returns:
        The part of each node, int32, shape (nodes,); by node type if the graph has types.

    Raises:
        ImportError: The method is "metis", but pymetis is missing.
        KeyError: The graph lacks a node type of `balance`.
        ValueError: The method is unknown, the number of parts is below 1 or exceeds int32, an item's node doesn't
            exist, or `balance` is given for another method than "ldg".

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
        by_type = {
            node_type: split_evenly(torch.arange(size, device="cpu"), size, num_parts)
            for node_type, size in sizes.items()
        }
    else:
        orders = (ops.permute(0, size, size, fold(seed, number)) for number, size in enumerate(sizes.values()))
        by_type = {
            node_type: split_evenly(order, len(order), num_parts)
            for node_type, order in zip(sizes, orders, strict=True)
        }
    return from_type_dict(by_type)  # type: ignore[no-any-return]


def items_of_nodes(graph: GraphArrays, balance: ByType) -> torch.Tensor:
    """Return the number of items of each node, int32, in the order of the graph's ids."""
    sizes, given = to_type_dict(graph.num_nodes), match_types("balance", balance, graph.num_nodes)
    if not given.keys() <= sizes.keys():
        raise KeyError(f"balance has the node types {list(given)}, but the graph has {list(sizes)}")
    counts = torch.zeros(graph.total_num_nodes, dtype=torch.int32, device="cpu")
    # The parts are views of `counts`.
    for node_type, own in split_by_type(counts, sizes).items():
        name = "balance" if node_type is None else f"balance[{node_type!r}]"
        ids = as_ids(name, given.get(node_type, ()))
        check_vector(name, ids)
        check_ids(name, ids, sizes[node_type])
        # Unlike `counts[ids] += 1`, this counts duplicates.
        own.index_add_(0, ids.cpu(), torch.ones(len(ids), dtype=torch.int32, device="cpu"))
    return counts


def split_evenly(positions: torch.Tensor, size: int, num_parts: int) -> torch.Tensor:
    # The sizes of parts differ by at most 1.
    return (positions * num_parts).div_(max(size, 1), rounding_mode="floor").to(torch.int32)


def stacked_assignment(graph: GraphArrays, assignment: ByType, num_parts: int) -> torch.Tensor:
    """Return an assignment as one tensor, in the order of the graph's ids. Nodes without a part raise a ValueError."""
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
