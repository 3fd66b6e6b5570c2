"""Features and item sets of a dataset: convert source files to arrays, and read them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.storage.datasets.array_files import load_array, open_array
from graphfeed.storage.datasets.dataset_writer import DatasetWriter
from graphfeed.storage.datasets.item_lists import ItemLists
from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.datasets.metadata import (
    FILE_NAME,
    SETS,
    OnDiskGraph,
    OnDiskTaskData,
    OnDiskTVTSet,
    Section,
    stay_inside,
)
from graphfeed.storage.datasets.processed_graph import check_saved_rows, id_dtype, open_spec
from graphfeed.storage.features.torch_based_feature_store import ENCODING_FILES, OnDiskFeatureData
from graphfeed.storage.graph.type_names import ends_of, has_ends

SEEDS = "seeds"
LEGACY_NAMES = frozenset({"seed_nodes", "node_pairs", "negative_srcs", "negative_dsts"})
"""GraphBolt's names for seeds before `seeds` was introduced."""


def usable_in_place(array: NDArray[Any], format: str, dtype: np.dtype[Any]) -> bool:
    # Whether it can be read and mapped without conversion.
    return format == "numpy" and array.flags.c_contiguous and array.dtype == dtype and dtype.isnative


def write_features(
    folder: Path,
    writer: DatasetWriter,
    specs: tuple[OnDiskFeatureData, ...],
    counts: Mapping[str, Mapping[str | None, int]],
) -> list[dict[str, Any]]:
    """Check features, convert those that can't be read directly, and return their metadata."""
    entries = []
    for index, spec in enumerate(specs):
        key = f"feature_data[{index}]"
        array = open_spec(folder, spec, key)
        if spec.domain != "graph":
            # The number of rows by type.
            known = counts[spec.domain]
            if spec.type not in known:
                raise ValueError(
                    f"{FILE_NAME}: {key}.type must be one of the {spec.domain} types {list(known)}, "
                    f"but is {spec.type!r}"
                )
            check_saved_rows(key, array, known[spec.type])
        if array.ndim == 0:
            raise ValueError(
                f"{FILE_NAME}: {key} must have rows, but is one number; save it as an array of shape (1, 1)"
            )
        native = array.dtype.newbyteorder("=")
        path = str(spec.path)
        # A vector becomes a column, because features have rows.
        if array.ndim == 1 or not usable_in_place(array, spec.format, native):
            path = writer.write("feature", array[:, None] if array.ndim == 1 else array, native)
        entry = {"domain": spec.domain, "type": spec.type, "name": spec.name, "format": "numpy", "path": path}
        entries.append(entry | {"in_memory": spec.in_memory} | spec.extra_fields)
    return entries


def write_tasks(
    folder: Path, writer: DatasetWriter, tasks: tuple[OnDiskTaskData, ...], graph: OnDiskGraph, auto_cast: bool
) -> list[dict[str, Any]]:
    """Check item sets, convert those that can't be read directly, and return their metadata."""
    ids = id_dtype(sum(graph.num_nodes.values()), auto_cast)
    entries = []
    for index, task in enumerate(tasks):
        entry: dict[str, Any] = dict(task.extra_fields)
        for part in SETS:
            entry[part] = [
                write_items(folder, writer, items, f"tasks[{index}].{part}[{number}]", (graph, ids))
                for number, items in enumerate(getattr(task, part))
            ]
        entries.append(entry)
    return entries


def write_items(
    folder: Path, writer: DatasetWriter, items: OnDiskTVTSet, key: str, nodes: tuple[OnDiskGraph, np.dtype[Any]]
) -> dict[str, Any]:
    """Check and convert the items of one type. Seeds get the dtype of the graph's ids."""
    graph, ids = nodes
    data, lengths = [], {}
    for index, spec in enumerate(items.data):
        own = f"{key}.data[{index}]"
        path = stay_inside(folder, spec.path, f"{own}.path")
        if spec.offsets is not None:
            raise ValueError(f"{FILE_NAME}: {own}.offsets: a data set to preprocess has no lists; leave it out")
        array = open_array(path, spec.format, f"{FILE_NAME}: {own}")
        if array.ndim == 0:
            raise ValueError(f"{FILE_NAME}: {own} must have rows, but is one number; save it as an array")
        lengths[own] = len(array)
        if spec.name == SEEDS:
            check_item_seeds(own, array, items.type, graph)
        dtype = ids if spec.name == SEEDS else array.dtype.newbyteorder("=")
        file = spec.path if usable_in_place(array, spec.format, dtype) else writer.write("items", array, dtype)
        data.append({"name": spec.name, "format": "numpy", "path": file, "in_memory": spec.in_memory})
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{FILE_NAME}: {key} must have arrays of equal length, but they have {lengths} rows")
    return {"type": items.type, "data": data} | ({"group_size": items.group_size} if items.group_size > 1 else {})


def check_item_seeds(key: str, array: NDArray[Any], seed_type: str | None, graph: OnDiskGraph) -> None:
    """Raise unless seeds are nodes of the graph: of their node type, or of the endpoint types of their edge type."""
    if array.dtype.kind not in "iu":
        raise ValueError(f"{FILE_NAME}: {key} has seeds, which must be integers, but are {array.dtype}")
    counts = graph.num_nodes
    if seed_type in counts:
        columns = [(seed_type, array)]
    elif seed_type is not None and has_ends(seed_type, counts) and array.ndim == 2 and array.shape[1] == 2:
        columns = list(zip(ends_of(seed_type), array.T, strict=True))
    else:
        raise ValueError(
            f"{FILE_NAME}: {key} has seeds of shape {array.shape} and type {seed_type!r}; the type must be one of "
            f"{list(counts)}, or an edge type between those with seeds of shape (N, 2)"
        )
    for name, column in columns:
        if column.size and (int(column.min()) < 0 or int(column.max()) >= counts[name]):
            raise ValueError(
                f"{FILE_NAME}: {key} must hold ids in 0 .. {counts[name] - 1}, but goes from {column.min()} to "
                f"{column.max()}; check it against graph.nodes"
            )


def open_items(folder: Path, sets: tuple[OnDiskTVTSet, ...], key: str) -> ItemSet | HeteroItemSet | None:
    """Read or map an item set: by type if it has types, None if there are no items."""
    if not sets:
        return None
    by_type = {}
    for items in sets:
        members = []
        for spec in items.data:
            path = stay_inside(folder, spec.path, key)
            torch_file = spec.format == "torch"
            # Mapped copy-on-write: torch has no read-only tensors, and writes must not reach the file.
            mapped = not spec.in_memory
            array = open_array(path, "torch", key) if torch_file else load_array(path, key, mapped=mapped)
            member: Any = torch.from_numpy(array)
            if spec.offsets is not None:
                offsets = load_array(stay_inside(folder, spec.offsets, key), f"{key}.offsets", mapped=mapped)
                member = ItemLists(member, torch.from_numpy(offsets))
            members.append(member)
        names = [spec.name for spec in items.data]
        given = tuple(members) if len(members) > 1 else members[0]
        by_type[items.type] = ItemSet(given, names=names, group_size=items.group_size)
    if None in by_type:
        return by_type[None]
    return HeteroItemSet({type_name: items for type_name, items in by_type.items() if type_name is not None})


def inside(folder: Path, specs: tuple[OnDiskFeatureData, ...]) -> list[OnDiskFeatureData]:
    """Return the specifications of features with the absolute paths of their files."""
    found = []
    for number, spec in enumerate(specs):
        key, more = f"feature_data[{number}]", dict(spec.extra_fields)
        if "encoding" in more:
            encoding = Section(more["encoding"], f"{key}.encoding")
            files = {name: encoding.get(name, str) for name in ENCODING_FILES if name in encoding.values}
            paths = {name: stay_inside(folder, path, encoding.name(name)) for name, path in files.items()}
            more["encoding"] = {**encoding.values, **paths}
        found.append(replace(spec, path=stay_inside(folder, str(spec.path), f"{key}.path"), extra_fields=more))
    return found
