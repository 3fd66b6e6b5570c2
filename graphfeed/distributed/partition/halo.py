"""Chooses which rows of other parts' nodes are stored with a part: those that its in-edges come from most often."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.distributed.edge_positions import remote_sources
from graphfeed.distributed.partition.part_layout import check_num_parts, features_by_key
from graphfeed.distributed.partition.report import table
from graphfeed.loader import bytes_text
from graphfeed.ops.arguments import as_ids, check_count, check_ids, check_vector, checked
from graphfeed.ops.process import progress_bar
from graphfeed.storage import FeatureStore
from graphfeed.storage.features import row_type
from graphfeed.storage.graph import ByType, GraphArrays, from_type_dict, match_types, stacked_assignment, to_type_dict

HaloFeatures: TypeAlias = int | Sequence[ByType]
"""How many bytes of copies a part may have at most; or for each part the nodes' ids, by type if there are types."""
ID_BYTES = torch.int64.itemsize


@dataclass(frozen=True)
class HaloPlan:
    """The halo nodes whose rows are copied to each part, and the look-ups that this saves. `str` of it is a table."""

    ids: tuple[ByType, ...]
    """For each part, the nodes of other parts, ascending; by node type if the graph has types."""
    num_rows: tuple[int, ...]
    """How many nodes these are."""
    num_bytes: tuple[int, ...]
    """What their rows and ids take."""
    look_ups: tuple[int, ...]
    """The in-edges of each part that come from nodes of other parts which have features."""
    answered: tuple[int, ...]
    """Those of them that come from nodes with copies."""

    @property
    def share(self) -> float:
        """The share of the look-ups of other parts' rows that copies answer.

        It is that of look-ups one edge away from a part, if edges are sampled equally often. Nodes further away are
        more often without a copy, and a mini-batch looks a node up once, however many of its edges come from there.
        """
        return sum(self.answered) / max(sum(self.look_ups), 1)

    def __str__(self) -> str:
        titles = ("part", "copied rows", "bytes", "look-ups of others' rows", "answered", "%")
        columns = (self.num_rows, self.num_bytes, self.look_ups, self.answered)

        def as_text(rows: int, size: int, asked: int, answered: int) -> tuple[str, ...]:
            return f"{rows:,}", bytes_text(size), f"{asked:,}", f"{answered:,}", f"{answered / max(asked, 1):.1%}"

        return "\n".join(table(titles, columns, as_text))


@checked
def plan_halo(
    graph: GraphArrays, assignment: ByType, num_parts: int, features: FeatureStore | None, halo_features: HaloFeatures
) -> HaloPlan:
    """Choose the nodes of which each part gets copies of all features, in one pass over the edges.

    A node is the hotter, the more in-edges of the part come from it. The hottest are taken, and of equally hot ones
    those with lower ids, until the next would exceed the bytes. Beside the graph it takes at most 56 MiB and 56 bytes
    per node.

    Args:
        graph: The graph, in memory or mapped.
        assignment: The part of each node; by node type if the graph has types.
        num_parts: The number of parts.
        features: The features; those of edges are left out, for the edges of a column lie where the column does.
        halo_features: How many bytes of copies a part may have at most, with 8 bytes per node for its id; or for each
            part the ids of the nodes, by node type if the graph has types. Those of its own are left out.

    Raises:
        IndexError: An id beyond the nodes.
        TypeError: Ids that are no integers; or by type and the graph has no types, or the other way round.
        ValueError: There are no features of nodes, no list of ids for each part, or bytes below 0; or there are more
            than 65,536 parts.

    Example:
        >>> from graphfeed import BasicFeatureStore, TorchBasedFeature, from_coo
        >>> graph = from_coo(torch.tensor([[2, 2, 3, 0], [0, 1, 1, 2]]), num_nodes=4)
        >>> features = BasicFeatureStore({("node", None, "feat"): TorchBasedFeature(torch.zeros(4, 8))})
        >>> print(plan_halo(graph, torch.tensor([0, 0, 1, 1]), 2, features, halo_features=40))
        part  copied rows  bytes  look-ups of others' rows  answered       %
           0            1   40 B                         3         2   66.7%
           1            1   40 B                         1         1  100.0%
         all            2   80 B                         4         3   75.0%
    """
    check_num_parts(num_parts)
    parts, graph = stacked_assignment(graph, assignment, num_parts).numpy(), graph.to("cpu")
    row_bytes = bytes_per_node(features, graph)
    if not any(row_bytes.values()):
        raise ValueError("halo_features needs features of nodes to copy, but there are none")
    copy_bytes = [size and size + ID_BYTES for size in row_bytes.values()]
    node_bytes = np.repeat(copy_bytes, list(to_type_dict(graph.num_nodes).values()))
    max_bytes, given = 0, None
    if isinstance(halo_features, Sequence):
        given = stack_ids(graph, num_parts, halo_features)
    else:
        check_count("halo_features", halo_features, 0)
        max_bytes = halo_features
    rows: list[tuple[Any, ...]] = []
    with progress_bar("finding the halo", graph.total_num_edges, "edge") as progress:
        for part in range(num_parts):
            look_ups = np.zeros(parts.size, dtype=np.int64)
            for _, sources in remote_sources(graph, parts, part, progress.update):
                np.add.at(look_ups, sources, 1)
            look_ups[node_bytes == 0] = 0  # nobody asks for rows that are not there
            if given is None:
                nodes = hottest(look_ups, node_bytes, max_bytes)
            else:
                nodes = given[part][(parts[given[part]] != part) & (node_bytes[given[part]] > 0)]
            counts = (nodes.size, int(node_bytes[nodes].sum()), int(look_ups.sum()), int(look_ups[nodes].sum()))
            rows.append((split_ids(nodes, graph), *counts))
    return HaloPlan(*map(tuple, zip(*rows, strict=True)))


def hottest(look_ups: NDArray[np.int64], node_bytes: NDArray[np.int64], max_bytes: int) -> NDArray[np.int64]:
    nodes = np.flatnonzero(look_ups)
    # Stable, so that of nodes that are looked up equally often, those with lower ids come first.
    nodes = nodes[np.argsort(-look_ups[nodes], kind="stable")]
    return np.sort(nodes[: np.searchsorted(np.cumsum(node_bytes[nodes]), max_bytes, side="right")])


def bytes_per_node(features: FeatureStore | None, graph: GraphArrays) -> dict[str | None, int]:
    sizes = dict.fromkeys(to_type_dict(graph.num_nodes), 0)
    for key, feature in features_by_key(features, "node").items():
        if key.type not in sizes:
            raise ValueError(f"a feature is of node type {key.type!r}, but the graph has {list(sizes)}")
        sizes[key.type] += prod(feature.size()) * row_type(feature).itemsize
    return sizes


def stack_ids(graph: GraphArrays, num_parts: int, halo_features: Sequence[ByType]) -> list[NDArray[np.int64]]:
    """Return the ids that were given for each part, ascending, in the one space of ids that all node types share."""
    if len(halo_features) != num_parts:
        raise ValueError(f"halo_features must have ids for each of {num_parts} parts, but has {len(halo_features)}")
    first, node_types = graph.first_ids(), list(to_type_dict(graph.num_nodes))
    stacked = []
    for part, given in enumerate(halo_features):
        name = f"halo_features[{part}]"
        pieces = [np.zeros(0, dtype=np.int64)]
        for node_type, values in match_types(name, given, graph.num_nodes).items():
            if node_type not in node_types:
                raise ValueError(f"{name} is of node type {node_type!r}, but the graph has {node_types}")
            low, high = first[node_types.index(node_type)], first[node_types.index(node_type) + 1]
            ids = as_ids(name, values)
            check_vector(name, ids)
            check_ids(name, ids, high - low, IndexError)
            pieces.append(ids.cpu().numpy().astype(np.int64) + low)
        stacked.append(np.unique(np.concatenate(pieces)))
    return stacked


def split_ids(nodes: NDArray[np.int64], graph: GraphArrays) -> Any:
    first = graph.first_ids()
    # The ids ascend, so those of a type lie together.
    pieces = (nodes[low:high] for low, high in pairwise(np.searchsorted(nodes, first)))
    types = zip(to_type_dict(graph.num_nodes), pieces, first, strict=False)
    return from_type_dict({node_type: torch.from_numpy(piece - low) for node_type, piece, low in types})
