"""The graph of a dataset: converts edge lists to arrays in files, and reads those."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.progress import progress_bar
from graphfeed.storage.datasets.array_files import (
    ArrayWriter,
    load_array,
    open_array,
    read_csv_edges,
    write_array,
)
from graphfeed.storage.datasets.edge_sorting import EdgeArray, EdgeList, check_edges, count_in_degrees, write_sorted
from graphfeed.storage.datasets.metadata import FILE_NAME, OnDiskGraph, Section, stay_inside
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from graphfeed.storage.graph.fused_csc_sampling_graph import (
    FusedCSCSamplingGraph,
    fused_csc_sampling_graph,
)
from graphfeed.storage.graph.sampling.one_hop import ORIGINAL_EDGE_ID

GRAPH_FOLDER = "graph"


def id_dtype(count: int, auto_cast: bool) -> np.dtype[Any]:
    """Return the dtype for ids below a count: int32 with `auto_cast` if they fit, else int64."""
    return np.dtype(np.int32 if auto_cast and count <= np.iinfo(np.int32).max else np.int64)


def type_dtype(count: int, auto_cast: bool) -> np.dtype[Any]:
    """Return the dtype for edge types: the smallest that fits with `auto_cast`, else int64."""
    kinds = [kind for kind in (np.uint8, np.int16, np.int32) if auto_cast and count <= np.iinfo(kind).max + 1]
    return np.dtype(kinds[0] if kinds else np.int64)


def stack_types(graph: OnDiskGraph) -> dict[str | None, int]:
    """Return the first id of each node type."""
    first, total = {}, 0
    for kind, count in graph.num_nodes.items():
        first[kind] = total
        total += count
    return first


def open_edges(folder: Path, scratch: Path, graph: OnDiskGraph) -> list[EdgeList]:
    """Map the edge lists. Lists in CSV are converted to a file in `scratch` first."""
    first, attributes = stack_types(graph), open_attributes(folder, graph, "edge")
    lists = []
    for number, edges in enumerate(graph.edges):
        path = stay_inside(folder, edges.path, f"{edges.key}.path")
        if edges.format == "csv":
            ends: NDArray[Any] = read_csv_edges(path, scratch / f"pairs_{number}", edges.key)
        else:
            ends = open_array(path, edges.format, edges.key)
        kinds: tuple[str | None, str | None] = (None, None)
        if edges.type is not None:
            kinds = (edges.type.split(":")[0], edges.type.split(":")[2])
        own = {name: by_type[edges.type] for name, by_type in attributes.items()}
        firsts, counts = [first[kind] for kind in kinds], [graph.num_nodes[kind] for kind in kinds]
        opened = EdgeList(edges.key, ends, number, (firsts[0], firsts[1]), (counts[0], counts[1]), own)
        check_edges(opened)
        for name, values in own.items():
            check_rows(name_attribute(name, edges.type), values, len(opened))
        lists.append(opened)
    return lists


def open_attributes(folder: Path, graph: OnDiskGraph, domain: str) -> dict[str, dict[str | None, NDArray[Any]]]:
    """Map the attributes of nodes or edges by name and type. All types of a name must have one dtype and row shape."""
    found: dict[str, dict[str | None, NDArray[Any]]] = {}
    for place, spec in enumerate(graph.feature_data):
        if spec.domain == domain:
            values = open_spec(folder, spec, f"graph.feature_data[{place}]")
            by_type = found.setdefault(spec.name, {})
            by_type[spec.type] = values
            known = next(iter(by_type.values()))
            if (values.dtype, values.shape[1:]) != (known.dtype, known.shape[1:]):
                raise ValueError(
                    f"{FILE_NAME}: graph.feature_data[{place}] is {values.dtype} of shape {values.shape}, but another "
                    f"type's {spec.name!r} is {known.dtype} of shape {known.shape}; save them alike"
                )
    return found


def open_spec(folder: Path, spec: OnDiskFeatureData, key: str) -> NDArray[Any]:
    """Map the file of a feature or attribute."""
    return open_array(stay_inside(folder, str(spec.path), f"{key}.path"), spec.format, f"{FILE_NAME}: {key}")


def name_attribute(name: str, kind: str | None) -> str:
    """Return the name of a type's attribute in errors."""
    return f"graph.feature_data {name!r}" + (f" of {kind!r}" if kind else "")


def check_rows(what: str, values: NDArray[Any], rows: int) -> None:
    """Raise unless an array has the given number of rows."""
    if values.ndim == 0 or len(values) != rows:
        raise ValueError(f"{FILE_NAME}: {what} must have {rows} rows, but has shape {values.shape}")


def write_graph(folder: Path, target: Path, graph: OnDiskGraph, with_edge_ids: bool, auto_cast: bool) -> dict[str, Any]:
    """Write the arrays of a graph and return their metadata.

    Args:
        folder: The dataset's folder.
        target: The folder to write to.
        graph: The graph to write; the order of its types sets their numbers.
        with_edge_ids: Whether to keep the position of each edge in the edge list of its type.
        auto_cast: Whether ids take the smallest dtype that fits.
    """
    place = target / GRAPH_FOLDER
    place.mkdir()
    lists = open_edges(folder, target, graph)
    num_nodes, num_edges = sum(graph.num_nodes.values()), sum(map(len, lists))
    with progress_bar("counting edges", num_edges, "edge") as progress:
        indptr = count_in_degrees(lists, num_nodes, progress)
    write_array(place / "csc_indptr.npy", indptr, id_dtype(num_edges, auto_cast))
    write_sorted(lists, indptr, name_arrays(place, graph, lists, with_edge_ids, auto_cast))
    for leftover in target.glob("pairs_*"):
        leftover.unlink()
    first = stack_types(graph)
    edge_attributes = {name: f"edge_{number}.npy" for number, name in enumerate(lists[0].attributes)}
    return {
        "type": "FusedCSCSamplingGraph",
        "num_edges": {edges.type: len(ends) for edges, ends in zip(graph.edges, lists, strict=True)},
        "node_type_offset": [*first.values(), num_nodes] if graph.has_types else None,
        "node_type_to_id": {kind: number for number, kind in enumerate(first)} if graph.has_types else None,
        "edge_type_to_id": {edges.type: place for place, edges in enumerate(graph.edges)} if graph.has_types else None,
        "node_attributes": write_node_attributes(folder, place, graph),
        "edge_attributes": edge_attributes | ({ORIGINAL_EDGE_ID: "edge_id.npy"} if with_edge_ids else {}),
    }


def name_arrays(
    place: Path, graph: OnDiskGraph, lists: list[EdgeList], with_edge_ids: bool, auto_cast: bool
) -> list[EdgeArray]:
    """Return the arrays to write of one row per edge."""
    ids = id_dtype(sum(graph.num_nodes.values()), auto_cast)
    arrays = [EdgeArray(place / "indices.npy", ids, (), EdgeList.sources)]
    if graph.has_types:
        arrays.append(EdgeArray(place / "type_per_edge.npy", type_dtype(len(lists), auto_cast), (), EdgeList.types))
    for number, (name, values) in enumerate(lists[0].attributes.items()):
        path = place / f"edge_{number}.npy"
        arrays.append(EdgeArray(path, values.dtype, values.shape[1:], attribute_reader(name)))
    if with_edge_ids:
        rows = id_dtype(sum(map(len, lists)), auto_cast)
        arrays.append(EdgeArray(place / "edge_id.npy", rows, (), EdgeList.rows))
    return arrays


def attribute_reader(name: str) -> Callable[[EdgeList, slice], NDArray[Any]]:
    """Return a function that reads some rows of an attribute."""
    return lambda edges, part: edges.attributes[name][part]


def write_node_attributes(folder: Path, place: Path, graph: OnDiskGraph) -> dict[str, str]:
    """Write each attribute, type after type, and return its file by name."""
    files = {}
    for number, (name, by_type) in enumerate(open_attributes(folder, graph, "node").items()):
        files[name] = f"node_{number}.npy"
        row = next(iter(by_type.values())).shape[1:]
        dtype = next(iter(by_type.values())).dtype
        with ArrayWriter(place / files[name], (sum(graph.num_nodes.values()), *row), dtype) as writer:
            for kind, count in graph.num_nodes.items():
                check_rows(name_attribute(name, kind), by_type[kind], count)
                writer.append(by_type[kind])
    return files


def read_graph(folder: Path, topology: Mapping[str, Any]) -> FusedCSCSamplingGraph:
    """Read a graph that `write_graph` wrote, or map it if its metadata has `in_memory: false`.

    Files are mapped copy-on-write: writes don't reach them.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The metadata or a file is wrong.
    """
    section = Section(topology, "graph_topology")
    place = stay_inside(folder, section.get("path", str), "graph_topology.path")
    mapped = not section.get("in_memory", bool, True)
    numbers = {name: read_numbers(section, name) for name in ("node_type_to_id", "edge_type_to_id")}
    offsets = section.get("node_type_offset", list, None)
    if offsets is not None and not all(type(offset) is int and 0 <= offset < 1 << 62 for offset in offsets):
        raise ValueError(f"{FILE_NAME}: graph_topology.node_type_offset must be whole numbers, but is {brief(offsets)}")

    def read(name: Any, key: str) -> torch.Tensor:
        path = stay_inside(folder, str(place / str(name)), f"graph_topology.{key}")
        return torch.from_numpy(load_array(path, f"{FILE_NAME}: graph_topology.{key}", mapped=mapped))

    def read_all(key: str) -> dict[str, torch.Tensor]:
        return {str(name): read(file, f"{key}.{name}") for name, file in section.get(key, dict, {}).items()}

    indices = read("indices.npy", "path")
    return fused_csc_sampling_graph(
        read("csc_indptr.npy", "path"),
        indices,
        None if offsets is None else torch.tensor(offsets, dtype=torch.int64).to(indices.dtype),
        None if offsets is None else read("type_per_edge.npy", "path"),
        numbers["node_type_to_id"],
        numbers["edge_type_to_id"],
        read_all("node_attributes"),
        read_all("edge_attributes"),
    )


def read_numbers(section: Section, key: str) -> dict[str, int] | None:
    """Return the numbers of types."""
    numbers = section.get(key, dict, None)
    if numbers is not None and not all(
        isinstance(name, str) and type(number) is int for name, number in numbers.items()
    ):
        raise ValueError(
            f"{section.file}: {section.name(key)} must map types to whole numbers, but is {brief(numbers)}"
        )
    return None if numbers is None else dict(numbers)
