"""Reports the contents of a dataset or a graph file: types, edges, features, items, and whether it is intact."""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfeed.ops.arguments import brief
from graphfeed.ops.process import current_limits, progress_bar
from graphfeed.storage.datasets.dataset_writer import damaged_files
from graphfeed.storage.datasets.edge_sorting import split_column_ranges
from graphfeed.storage.datasets.metadata import SETS, Section, read_yaml
from graphfeed.storage.datasets.on_disk_dataset import open_in_files
from graphfeed.storage.features.encoded_feature import EncodedFeature
from graphfeed.storage.features.feature import Feature
from graphfeed.storage.graph import FusedCSCSamplingGraph, ends_of, first_ids, load_graph, to_type_dict, verify_graph

PARTITION = "partition.json"
"""Metadata of a folder that `graphfeed.distributed.write_partition` wrote."""


@dataclass(frozen=True)
class DatasetReport:
    """Lines of name, size and details; the checksum; damaged files; and rows that were left out."""

    lines: list[tuple[str, str, str]]
    checksum: str | None = None
    damaged: Sequence[str] = ()
    skipped: Sequence[Mapping[str, Any]] = ()

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in list(zip(*self.lines, strict=True))[:2]]
        text = [f"{what:{widths[0]}}  {size:>{widths[1]}}  {more}".rstrip() for what, size, more in self.lines]
        text += [f"{entry['rows']} rows of {entry['file']} were left out: {entry['reason']}" for entry in self.skipped]
        if self.checksum is not None:
            state = f"damaged: {', '.join(self.damaged)}" if self.damaged else "all files are unchanged"
            text.append(f"checksum {self.checksum}; {state}")
        return "\n".join(text)


def inspect_dataset(folder: str | os.PathLike[str]) -> DatasetReport:
    """Inspect an `OnDiskDataset`'s folder in bounded memory: a pass over its files, edges and features.

    Raises:
        FileNotFoundError: The folder or a file does not exist.
        ValueError: A file is invalid, or there is no graph.
    """
    dataset = open_in_files(folder)
    made = dataset._prepare()
    found = Section(read_yaml(Path(folder).resolve(), made)).get("checksums", dict, {})
    known = {str(name): str(own) for name, own in found.items()}
    damaged = damaged_files(made.parent, known)
    dataset.load()
    skipped = Section(dataset.yaml_data).get("skipped", list, [])
    if not all(isinstance(entry, Mapping) and {"file", "rows", "reason"} <= set(entry) for entry in skipped):
        raise ValueError(f"skipped must have file, rows and reason in each entry, but is {brief(skipped)}")
    if dataset.graph is None:
        raise ValueError(f"the dataset in {folder} has no graph")
    lines = [("data set", "", dataset.dataset_name)] if dataset.dataset_name else []
    lines += describe_graph(dataset.graph)
    for key in dataset.feature.keys():  # noqa: SIM118
        lines.append((f"feature {' '.join(map(str, key))}", *describe_feature(dataset.feature[key])))
    for task in dataset.tasks:
        classes = f"{task.metadata['num_classes']} classes" if task.metadata.get("num_classes") else ""
        for part in SETS:
            if (items := getattr(task, part)) is not None:
                lines.append((f"{part} of {task.metadata.get('name')}", f"{len(items):,}", classes))
    return DatasetReport(lines, whole_checksum(known), damaged, skipped)


def inspect_partition(folder: Path) -> DatasetReport:
    """Compare the arrays of a partition with their checksums, without those of parts that are on other machines."""
    content = Section(json.loads((folder / PARTITION).read_text(encoding="utf-8")), file=PARTITION)
    found = content.get("checksums", dict, {})
    known = {str(name): str(own) for name, own in found.items() if (folder / name).parent.is_dir()}
    lines = [("partition", f"{len(content.get('parts', list)):,} parts", f"{len(known):,} arrays here")]
    return DatasetReport(lines, whole_checksum(known), damaged_files(folder, known))


def whole_checksum(known: Mapping[str, str]) -> str | None:
    """Return the checksum of checksums; None without any."""
    text = "\n".join(f"{name} {known[name]}" for name in sorted(known))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if known else None


def inspect_graph_file(path: str | os.PathLike[str], *, verify: bool = False) -> DatasetReport:
    """Inspect the file of a graph, in a pass over its edges.

    Args:
        verify: Whether to compare it with its checksum, which takes another pass.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: It is not a graph, or is damaged; or `verify` is True and it has no checksum.
    """
    known = verify_graph(Path(path)) if verify else None  # before loading data that may be damaged
    return DatasetReport(list(describe_graph(load_graph(path))), known)


def describe_graph(graph: FusedCSCSamplingGraph) -> Iterator[tuple[str, str, str]]:
    """Yield a line for each node type, and for each edge type with its degrees, duplicates and loops."""
    num_nodes, first = to_type_dict(graph.num_nodes), first_ids(graph.num_nodes)
    indptr, joined = graph.csc_indptr.numpy(), np.zeros(graph.total_num_nodes, dtype=bool)
    numbers: Mapping[Any, int] = graph.edge_type_to_id or {None: 0}
    counts, most = {edge_type: np.zeros(3, dtype=np.int64) for edge_type in numbers}, dict.fromkeys(numbers, 0)
    with progress_bar("looking at edges", graph.total_num_edges, "edge") as progress:
        for start, stop in split_column_ranges(indptr, current_limits().part_values):
            edges = slice(int(indptr[start]), int(indptr[stop]))
            columns = np.repeat(np.arange(start, stop), np.diff(indptr[start : stop + 1]))
            sources = graph.indices[edges].numpy()
            joined[columns] = joined[sources] = True
            for edge_type, number in numbers.items():
                chosen = slice(None) if graph.type_per_edge is None else graph.type_per_edge[edges].numpy() == number
                into, out = columns[chosen], sources[chosen]
                # All edges to a destination are in one part.
                again = len(into) - len(np.unique(into * graph.total_num_nodes + out))
                counts[edge_type] += len(into), again, int((into == out).sum())
                most[edge_type] = max(most[edge_type], int(np.bincount(into - start, minlength=1).max()))
            progress.update(len(columns))
    for node_type, count in num_nodes.items():
        lonely = count - int(joined[first[node_type] :][:count].sum())
        yield f"nodes {node_type}", f"{count:,}", f"{lonely:,} without edges"
    for edge_type, (total, doubles, loops) in counts.items():
        degrees = f"in-degree {total / max(num_nodes[ends_of(edge_type)[1]], 1):.2f}, at most {most[edge_type]:,}"
        yield f"edges {edge_type}", f"{total:,}", f"{degrees}; {doubles:,} duplicates, {loops:,} loops"


def describe_feature(feature: Feature) -> tuple[str, str]:
    """Return the shape of a feature, and its dtype and bounds, in bounded memory."""
    rows, size = feature.count() or 0, tuple(feature.size())
    low, high, nan = float("inf"), float("-inf"), 0
    step = max(current_limits().part_values // max(feature.size().numel(), 1), 1)
    for start in range(0, max(rows, 1), step):
        numbers = feature.read(torch.arange(start, min(start + step, rows), device="cpu")).numpy()
        kept = numbers[~np.isnan(numbers)] if numbers.dtype.kind == "f" else numbers
        nan += numbers.size - kept.size
        if kept.size:
            low, high = min(low, float(kept.min())), max(high, float(kept.max()))
    text = f"{numbers.dtype}, from {low:g} to {high:g}, {nan:,} NaN"
    if isinstance(feature, EncodedFeature):
        text += f"; {feature.describe_codes()}"
    return " x ".join(map(str, (rows, *size))), text


def add_inspect_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="the folder of an OnDiskDataset or of a partition, or a saved graph")
    parser.add_argument("--verify", action="store_true", help="compare a saved graph with its checksum, too")


def run_inspect(options: Any) -> None:
    path = options.path
    if path.is_file():
        report = inspect_graph_file(path, verify=options.verify)
    else:
        report = inspect_partition(path) if (path / PARTITION).is_file() else inspect_dataset(path)
    sys.stdout.write(f"{report}\n")
    if report.damaged:
        raise ValueError(f"{len(report.damaged)} files of {path} are damaged; build the dataset again")
