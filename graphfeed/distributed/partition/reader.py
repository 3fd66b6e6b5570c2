"""Opens parts that `write_partition` wrote: reads their metadata, and memory-maps all arrays."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partition.part_layout import (
    ATTRIBUTES,
    CODING,
    KEY_LENGTHS,
    Key,
    PartitionMetadata,
    check_identity,
    column_files,
    features_by_key,
    map_entry,
    read_metadata,
)
from graphfeed.distributed.partitioned_feature import PartitionedFeature, served_name
from graphfeed.distributed.pyg.partition_pyg_layout import PyGLayout
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.arguments import checked
from graphfeed.storage import BasicFeatureStore, Feature, FeatureKey, TorchBasedFeature
from graphfeed.storage.features import open_codes, wrap_stored
from graphfeed.storage.graph import FusedCSCSamplingGraph, check_shapes, to_type_dict
from graphfeed.storage.memory import has_stamp


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A part of a graph with the rows of its features, mapped from files."""

    graph: GraphPart
    """The in-edges of the part's nodes."""
    features: BasicFeatureStore
    """The rows that the part owns, in order of their ids. Features of the graph itself are complete."""
    books: Mapping[FeatureKey, PartBook]
    """For each feature of nodes or edges, the owner of each row and its offset there."""

    def partitioned_features(self, peers: Peers | None = None) -> BasicFeatureStore:
        """Return features that read by global id from all ranks; rank `i` of R must have opened part `i // (R / P)`.

        Args:
            peers: The ranks. Default: those of the default process group.

        Raises:
            ValueError: The number of ranks is not a multiple of the number of parts.
        """
        features: dict[tuple[str, str | None, str], Feature] = {}
        rows: Feature
        for key, rows in features_by_key(self.features).items():
            book = self.books.get(key)
            if book is not None:
                name, identity = served_name(*key), self.graph.identity
                rows = wrap_stored(
                    rows, partial(PartitionedFeature, book=book, peers=peers, name=name, identity=identity)
                )
            features[key] = rows
        return BasicFeatureStore(features)


class StoredRows(TorchBasedFeature):
    """Rows of a partition, which are constant until this process updates its copy of them."""

    def is_constant(self) -> bool:
        return not self._is_updated


@checked
def open_part(root: str | os.PathLike[str], part: int, *, check: bool = False) -> StoredPart:
    """Memory-map a part of a graph. Pages are read on demand; writes to the arrays stay in this process.

    Of the arrays, only the part of each node is read. Dtypes, shapes, and the bounds of `csc_indptr` are checked.

    Args:
        root: A folder written by `write_partition`, or by `Partitioner`, here or in `torch_geometric.distributed`; the
            latter layout is read into memory and always checked.
        check: Whether to check all ids too, with a pass over the arrays; use it for files from other sources.

    Raises:
        ValueError: The part doesn't exist, or the files are incomplete, changed, or of another version.

    Example:
        >>> import tempfile
        >>> from graphfeed import from_coo
        >>> from graphfeed.distributed import assign_nodes, write_partition
        >>> whole = from_coo(torch.tensor([[1, 2, 0], [0, 0, 1]]), num_nodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     root = write_partition(f"{folder}/parts", whole, assign_nodes(whole, 2, "range"), num_parts=2)
        ...     open_part(root, 0).graph.columns
        FusedCSCSamplingGraph(num_nodes=3, num_edges=3)
    """
    root = Path(root)
    layout = PyGLayout.find(root)
    if layout is not None:
        columns_of_part, rows, books_of_rows = layout.open(part)
        return StoredPart(columns_of_part, BasicFeatureStore(rows), books_of_rows)
    metadata = read_metadata(root)
    if not 0 <= part < len(metadata.parts):
        raise ValueError(f"part must be in 0 .. {len(metadata.parts) - 1}, but is {part}")
    identity = check_identity(root, part, metadata.identity)
    try:
        arrays: dict[str, dict[Key, torch.Tensor]] = {role: {} for role in KEY_LENGTHS}
        for entry in [*metadata.shared, *metadata.parts[part]]:
            arrays[entry.role][entry.key] = map_entry(root, entry)
        columns = part_columns(metadata, arrays)
        if check:
            columns.check()
        elif all(has_stamp(root / name, metadata.written) for name in column_files(metadata.parts[part])):
            columns.trust_saved()
        book = PartBook.from_assignment(arrays["node_parts"][()], len(metadata.parts))
        if book.num_ids != metadata.total_num_nodes:
            raise ValueError(f"node_parts has {book.num_ids} nodes, not {metadata.total_num_nodes}")
        first_edges = arrays["first_edges"].get(())
        own = GraphPart(columns, book, part, metadata.num_edges, identity, first_edges)
        own.check_ids(whole=check)
        return with_features(own, arrays)
    except (KeyError, TypeError, ValueError) as error:
        error.add_note(f"in the partition at {root}, which was changed after it was written; write it again")
        raise


def part_columns(
    metadata: PartitionMetadata, arrays: Mapping[str, Mapping[Key, torch.Tensor]]
) -> FusedCSCSamplingGraph:
    """Return the graph of a part's columns, from its arrays by role and key."""
    without_key = {role: rows[()] for role, rows in arrays.items() if () in rows}
    indices, sizes = without_key["indices"], metadata.num_nodes if isinstance(metadata.num_nodes, dict) else None
    columns = FusedCSCSamplingGraph(
        without_key["csc_indptr"],
        indices,
        None if sizes is None else torch.tensor([0, *sizes.values()], device="cpu").cumsum(0).to(indices.dtype),
        without_key.get("type_per_edge"),
        None if sizes is None else {node_type: number for number, node_type in enumerate(sizes)},
        metadata.edge_type_to_id,
        **{role: {str(name): rows for (name,), rows in arrays[role].items()} for role in ATTRIBUTES},
    )
    if columns.total_num_nodes != metadata.total_num_nodes:
        raise ValueError(f"csc_indptr has {columns.total_num_nodes} nodes, not {metadata.total_num_nodes}")
    check_shapes(columns)
    return columns


def with_features(graph: GraphPart, arrays: Mapping[str, Mapping[Key, torch.Tensor]]) -> StoredPart:
    """Return a part together with the rows of its features and their books."""
    # Features of the same type share a book, which caches the offsets of its ids.
    of_type = {("node", name): graph.book_of(name) for name in to_type_dict(graph.columns.num_nodes)}
    for (name,), owners in arrays["edge_parts"].items():
        of_type["edge", name] = PartBook.from_assignment(owners, graph.book.num_parts)
    features: dict[tuple[str, str | None, str], Feature] = {}
    codings: dict[Key, dict[str, torch.Tensor]] = {}
    for (*coded, name), values in arrays["encoding"].items():
        codings.setdefault(tuple(coded), {})[str(name)] = values
    books: dict[FeatureKey, PartBook] = {}
    for key, rows in arrays["feature"].items():
        feature_key = FeatureKey._make(key)
        features[feature_key] = StoredRows(rows)
        if key in codings:
            coding = json.loads(bytes(codings[key].pop(CODING).numpy()))
            features[feature_key] = open_codes(features[feature_key], coding, codings[key])
        if feature_key.domain != "graph":
            books[feature_key] = of_type[feature_key[:2]]
    return StoredPart(graph, BasicFeatureStore(features), books)
