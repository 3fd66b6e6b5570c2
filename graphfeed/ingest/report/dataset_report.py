"""Reports on data sets: types, degrees, features, items, what looks wrong, and whether the files are whole."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.process import progress_bar
from graphfeed.storage import Feature
from graphfeed.storage.datasets import PROCESSED, OnDiskDataset, Section, checksum, split_columns, stay_inside
from graphfeed.storage.graph import (
    EdgeType,
    FusedCSCSamplingGraph,
    NodeType,
    ends_of,
    first_ids,
    load_graph,
    to_type_dict,
    verify_graph,
)

PART = 1 << 20
"""How many edges, or numbers of a feature, are looked at at a time."""


@dataclass(frozen=True)
class NodeReport:
    """What is known about the nodes of a type."""

    count: int
    isolated: int
    """How many have no edge at all."""


@dataclass(frozen=True)
class EdgeReport:
    """What is known about the edges of a type."""

    count: int
    in_degrees: NDArray[np.int64]
    """How many edges end at each node of the destination's type."""
    most_out: int
    """The most edges that begin at one node."""
    duplicates: int
    """How many edges join two nodes that an earlier edge joins already."""
    loops: int
    """How many edges begin and end at the same node."""


@dataclass(frozen=True)
class FeatureReport:
    """What is known about a feature."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    nan: int
    """How many values are NaN."""


@dataclass(frozen=True)
class DatasetReport:
    """What is in a data set; as text, a table of each."""

    name: str | None
    nodes: dict[NodeType, NodeReport]
    edges: dict[EdgeType, EdgeReport]
    features: dict[tuple[str, str | None, str], FeatureReport]
    tasks: list[str]
    checksum: str | None
    """One for all arrays, if the data set has checksums."""
    damaged: list[str] = field(default_factory=list)
    """The files that are missing or have changed since they were written."""
    skipped: list[Mapping[str, Any]] = field(default_factory=list)
    """The rows that were left out when the data set was made."""

    def __str__(self) -> str:
        lines = [f"data set {self.name}"] if self.name else []
        rows = [
            (str(node_type), f"{report.count:,}", f"{report.isolated:,}") for node_type, report in self.nodes.items()
        ]
        lines += table(("nodes", "count", "isolated"), rows)
        headings = ("edges", "count", "in-degree: mean", "median", "most", "out-degree: most", "duplicates", "loops")
        lines += table(headings, [(str(edge_type), *cells(report)) for edge_type, report in self.edges.items()])
        features = []
        for (domain, type_name, name), report in self.features.items():
            numbers = (" x ".join(map(str, report.shape)), f"{report.low:g}", f"{report.high:g}", f"{report.nan:,}")
            features.append((f"{domain} {type_name} {name}", report.dtype, *numbers))
        if features:
            lines += table(("feature", "dtype", "shape", "least", "largest", "NaN"), features)
        lines += self.tasks
        lines += [f"{entry['rows']} rows of {entry['file']} were left out: {entry['reason']}" for entry in self.skipped]
        if self.checksum is not None:
            state = f"damaged: {', '.join(self.damaged)}" if self.damaged else "all files are as they were written"
            lines.append(f"checksum {self.checksum}; {state}")
        return "\n".join(lines)


def inspect_dataset(folder: str | os.PathLike[str]) -> DatasetReport:
    """Look through a data set: a pass over its edges and features, in bounded memory beside some counts per node.

    Args:
        folder: The folder of an `OnDiskDataset`.

    Raises:
        FileNotFoundError: The folder or a file does not exist.
        ValueError: A file is wrong, or there is no graph.
    """
    dataset = OnDiskDataset(folder)
    data = dataset.yaml_data
    known = check_known(data)
    damaged = find_damage(Path(folder), known)
    for entry in data.get("feature_data") or ():
        entry["in_memory"] = False
    dataset.load()
    graph = dataset.graph
    if graph is None:
        raise ValueError(f"the data set in {folder} has no graph")
    nodes, edges = inspect_graph(graph)
    features = {
        (domain, type_name, name): inspect_feature(dataset.feature[(domain, type_name, name)])
        for domain, type_name, name in dataset.feature.keys()  # noqa: SIM118
    }
    tasks = []
    for task in dataset.tasks:
        sets = (("train", task.train_set), ("validation", task.validation_set), ("test", task.test_set))
        counts = ", ".join(f"{len(items):,} to {part}" for part, items in sets if items is not None)
        classes = task.metadata.get("num_classes")
        tasks.append(f"task {task.metadata.get('name')}: {counts}" + (f"; {classes} classes" if classes else ""))
    whole = hashlib.sha256("\n".join(f"{name} {known[name]}" for name in sorted(known)).encode()).hexdigest()[:16]
    skipped = Section(dataset.yaml_data).get("skipped", list, [])
    if not all(isinstance(entry, Mapping) and {"file", "rows", "reason"} <= set(entry) for entry in skipped):
        raise ValueError(f"skipped must tell file, rows and reason of each entry, but is {brief(skipped)}")
    return DatasetReport(
        dataset.dataset_name, nodes, edges, features, tasks, whole if known else None, damaged, skipped
    )


def inspect_graph_file(path: str | os.PathLike[str], *, verify: bool = False) -> DatasetReport:
    """Look through the file of a graph, in a pass over its edges.

    Args:
        path: The file.
        verify: Whether to compare it with its checksum, which takes another pass.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: It is no graph, or is damaged; or it is to be verified and has no checksum.
    """
    checksum = verify_graph(Path(path)) if verify else None
    nodes, edges = inspect_graph(load_graph(path))
    return DatasetReport(None, nodes, edges, {}, [], checksum)


def check_known(data: Mapping[str, Any]) -> dict[str, str]:
    known = data.get("checksums") or {}  # none if another program made it
    if not isinstance(known, Mapping) or not all(isinstance(value, str) for pair in known.items() for value in pair):
        raise ValueError(f"checksums must map files to texts, but is {brief(known)}")
    return dict(known)


def find_damage(folder: Path, known: Mapping[str, str]) -> list[str]:
    damaged = []
    with progress_bar("verifying files", len(known), "file") as progress:
        for name, expected in known.items():
            path = stay_inside(folder, f"{PROCESSED}/{name}", "checksums")
            if not path.is_file() or checksum(path) != expected:
                damaged.append(name)
            progress.update()
    return damaged


@dataclass
class EdgeCounts:
    """What is counted of the edges of a type, part by part."""

    first_nodes: tuple[int, int]
    """The first ids of the source type and of the destination type."""
    out: NDArray[np.int64]
    into: NDArray[np.int64]
    """How many edges begin, and how many end, at each node."""
    duplicates: int = 0
    loops: int = 0

    def add(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        self.out += np.bincount(sources - self.first_nodes[0], minlength=len(self.out))
        self.into += np.bincount(destinations - self.first_nodes[1], minlength=len(self.into))
        # Doubles are side by side then, because all edges of a destination come at once.
        order = np.lexsort((sources, destinations))
        same = (np.diff(sources[order]) == 0) & (np.diff(destinations[order]) == 0)
        self.duplicates += int(same.sum())
        self.loops += int((sources == destinations).sum())

    def report(self) -> EdgeReport:
        return EdgeReport(int(self.into.sum()), self.into, int(self.out.max(initial=0)), self.duplicates, self.loops)


def inspect_graph(graph: FusedCSCSamplingGraph) -> tuple[dict[NodeType, NodeReport], dict[EdgeType, EdgeReport]]:
    """Count degrees, duplicates and loops by type, in one pass over the edges."""
    num_nodes, first = to_type_dict(graph.num_nodes), first_ids(graph.num_nodes)
    numbers: Mapping[Any, int] = graph.edge_type_to_id or {None: 0}
    ends = {edge_type: ends_of(edge_type) for edge_type in numbers}
    counts = {}
    for edge_type in sorted(numbers, key=numbers.__getitem__):
        source, destination = ends[edge_type]
        out, into = (np.zeros(num_nodes[end], dtype=np.int64) for end in (source, destination))
        counts[edge_type] = EdgeCounts((first[source], first[destination]), out, into)
    with progress_bar("looking at edges", graph.total_num_edges, "edge") as progress:
        for columns, sources, types in whole_columns(graph):
            for edge_type, counted in counts.items():
                chosen = slice(None) if types is None else types == numbers[edge_type]
                counted.add(sources[chosen], columns[chosen])
            progress.update(len(sources))
    nodes = {}
    for node_type, count in num_nodes.items():
        joined = np.zeros(count, dtype=bool)
        for edge_type, counted in counts.items():
            for end, degrees in zip(ends[edge_type], (counted.out, counted.into), strict=True):
                if end == node_type:
                    joined |= degrees > 0
        nodes[node_type] = NodeReport(count, count - int(joined.sum()))
    return nodes, {edge_type: counted.report() for edge_type, counted in counts.items()}


def whole_columns(
    graph: FusedCSCSamplingGraph,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]]:
    """Yield the destinations, sources and types of the edges of some whole columns after each other."""
    indptr, indices = graph.csc_indptr.numpy(), graph.indices.numpy()
    types = None if graph.type_per_edge is None else graph.type_per_edge.numpy()
    for first, last in split_columns(indptr, PART):
        start, stop = int(indptr[first]), int(indptr[last])
        columns = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        if stop > start:
            yield columns, indices[start:stop].astype(np.int64), None if types is None else types[start:stop]


def inspect_feature(feature: Feature) -> FeatureReport:
    """Return the bounds of a feature and how many values are NaN, read part by part."""
    rows, width = feature.count(), max(feature.size().numel(), 1)
    assert rows is not None
    low, high, nan, dtype = float("inf"), float("-inf"), 0, None
    step = max(PART // width, 1)
    for start in range(0, max(rows, 1), step):
        values = feature.read(torch.arange(start, min(start + step, rows)))
        dtype = values.dtype
        numbers = values.numpy()  # because torch finds no bounds of uint16, uint32 and uint64
        if values.is_floating_point():
            missing = np.isnan(numbers)
            nan += int(missing.sum())
            numbers = numbers[~missing]
        if numbers.size:
            low, high = min(low, float(numbers.min())), max(high, float(numbers.max()))
    return FeatureReport(str(dtype).removeprefix("torch."), (rows, *feature.size()), low, high, nan)


def cells(report: EdgeReport) -> tuple[str, ...]:
    degrees = report.in_degrees if report.in_degrees.size else np.zeros(1, dtype=np.int64)
    counts = [f"{count:,}" for count in (int(degrees.max()), report.most_out, report.duplicates, report.loops)]
    return (f"{report.count:,}", f"{degrees.mean():.2f}", f"{np.median(degrees):g}", *counts)


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for name, *numbers in (headings, *rows):
        # Names are set to the left, numbers to the right.
        row = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]
        lines.append("  ".join(row).rstrip())
    return [*lines, ""]
