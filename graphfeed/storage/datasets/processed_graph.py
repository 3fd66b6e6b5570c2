"""The graph of a dataset: convert edge lists to arrays in files, and read them."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.process import ProgressBar, progress_bar
from graphfeed.storage.datasets.array_files import ArrayWriter, load_array, open_array, read_csv_edges, write_array
from graphfeed.storage.datasets.dataset_writer import COLUMN_FILES, EDGE_IDS, GRAPH_FOLDER, PROCESSED, DatasetWriter
from graphfeed.storage.datasets.edge_sorting import (
    EdgeArray,
    EdgeFiles,
    Edges,
    Sorting,
    count_in_degrees,
    memory_for_sorting,
    sort_tasks,
)
from graphfeed.storage.datasets.file_tasks import run_tasks
from graphfeed.storage.datasets.folder_writing import SCRATCH
from graphfeed.storage.datasets.metadata import FILE_NAME, GRAPH_TYPE, OnDiskGraph, Section, stay_inside
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID, value_where_missing
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.type_names import ends_of, first_ids
from graphfeed.storage.memory.memory_limits import check_nodes_fit
from graphfeed.storage.memory.new_file import has_stamp, new_stamp, stamp_file


def id_dtype(count: int, auto_cast: bool) -> np.dtype[Any]:
    """Return the dtype for ids below a count: int32 with `auto_cast` if they fit, else int64."""
    return np.dtype(np.int32 if auto_cast and count <= np.iinfo(np.int32).max else np.int64)


def type_dtype(count: int, auto_cast: bool) -> np.dtype[Any]:
    # Types are numbered from 0, so the count may exceed the largest number by one.
    dtypes = [dtype for dtype in (np.uint8, np.int16, np.int32) if auto_cast and count <= np.iinfo(dtype).max + 1]
    return np.dtype(dtypes[0] if dtypes else np.int64)


def open_edges(
    folder: Path, scratch: Path, graph: OnDiskGraph, attributes: Mapping[str, Mapping[str | None, NDArray[Any]]]
) -> list[EdgeFiles]:
    """Map the edge lists with their attributes. CSV lists are converted to files in `scratch` first."""
    first, lists = first_ids(graph.num_nodes), []
    for number, edges in enumerate(graph.edges):
        path = stay_inside(folder, edges.path, f"{edges.key}.path")
        if edges.format == "csv":
            ends: NDArray[Any] = read_csv_edges(path, scratch / f"pairs_{number}", edges.key)
        else:
            ends = open_array(path, edges.format, edges.key)
        types = ends_of(edges.type)
        firsts, counts = (first[types[0]], first[types[1]]), (graph.num_nodes[types[0]], graph.num_nodes[types[1]])
        # Numbered, because attribute names may not be valid file names.
        lists.append(EdgeFiles(edges.type, number, firsts, edges.key, ends, counts))
        for index, (name, by_type) in enumerate(attributes.items()):
            values = attribute_values("edge", name, by_type, edges.type, len(lists[-1]))
            lists[-1].attributes[f"edge_{index}"] = values
    return lists


def open_attributes(folder: Path, graph: OnDiskGraph, domain: str) -> dict[str, dict[str | None, NDArray[Any]]]:
    """Map the attributes of nodes or edges by name and type. All types of a name need one dtype and row shape."""
    found: dict[str, dict[str | None, NDArray[Any]]] = {}
    for index, spec in enumerate(graph.feature_data):
        if spec.domain == domain:
            values = open_spec(folder, spec, f"graph.feature_data[{index}]")
            by_type = found.setdefault(spec.name, {})
            by_type[spec.type] = values
            known = next(iter(by_type.values()))
            if (values.dtype, values.shape[1:]) != (known.dtype, known.shape[1:]):
                raise ValueError(
                    f"{FILE_NAME}: graph.feature_data[{index}] is {values.dtype} of shape {values.shape}, but another "
                    f"type's {spec.name!r} is {known.dtype} of shape {known.shape}; save both the same way"
                )
    return found


def open_spec(folder: Path, spec: OnDiskFeatureData, key: str) -> NDArray[Any]:
    return open_array(stay_inside(folder, str(spec.path), f"{key}.path"), spec.format, f"{FILE_NAME}: {key}")


def attribute_values(
    domain: str, name: str, by_type: Mapping[str | None, NDArray[Any]], of_type: str | None, count: int
) -> NDArray[Any]:
    """Return an attribute of a type, one row for each node or edge, or its default if it is missing."""
    if of_type in by_type:
        check_saved_rows(
            f"graph.feature_data {name!r}" + (f" of {of_type!r}" if of_type else ""), by_type[of_type], count
        )
        return by_type[of_type]
    known = next(iter(by_type.values()))
    value = value_where_missing(domain, torch.from_numpy(np.array(known[:1])))
    # The attributes of all types are stored in one array, so they have one dtype.
    if value is None or value.numpy().dtype != known.dtype:
        raise ValueError(
            f"{FILE_NAME}: graph.feature_data {name!r} of domain {domain} has no entry for the type {of_type!r}; only "
            "times in int64, and weights and masks of edges, may lack types"
        )
    return np.broadcast_to(value.numpy(), count)


def check_saved_rows(what: str, values: NDArray[Any], rows: int) -> None:
    if values.ndim == 0 or len(values) != rows:
        raise ValueError(f"{FILE_NAME}: {what} must have {rows} rows, but has shape {values.shape}")


def write_graph(
    folder: Path, writer: DatasetWriter, graph: OnDiskGraph, with_edge_ids: bool, auto_cast: bool
) -> tuple[dict[str, Any], dict[str | None, int]]:
    """Write the arrays of a graph, and return their metadata and the number of edges of each type."""
    graph_folder = writer.graph
    given = open_attributes(folder, graph, "edge")
    lists = open_edges(folder, writer.folder, graph, given)
    attributes = {}
    # All types have the same attributes, as checked before.
    for name, (column, values) in zip(given, lists[0].attributes.items(), strict=True):
        attributes[name] = EdgeArray(graph_folder / f"{column}.npy", column, values.dtype, values.shape[1:])
    if with_edge_ids:
        # The position of each edge in the list of its type.
        attributes[ORIGINAL_EDGE_ID] = EdgeArray(
            graph_folder / EDGE_IDS, "row", id_dtype(sum(map(len, lists)), auto_cast)
        )
    progress = partial(progress_bar, unit="edge")
    sorting = Sorting(memory_for_sorting())
    topology = write_edges(graph_folder, lists, graph.num_nodes, attributes, auto_cast, sorting, progress)
    # Remove the converted CSV files.
    for leftover in writer.folder.glob("pairs_*"):
        leftover.unlink()
    topology["node_attributes"] = write_node_attributes(folder, graph_folder, graph)
    return topology, {edges.type: len(edges) for edges in lists}


def write_edges(
    graph_folder: Path,
    edges: Sequence[Edges],
    num_nodes: Mapping[str | None, int],
    attributes: Mapping[str, EdgeArray],
    auto_cast: bool,
    sorting: Sorting,
    progress: Callable[[str, int], ProgressBar],
) -> dict[str, Any]:
    """Sort the edges of a graph into the arrays of a folder, and return the metadata of the graph.

    Ranges of columns are tasks. Finished tasks are recorded in a subfolder, which is removed at the end: a call after
    an interrupted one runs only the others. The edges of each type may be in several pieces. With `auto_cast`, ids have
    the smallest dtype that fits.
    """
    check_nodes_fit("the number of nodes", sum(num_nodes.values()))
    total, first = sum(map(len, edges)), first_ids(num_nodes)
    indptr_file, indices_file, types_file = (graph_folder / name for name in COLUMN_FILES)
    arrays = [EdgeArray(indices_file, "source", id_dtype(sum(num_nodes.values()), auto_cast))]
    typed = None not in num_nodes
    if typed:
        arrays.append(EdgeArray(types_file, "type", type_dtype(len({own.type for own in edges}), auto_cast)))
    with progress("counting edges", total) as bar:
        write_array(indptr_file, count_in_degrees(edges, sum(num_nodes.values()), bar), id_dtype(total, auto_cast))
    with progress("sorting edges", total) as bar:
        tasks = sort_tasks(edges, indptr_file, [*arrays, *attributes.values()], sorting)
        run_tasks(graph_folder, tasks, sorting.executor, bar.update)
    # It has the results of tasks for resumed runs; all tasks are done.
    shutil.rmtree(graph_folder / SCRATCH)
    # Sorted arrays are valid: they need no check when they are read, as long as the files have this stamp.
    stamp = new_stamp()
    for path in (indptr_file, indices_file, types_file)[: 3 if typed else 2]:
        stamp_file(path, stamp)
    return {
        "path": f"{PROCESSED}/{GRAPH_FOLDER}",
        "type": GRAPH_TYPE,
        "written": stamp,
        "node_type_offset": [*first.values(), sum(num_nodes.values())] if typed else None,
        "node_type_to_id": {name: number for number, name in enumerate(first)} if typed else None,
        "edge_type_to_id": {own.type: own.number for own in edges} if typed else None,
        "edge_attributes": {name: array.path.name for name, array in attributes.items()},
    }


def write_node_attributes(folder: Path, graph_folder: Path, graph: OnDiskGraph) -> dict[str, str]:
    files = {}
    for number, (name, by_type) in enumerate(open_attributes(folder, graph, "node").items()):
        files[name] = f"node_{number}.npy"
        row = next(iter(by_type.values())).shape[1:]
        dtype = next(iter(by_type.values())).dtype
        with ArrayWriter(graph_folder / files[name], (sum(graph.num_nodes.values()), *row), dtype) as writer:
            for node_type, count in graph.num_nodes.items():
                writer.append(attribute_values("node", name, by_type, node_type, count))
    return files


def open_graph(folder: Path, topology: Mapping[str, Any]) -> FusedCSCSamplingGraph:
    """Read a graph that `write_graph` wrote, or map it if its metadata has `in_memory: false`.

    Files are mapped copy-on-write: writes don't reach them. Unmodified files are not checked (see `load_graph`).
    """
    section = Section(topology, "graph_topology")
    graph_folder = stay_inside(folder, section.get("path", str), "graph_topology.path")
    mapped = not section.get("in_memory", bool, True)
    numbers = {name: open_numbers(section, name) for name in ("node_type_to_id", "edge_type_to_id")}
    offsets = section.get("node_type_offset", list, None)
    if offsets is not None and not all(type(offset) is int and 0 <= offset < 1 << 62 for offset in offsets):
        raise ValueError(f"{FILE_NAME}: graph_topology.node_type_offset must be integers, but is {brief(offsets)}")

    def read(name: Any, key: str) -> torch.Tensor:
        path = stay_inside(folder, str(graph_folder / str(name)), f"graph_topology.{key}")
        return torch.from_numpy(load_array(path, f"{FILE_NAME}: graph_topology.{key}", mapped=mapped))

    def read_all(key: str) -> dict[str, torch.Tensor]:
        return {str(name): read(file, f"{key}.{name}") for name, file in section.get(key, dict, {}).items()}

    columns = COLUMN_FILES[: 2 if offsets is None else 3]
    indptr, indices, *types = [read(name, "path") for name in columns]
    graph = FusedCSCSamplingGraph(
        indptr,
        indices,
        None if offsets is None else torch.tensor(offsets, dtype=torch.int64, device="cpu").to(indices.dtype),
        types[0] if types else None,
        numbers["node_type_to_id"],
        numbers["edge_type_to_id"],
        read_all("node_attributes"),
        read_all("edge_attributes"),
    )
    stamp = section.get("written", int, None)
    # Avoids reading all of it if the graph is mapped.
    if all(has_stamp(graph_folder / name, stamp) for name in columns):
        graph.trust_saved()
    else:
        graph.check()
    return graph


def open_numbers(section: Section, key: str) -> dict[str, int] | None:
    numbers = section.get(key, dict, None)
    # Compare the type, since a bool is an int to Python.
    if numbers is not None and not all(
        isinstance(name, str) and type(number) is int for name, number in numbers.items()
    ):
        raise ValueError(f"{section.file}: {section.name(key)} must map types to integers, but is {brief(numbers)}")
    return None if numbers is None else dict(numbers)
