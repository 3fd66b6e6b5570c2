"""OGB: reader of node property and link prediction datasets from unpacked archives, without the package `ogb`."""

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.interop.ogb_links import PARTS, find_relations, read_links, splits_edges
from graphfeed.ops.arguments import checked
from graphfeed.ops.process import import_optional, install_hint, regular_file
from graphfeed.storage import BasicFeatureStore, TorchBasedFeature
from graphfeed.storage.datasets import Dataset, HeteroItemSet, ItemSet
from graphfeed.storage.graph import ends_of, from_coo, from_type_dict
from graphfeed.storage.memory import clear_headers

__all__ = ["read_ogb"]

Array: TypeAlias = NDArray[Any]
COUNTS = ("num-node-list", "num-edge-list", "num_nodes_list", "num_edges_list")
EDGES = ("edge", "edge_index")
LABELS = "node-label"
BY_TYPE = "triplet-type-list.csv.gz"


@checked
def read_ogb(root: str | os.PathLike[str], add_inverse_edge: bool = False, split: str | None = None) -> Dataset:
    """Read an OGB dataset for node or link prediction from its unpacked archive, such as `arxiv/`, `mag/` or `collab/`.

    The folder has `raw/`, with CSV files or `data.npz`, and `split/`. Edge ids are those of OGB, in the order of the
    files. Node types and edge types are in alphabetical order. Features have the names of their files, with
    underscores, except that "node_feat" and "edge_feat" become "feat". Labels with one column become a vector, and
    labels that are integers become int64. Everything is read into memory. Only arrays are unpickled, and the folder is
    not modified.

    Splits of edges, which need torch 2.6, become seeds of pairs. Where a part has negative edges (ogbl-ppa, -collab,
    -ddi, -vessel), they follow the edges, and `labels` are 1 and 0. Negative destinations of edges (ogbl-citation2)
    produce `labels` and `indexes` in each mini-batch, as negative sampling does. Other columns, such as years and
    weights of edges without negatives, or relations and negative heads and tails of a knowledge graph, are members
    without a name: `dataset.train_set[:]` returns them, in the order of the file, and mini-batches leave them out.
    Facts of ogbl-biokg are grouped by edge type, without their relation.

    Args:
        root: The unpacked folder.
        add_inverse_edge: Whether to insert the reverse of each edge after it, with the same features. OGB does so for
            ogbn-products, ogbn-proteins, ogbl-ppa, ogbl-collab and ogbl-ddi, whose files have each edge once.
        split: Name of the folder in `split/`. It may be None if there is only one.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: pyarrow, which reads CSV files, is not installed.
        ValueError: A file is damaged, or the folder has several graphs.

    Example:
        >>> read_ogb("datasets/arxiv").graph  # doctest: +SKIP
        FusedCSCSamplingGraph(num_nodes=169343, num_edges=1166243)
    """
    raw = Path(root) / "raw"
    if (raw / "edge_index_dict.npz").is_file():
        raise ValueError(f"{raw} has a graph with types in .npz files, which are not read; use the CSV files")
    typed = (raw / BY_TYPE).is_file()
    parts = split_folder(Path(root) / "split", split)
    read = read_typed if typed else read_untyped
    edges, sizes, features = read(raw)
    if add_inverse_edge:
        edges = {edge_type: both_ways(edge_type, pairs) for edge_type, pairs in edges.items()}
        for key, rows in features.items():
            features[key] = rows.repeat(2, axis=0) if key[0] == "edge" else rows
    check_ogb_rows(raw, edges, sizes, features)
    graph = from_coo(from_type_dict(edges), from_type_dict(sizes))
    store = BasicFeatureStore({key: TorchBasedFeature(torch.from_numpy(rows)) for key, rows in features.items()})
    if splits_edges(parts):
        items = read_links(parts, sizes, find_relations(features))
    else:
        items = [ogb_nodes(raw, parts, part, sizes) for part in PARTS]
    whole = {node_type: ItemSet(count, names="seeds") for node_type, count in sizes.items()}
    return Dataset(
        name=Path(root).name,
        graph=graph,
        feature=store,
        train_set=items[0],
        validation_set=items[1],
        test_set=items[2],
        all_nodes_set=HeteroItemSet(whole) if typed else whole[None],
        metadata={"split": parts.name},
    )


def split_folder(folder: Path, name: str | None) -> Path:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if name is None and len(names) == 1:
        name = names[0]
    if name is None or name not in names:
        raise FileNotFoundError(f"{folder} has the splits {names}; split must be one of them, but is {name!r}")
    return folder / name


def read_untyped(raw: Path) -> tuple[dict[Any, Array], dict[Any, int], dict[Any, Array]]:
    """Return edges, number of nodes and features of a graph without types, with None as the type."""
    if (raw / "data.npz").is_file():
        tables = read_npz(raw / "data.npz", "edge_index")
        pairs = check_pairs(raw / "data.npz", tables["edge_index"].T).T
    else:
        tables = read_tables(raw)
        pairs = as_pairs(raw / "edge.csv.gz", tables)
    counts = next((tables[name] for name in ("num_nodes_list", "num-node-list") if name in tables), None)
    if counts is None or counts.size != 1:
        found = "no number of nodes" if counts is None else f"{counts.size} graphs"
        raise ValueError(f"{raw} has {found}; read_ogb reads one graph")
    features = {(domain, None, name): rows for (domain, name), rows in named_features(tables)}
    return {None: pairs}, {None: int(counts.reshape(-1)[0])}, features


def read_typed(raw: Path) -> tuple[dict[Any, Array], dict[Any, int], dict[Any, Array]]:
    """Return edges, numbers of nodes and features by type."""
    counts = read_table(raw / "num-node-dict.csv.gz", header=True).to_pylist()
    if len(counts) != 1:
        raise ValueError(f"{raw} has {len(counts)} graphs; read_ogb reads one graph")
    sizes = {node_type: int(count) for node_type, count in sorted(counts[0].items())}
    edges, features = {}, {}
    triplets = (tuple(map(str, row.values())) for row in read_table(raw / BY_TYPE, header=False).to_pylist())
    for head, relation, tail in sorted(triplets):
        edge_type = f"{head}:{relation}:{tail}"
        folder = raw / "relations" / inside("___".join((head, relation, tail)))
        tables = read_tables(folder)
        edges[edge_type] = as_pairs(folder / "edge.csv.gz", tables)
        features.update({(domain, edge_type, name): values for (domain, name), values in named_features(tables)})
    for node_type in sizes:
        folder = raw / "node-feat" / inside(node_type)
        tables = read_tables(folder)
        features.update({(domain, node_type, name): values for (domain, name), values in named_features(tables)})
    return edges, sizes, features


def inside(name: str) -> str:
    # The name comes from a file, and must not lead out of the folder.
    if name in ("", ".", "..") or "/" in name or os.sep in name:
        raise ValueError(f"a type is named {name!r}, which is not the name of a folder")
    return name


def read_tables(folder: Path) -> dict[str, Array]:
    """Return the tables of a folder that have a row per node or edge, except labels, or the numbers of these."""
    prefixes = "edge.", "edge-", "edge_", "node-", "node_", "num-"
    paths = (path for path in sorted(folder.glob("*.csv.gz")) if path.name.startswith(prefixes))
    names = {path.name.removesuffix(".csv.gz"): path for path in paths}
    return {name: read_csv(path) for name, path in names.items() if name != LABELS}


def named_features(tables: dict[str, Array]) -> Iterator[tuple[tuple[str, str], Array]]:
    """Yield the tables that are features, with domain and name."""
    for table, values in tables.items():
        name = table.replace("-", "_")
        domain, _, rest = name.partition("_")
        if table not in (*COUNTS, *EDGES) and domain in ("node", "edge") and rest:
            rows = values if values.ndim > 1 else values[:, None]
            # As OGB does. Other dtypes in `.npz` files are not converted.
            rows = rows.astype(np.float32) if rows.dtype == np.float64 else rows
            yield (domain, "feat" if rest == "feat" else name), np.ascontiguousarray(rows)


def as_pairs(path: Path, tables: dict[str, Array]) -> Array:
    """Return edges as an array with a row of sources and a row of destinations."""
    if "edge" not in tables:
        raise FileNotFoundError(f"there is no file {path}; unpack the archive again")
    return np.ascontiguousarray(check_pairs(path, tables["edge"]).T)


def check_pairs(path: Path, pairs: Array) -> Array:
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"{path} must have two ids per edge, but has {pairs.dtype} values of shape {pairs.shape}")
    return pairs.astype(np.int64, copy=False)


def both_ways(edge_type: str | None, pairs: Array) -> Array:
    source, destination = ends_of(edge_type)
    if source != destination:
        raise ValueError(
            f"add_inverse_edge is True, but {edge_type!r} connects two node types; add reverse edge types instead"
        )
    # Each edge is followed by its reverse.
    both = pairs.repeat(2, axis=1)
    both[:, 1::2] = pairs[::-1]
    return both


def check_ogb_rows(raw: Path, edges: dict[Any, Array], sizes: dict[Any, int], features: dict[Any, Array]) -> None:
    """Raise a ValueError unless each feature has one row per node or edge."""
    counts = {edge_type: pairs.shape[1] for edge_type, pairs in edges.items()}
    for (domain, type_name, name), rows in features.items():
        expected = (sizes if domain == "node" else counts)[type_name]
        if len(rows) != expected:
            of_type = f" of {type_name!r}" if type_name else ""
            raise ValueError(
                f"{raw}: {domain} feature {name!r}{of_type} has {len(rows)} rows, but there are {expected} {domain}s"
            )


def ogb_nodes(raw: Path, folder: Path, part: str, sizes: dict[Any, int]) -> Any:
    """Return the nodes of a part of the split, with their labels."""
    if None in sizes:
        binary = raw / f"{LABELS}.npz"
        is_binary = binary.is_file()
        labels = read_npz(binary, "node_label")["node_label"] if is_binary else read_csv(raw / f"{LABELS}.csv.gz")
        return items(folder / f"{part}.csv.gz", labels, sizes[None])
    sets = {}
    for node_type, count in sizes.items():
        path = folder / inside(node_type) / f"{part}.csv.gz"
        if path.is_file():
            sets[node_type] = items(path, read_csv(raw / LABELS / node_type / f"{LABELS}.csv.gz"), count)
    if not sets:
        raise FileNotFoundError(f"{folder} has no {part}.csv.gz for any of the node types {list(sizes)}")
    return HeteroItemSet(sets)


def items(path: Path, labels: Array, count: int) -> ItemSet:
    """Return nodes with their labels."""
    ids = read_csv(path).reshape(-1)
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{path} must have ids, but has {ids.dtype} values")
    if len(labels) != count:
        raise ValueError(f"{path}: there are {count} nodes, but {len(labels)} rows of labels")
    if len(ids) and not 0 <= ids.min() <= ids.max() < count:
        raise ValueError(f"{path} has ids from {ids.min()} to {ids.max()}, but there are {count} nodes")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    chosen = labels[ids]
    if chosen.dtype.kind == "f" and not np.isnan(chosen).any():
        # Decided by all labels, so that every part of the split has the same dtype. NaN means that a node has no label.
        known = labels[~np.isnan(labels)]
        chosen = chosen.astype(np.int64) if bool(np.all(known == np.floor(known))) else chosen
    return ItemSet((torch.from_numpy(ids), torch.from_numpy(np.ascontiguousarray(chosen))), names=("seeds", "labels"))


def read_npz(path: Path, needed: str) -> dict[str, Array]:
    try:
        with (
            open(path, "rb", opener=regular_file) as content,
            np.load(content, allow_pickle=False) as file,
            clear_headers(),
        ):
            arrays = dict(file)
    except (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} can't be read: {error}; unpack the archive again") from error
    if needed not in arrays:
        raise ValueError(f"{path} has no array {needed!r}, but {list(arrays)}; unpack the archive again")
    return arrays


def read_csv(path: Path) -> Array:
    """Return a table of numbers without a header: int64 if all are integers, else float64, shape (rows, columns)."""
    columns = [column.to_numpy() for column in read_table(path, header=False).itercolumns()]
    if any(column.dtype.kind not in "iufb" for column in columns):
        raise ValueError(f"{path} must contain only numbers; unpack the archive again")
    return np.stack(columns, axis=1) if columns else np.empty((0, 0), np.int64)


def read_table(path: Path, header: bool) -> Any:
    csv = import_optional("pyarrow.csv", "read_ogb()", install_hint("arrow"))
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; unpack the archive again")
    try:
        return csv.read_csv(path, read_options=csv.ReadOptions(autogenerate_column_names=not header))
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise ValueError(f"{path} can't be read: {error}; unpack the archive again") from error
