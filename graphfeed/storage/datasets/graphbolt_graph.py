"""Reads the graph file of a `metadata.yaml`, which GraphBolt or graphfeed wrote; nothing is unpickled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphfeed.storage.datasets.metadata import FILE_NAME, stay_inside
from graphfeed.storage.datasets.torch_files import Shell, read_tensors, shell_named
from graphfeed.storage.graph.files.graph_file import starts_as_graph_file
from graphfeed.storage.graph.files.load_graph import load_graph
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph, fused_csc_sampling_graph
from graphfeed.storage.graph.sampling.one_hop import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.shareable import Slot

HANDLE = "_c_csc_graph"
ARRAYS = {"indptr": "csc_indptr", "indices": "indices"}
TYPE_ARRAYS = {"node_type_offset": "node_type_offset", "type_per_edge": "type_per_edge"}
NUMBERS = ("node_type_to_id", "edge_type_to_id")
ATTRIBUTES = ("node_attributes", "edge_attributes")


SHELLS = (
    shell_named("torch", "ScriptObject"),
    shell_named("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"),
    shell_named(FusedCSCSamplingGraph.__module__, FusedCSCSamplingGraph.__qualname__),
    shell_named(Slot.__module__, Slot.__qualname__),
    shell_named("builtins", "object"),
)
"""GraphBolt's graph holds an object of C++, which is written as a dict of tensors and its class; ours, its fields."""


def read_graphbolt_graph(folder: Path, topology: Mapping[str, Any]) -> FusedCSCSamplingGraph:
    """Read a graph that GraphBolt 2.1 to 2.4 wrote, or that graphfeed did, by `graph.save` or by `torch.save`.

    GraphBolt keeps edge attributes in the order of the edge lists, while its graph is sorted by destination, so that
    its weighted and temporal sampling read the values of other edges. They are brought into the graph's order here,
    which needs the original edge ids that `include_original_edge_id=True` writes.

    Args:
        folder: The folder of the dataset.
        topology: The entry `graph_topology` of the preprocessed metadata.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, holds other objects, or has edge attributes but no original edge ids.
    """
    again = f"preprocess again from the source: {folder / FILE_NAME} with its graph, and the files that it names"
    if "path" not in topology:
        raise ValueError(f"graph_topology has no path, but {list(topology)}; {again}")
    path = stay_inside(folder, str(topology["path"]), "graph_topology.path")
    try:
        if starts_as_graph_file(path):
            return load_graph(path)
        read = read_tensors(path, SHELLS)
        if isinstance(read, Shell) and is_own(read.content):
            return fused_csc_sampling_graph(**fields_of(read.content))
        arrays = arrays_of(read)
        attributes = arrays.get("edge_attributes") or {}
        if set(attributes) - {ORIGINAL_EDGE_ID}:
            if ORIGINAL_EDGE_ID not in attributes:
                raise ValueError(
                    "it has edge attributes, which GraphBolt did not bring into the graph's order, and no original "
                    "edge ids to do so"
                )
            kinds = len(arrays.get("edge_type_to_id") or ())
            arrays["edge_attributes"] = in_graph_order(attributes, arrays.get("type_per_edge"), kinds)
        return fused_csc_sampling_graph(**arrays)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no graph that can be read: {error}; {again}") from error


def arrays_of(found: Any) -> dict[str, Any]:
    """Return the arguments of `fused_csc_sampling_graph` from what a file holds."""
    if isinstance(found, Shell):
        found = from_shells(found)
    if not isinstance(found, dict) or not {"csc_indptr", "indices"} <= set(found):
        raise ValueError(f"it is a {type(found).__name__}")
    unknown = set(found) - {*ARRAYS.values(), *TYPE_ARRAYS, *NUMBERS, *ATTRIBUTES}
    if unknown:
        raise ValueError(f"it has {sorted(map(str, unknown))}, which are no parts of a graph")
    for name in (*NUMBERS, *ATTRIBUTES):
        values = found.get(name)
        if values is not None and not isinstance(values, dict):
            raise ValueError(f"its {name} is a {type(values).__name__}, not a dict")
        if name in ATTRIBUTES and not all(isinstance(value, torch.Tensor) for value in (values or {}).values()):
            raise ValueError(f"its {name} must be tensors")
    return found


def is_own(content: Any) -> bool:
    """Return whether an object was filled with the fields of a graph of graphfeed, and the tensors in their places."""
    return isinstance(content, dict) and set(content) == {"fields", "tensors"} and isinstance(content["fields"], dict)


def fields_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `fused_csc_sampling_graph` from what graphfeed's own graph was saved as."""

    def filled(value: Any) -> Any:
        if isinstance(value, Shell):
            slot, tensors = value.content, content["tensors"]
            is_slot = (
                isinstance(slot, list) and isinstance(tensors, list) and [type(number) for number in slot] == [int]
            )
            if not is_slot or not 0 <= slot[0] < len(tensors):
                raise ValueError(f"its slot {slot} names none of its tensors")
            return tensors[slot[0]]
        return {name: filled(part) for name, part in value.items()} if isinstance(value, dict) else value

    names = (*ARRAYS.values(), *TYPE_ARRAYS, *NUMBERS, *ATTRIBUTES)
    if missing := [name for name in names if name not in content["fields"]]:
        raise ValueError(f"it lacks {missing}")
    return {name: filled(content["fields"][name]) for name in names}


def from_shells(graph: Shell) -> dict[str, Any]:
    """Return the arguments of `fused_csc_sampling_graph` from the dict that the C++ object was written as."""
    handle = graph.content.get(HANDLE) if isinstance(graph.content, dict) else None
    content = handle.content if isinstance(handle, Shell) else None
    state = content[0] if isinstance(content, tuple) and content else None
    if not isinstance(state, dict) or not isinstance(state.get("independent_tensors"), dict):
        raise ValueError(f"its {HANDLE} is not that of GraphBolt 2.1 or later")
    tensors = state["independent_tensors"]
    missing = set(ARRAYS) - set(tensors)
    if missing:
        raise ValueError(f"it lacks {sorted(missing)}")
    arrays: dict[str, Any] = {ours: tensors[name] for name, ours in ARRAYS.items()}
    arrays |= {ours: tensors[name] for name, ours in TYPE_ARRAYS.items() if name in tensors}
    for name in NUMBERS:
        if isinstance(state.get(name), dict):
            arrays[name] = {kind: int(number) for kind, number in state[name].items()}
    arrays |= {name: state[name] for name in ATTRIBUTES if state.get(name)}
    return arrays


def in_graph_order(
    attributes: Mapping[str, torch.Tensor], types: torch.Tensor | None, num_types: int
) -> dict[str, torch.Tensor]:
    """Return edge attributes in the order of the graph; the lists of the types lay one behind the other."""
    ids = attributes[ORIGINAL_EDGE_ID]
    if ids.is_floating_point() or ids.dim() != 1:
        raise ValueError(f"{ORIGINAL_EDGE_ID} must be a vector of whole numbers, but is {ids.dtype} {list(ids.shape)}")
    for name, values in attributes.items():
        if values.dim() == 0 or len(values) != len(ids):
            raise ValueError(f"edge attribute {name!r} has shape {list(values.shape)}, but there are {len(ids)} edges")
    places = ids.to(torch.int64)
    if types is not None:
        if len(types) != len(ids) or (len(types) and not 0 <= int(types.min()) <= int(types.max()) < num_types):
            raise ValueError(f"type_per_edge must have a type below {num_types} for each of {len(ids)} edges")
        counts = torch.bincount(types.to(torch.int64), minlength=num_types)
        places = places + (counts.cumsum(0) - counts)[types.to(torch.int64)]
        places = places.where((ids >= 0) & (ids < counts[types.to(torch.int64)]), -1)
    if not torch.equal(places.sort().values, torch.arange(len(ids))):
        raise ValueError(f"{ORIGINAL_EDGE_ID} must have the ids from 0 on of each edge type, each once")
    return {name: values if name == ORIGINAL_EDGE_ID else values[places] for name, values in attributes.items()}
