"""The identity of a partition, which all its parts have: of which graph they are, and of which assignment of nodes."""

import hashlib
import json
from collections.abc import Iterator, Mapping

import torch

from graphfeed.distributed.part_book import PartBook
from graphfeed.storage import Feature, FeatureKey
from graphfeed.storage.features import dtype_and_shape
from graphfeed.storage.graph import GraphArrays

SAMPLES = 1000
"""How many rows of each array count, evenly spaced. All of them would take as long as reading the graph."""
DIGITS = 16
ATTRIBUTES = ("node_attributes", "edge_attributes")


def identify(
    graph: GraphArrays, book: PartBook, features: Mapping[FeatureKey, Feature] | None = None, written: int = 0
) -> str:
    """Return the same text for the same graph, assignment and features, and for others most likely another.

    It depends on sizes, dtypes and names, on the part of each node, and on evenly spaced rows of all arrays. A change
    of a few rows may go unnoticed, so partitions in files add the time when they were written.

    Args:
        graph: The whole graph.
        book: The part of each node.
        features: Those that are stored with the parts.
        written: The stamp of the files; 0 for parts that are cut in memory.
    """
    sizes = [graph.num_nodes, graph.edge_type_to_id, book.num_parts, int(book.checksum), written]
    digest = hashlib.sha256(json.dumps(sizes).encode())
    for name, count, rows in (*rows_of_graph(graph), *rows_of_features(features or {})):
        digest.update(f"\n{name} {count} {dtype_and_shape(rows.dtype, rows.shape[1:])}\n".encode())
        digest.update(rows.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:DIGITS]


def rows_of_graph(graph: GraphArrays) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Yield the name of each array of a graph, the number of its rows, and some of them."""
    fields = graph.fields()
    named = {f"{name} {key}": rows for name in ATTRIBUTES for key, rows in sorted(fields.pop(name).items())}
    for name, values in (fields | named).items():
        if isinstance(values, torch.Tensor):
            yield name, len(values), values[spread(len(values)).to(values.device)]


def rows_of_features(features: Mapping[FeatureKey, Feature]) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Yield the key of each feature, the number of its rows, and some of them."""
    for key, feature in features.items():
        yield str(tuple(key)), feature.count(), feature.read(spread(feature.count()))


def spread(count: int) -> torch.Tensor:
    """Return at most `SAMPLES` positions from the first to the last of so many."""
    some = min(count, SAMPLES)
    return torch.arange(some) * (count - 1) // max(some - 1, 1)
