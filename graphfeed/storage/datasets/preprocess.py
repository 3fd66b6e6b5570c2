"""Convert the source files of a dataset, once and atomically, to arrays that can be read or mapped directly."""

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from graphfeed.ops.arguments import checked
from graphfeed.ops.process import current_limits, regular_file
from graphfeed.storage.datasets.dataset_writer import PROCESSED, DatasetWriter
from graphfeed.storage.datasets.folder_writing import process_lock
from graphfeed.storage.datasets.metadata import (
    FILE_NAME,
    SETS,
    OnDiskMetaData,
    check_folder,
    parse_metadata,
    read_yaml,
    stay_inside,
)
from graphfeed.storage.datasets.processed_arrays import write_features, write_tasks
from graphfeed.storage.datasets.processed_graph import write_graph


def file_digest(path: Path) -> str:
    with open(path, "rb", opener=regular_file) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_file(folder: Path, path: str, digest: bool) -> dict[str, Any]:
    """Return an entry that identifies the current version of a file. A digest reads the whole file."""
    status = (folder / path).stat()
    # The path is relative to the folder, which may be moved.
    entry = {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return entry | ({"digest": file_digest(folder / path)} if digest else {})


def find_change(folder: Path, entries: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the path of the first file that differs from its description, or None."""
    for entry in entries:
        path = folder / entry["path"]
        # A missing file has not changed: the results made from it can still be used.
        if not path.exists():
            continue
        status = path.stat()
        if status.st_size == entry["size"]:
            if status.st_mtime_ns == entry["mtime_ns"]:
                continue
            # Only the time differs, as after copying: the digest decides if there is one.
            if "digest" in entry and file_digest(path) == entry["digest"]:
                continue
        return str(entry["path"])
    return None


LAYOUT = 1
"""Version of the processed folder's layout. Folders of other versions are preprocessed again."""
LOCK = ".graphfeed-lock"
"""Time to wait for another process that preprocesses the same dataset."""

LOGGER = logging.getLogger(__name__)


@checked
def preprocess_ondisk_dataset(
    dataset_dir: str | os.PathLike[str],
    include_original_edge_id: bool = False,
    force_preprocess: bool | None = None,
    auto_cast_to_optimal_dtype: bool = True,
    *,
    digest: bool = False,
) -> str:
    """Preprocess the files that `dataset_dir/metadata.yaml` names into `dataset_dir/graphfeed`, unless up to date.

    The result consists of `.npy` arrays and a `metadata.yaml` that lists them. Edges and edge attributes are sorted by
    destination; node types and edge types are numbered in alphabetical order. Features and items in suitable `.npy`
    files are used in place. The folder appears only when everything is on the disk; other processes that need it wait
    for the first one. The dataset's folder may be moved afterwards.

    Edge lists are mapped, read in parts and sorted in at most a quarter of the machine's memory, so they may be larger
    than memory. 20 million int64 edges (320 MB) with weights and original edge ids took 8 s and at most 830 MB, 2.6
    times the list: 350 MB of memory, and mapped files, which the system may drop.

    Args:
        include_original_edge_id: Whether the ids of sampled edges are their positions in the edge list of their type.
            With edge features they always are, because the features are found by these ids.
        force_preprocess: True always preprocesses, and False only if there is no result. None also does so if the
            options, or the size or time of a source file, have changed.
        auto_cast_to_optimal_dtype: Whether ids, including seeds, and column starts are int32 if that suffices, and edge
            types as small as possible. A graph that is sampled on the CPU keeps copies of column starts in int32 and of
            edge types in int16 (see `fused_csc_sampling_graph`).
        digest: Whether to keep digests of the source files. With a digest, a file does not count as changed if only its
            modification time has.

    Returns:
        The path of the resulting `metadata.yaml`.

    Raises:
        FileNotFoundError: The folder or a file does not exist.
        TimeoutError: Another process has been preprocessing the dataset for four hours.
        ValueError: A key or a file is invalid; the error names the key.
    """
    folder = check_folder(dataset_dir)
    options = {
        "layout": LAYOUT,
        "include_original_edge_id": include_original_edge_id,
        "auto_cast_to_optimal_dtype": auto_cast_to_optimal_dtype,
    }
    made = folder / PROCESSED / FILE_NAME
    reason = "force_preprocess is True" if force_preprocess else why_preprocess(folder, options, force_preprocess)
    if reason is not None:
        with process_lock(folder / LOCK, current_limits().preprocess_seconds):
            # Another process may have finished in the meantime.
            reason = reason if force_preprocess else why_preprocess(folder, options, force_preprocess)
            if reason is not None:
                LOGGER.info("preprocessing %s because %s", folder, reason)
                check_replaceable(folder)
                with DatasetWriter.open(folder / PROCESSED, prefix=PROCESSED, replace=True) as writer:
                    write_processed(folder, writer, options, digest)
    return str(made)


def why_preprocess(folder: Path, options: Mapping[str, Any], force: bool | None) -> str | None:
    """Return why the dataset must be preprocessed, or None if the processed folder can be used."""
    made = folder / PROCESSED / FILE_NAME
    if not made.is_file():
        return f"there is no {PROCESSED}/{FILE_NAME}"
    known = read_yaml(folder, made)
    if known.get("layout") != LAYOUT:
        return "another version wrote it"
    # If changes are ignored, or the source is gone, the existing result is used.
    if force is False or not (folder / FILE_NAME).is_file():
        return None
    for name, value in options.items():
        if known[name] != value:
            return f"{name} was {known[name]}"
    changed = find_change(folder, known["sources"])
    return None if changed is None else f"{changed} has changed"


def check_replaceable(folder: Path) -> None:
    source, final = folder / FILE_NAME, folder / PROCESSED
    if not source.is_file():
        raise FileNotFoundError(f"{source} does not exist; it names the files of the dataset")
    # Any other folder of this name must not be replaced.
    if final.exists() and not (final / FILE_NAME).is_file():
        raise FileExistsError(f"{final} has no {FILE_NAME}, so it is not a processed folder; move it away")


def name_files(metadata: OnDiskMetaData) -> dict[str, str]:
    graph = metadata.graph
    paths = {} if graph is None else {f"{part.key}.path": part.path for part in graph.edges}
    for key, features in (("", metadata.feature_data), ("graph.", () if graph is None else graph.feature_data)):
        paths.update((f"{key}feature_data[{index}].path", str(part.path)) for index, part in enumerate(features))
    for index, task in enumerate(metadata.tasks):
        for part in SETS:
            for number, items in enumerate(getattr(task, part)):
                key = f"tasks[{index}].{part}[{number}]"
                paths.update((f"{key}.data[{member}].path", data.path) for member, data in enumerate(items.data))
    return paths


def write_processed(folder: Path, writer: DatasetWriter, options: Mapping[str, Any], digest: bool) -> None:
    # Described first, so that any later modification counts as a change.
    described = [describe_file(folder, FILE_NAME, digest=True)]
    metadata = parse_metadata(read_yaml(folder, folder / FILE_NAME))
    graph = metadata.graph
    if graph is None:
        raise ValueError(f"Invalid config: {FILE_NAME} does not contain graph field; give graph.nodes and graph.edges")
    # Check all paths before anything is written.
    named = {path: stay_inside(folder, path, key) for key, path in name_files(metadata).items()}
    described += [describe_file(folder, path, digest) for path, file in named.items() if file.is_file()]
    auto_cast = options["auto_cast_to_optimal_dtype"]
    # Edge features have the rows of the edge lists, which are found by these ids.
    with_edge_ids = options["include_original_edge_id"] or any(part.domain == "edge" for part in metadata.feature_data)
    topology, num_edges = write_graph(folder, writer, graph, with_edge_ids, auto_cast)
    counts = {"node": graph.num_nodes, "edge": num_edges}
    processed = {
        **options,
        "dataset_name": metadata.dataset_name,
        "graph_topology": topology,
        "feature_data": write_features(folder, writer, metadata.feature_data, counts),
        "tasks": write_tasks(folder, writer, metadata.tasks, graph, auto_cast),
        "sources": described,
    }
    writer.finish(processed)
