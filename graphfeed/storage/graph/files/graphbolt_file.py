"""Reads graphs of GraphBolt and graphfeed that were written by `torch.save`, without unpickling other objects."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from graphfeed.ops.arguments import kind_of
from graphfeed.storage.graph.checks import ORIGINAL_EDGE_ID
from graphfeed.storage.graph.files.graph_file import ARRAYS, ATTRIBUTES, MAPS, Fields
from graphfeed.storage.memory.outside_files import Shell, read_tensors, shell_named
from graphfeed.storage.memory.shareable import Slot

HANDLE = "_c_csc_graph"
SHELLS = (
    shell_named("torch", "ScriptObject"),
    shell_named("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"),
    shell_named("graphfeed.storage.graph.fused_csc_sampling_graph", "FusedCSCSamplingGraph"),
    shell_named(Slot.__module__, Slot.__qualname__),
    shell_named("builtins", "object"),
)
"""GraphBolt pickles a C++ object as its class and a dict of tensors; graphfeed pickles the fields of a graph."""


def read_graphbolt_fields(path: Path) -> Fields:
    """Return the unchecked fields of a graph written by GraphBolt 2.1 to 2.4, or by `torch.save` of graphfeed."""
    try:
        saved = read_tensors(path, SHELLS)
        content = saved.content if isinstance(saved, Shell) else None
        # Written by graphfeed: the state has the fields, and the tensors for the slots in the fields.
        if isinstance(content, dict) and set(content) == {"fields", "tensors"} and isinstance(content["fields"], dict):
            return own_fields(content)
        fields = graphbolt_fields(saved) if isinstance(saved, Shell) else saved
        check_saved_fields(fields)
        attributes = fields.get("edge_attributes") or {}
        # GraphBolt keeps edge attributes in the order of the edge lists, but its graph is sorted by destination, so
        # its weighted and temporal sampling read values of wrong edges. Here, attributes are reordered, which needs the
        # original edge ids that `include_original_edge_id=True` writes.
        if set(attributes) - {ORIGINAL_EDGE_ID}:
            if ORIGINAL_EDGE_ID not in attributes:
                raise ValueError(
                    "it has edge attributes, which GraphBolt did not sort into the graph's order, and no original "
                    "edge ids to do so"
                )
            num_types = len(fields.get("edge_type_to_id") or ())
            fields = fields | {"edge_attributes": in_graph_order(attributes, fields.get("type_per_edge"), num_types)}
        return {**dict.fromkeys((*ARRAYS, *MAPS, *ATTRIBUTES)), **fields}
    except ValueError as error:
        raise ValueError(f"{path} holds no graph that can be read: {error}") from error


def check_saved_fields(fields: Any) -> None:
    """Raise a ValueError unless the argument is a dict with the fields of a graph."""
    if not isinstance(fields, dict) or not {"csc_indptr", "indices"} <= set(fields):
        raise ValueError(f"it is {kind_of(fields)}")
    if unknown := set(fields) - {*ARRAYS, *MAPS, *ATTRIBUTES}:
        raise ValueError(f"it has {sorted(map(str, unknown))}, which are not fields of a graph")
    for name in (*MAPS, *ATTRIBUTES):
        values = fields.get(name)
        if values is not None and not isinstance(values, dict):
            raise ValueError(f"its {name} is {kind_of(values)}, not a dict")
        if name in ATTRIBUTES and not all(isinstance(value, torch.Tensor) for value in (values or {}).values()):
            raise ValueError(f"its {name} must be tensors")


def own_fields(content: Mapping[str, Any]) -> Fields:
    def filled(value: Any) -> Any:
        if isinstance(value, Shell):
            # A slot is pickled as a list with its number.
            slot, tensors = value.content, content["tensors"]
            is_slot = (
                isinstance(slot, list) and isinstance(tensors, list) and [type(number) for number in slot] == [int]
            )
            if not is_slot or not 0 <= slot[0] < len(tensors):
                raise ValueError(f"its slot {slot} refers to none of its tensors")
            return tensors[slot[0]]
        return {name: filled(part) for name, part in value.items()} if isinstance(value, dict) else value

    names = (*ARRAYS, *MAPS, *ATTRIBUTES)
    if missing := [name for name in names if name not in content["fields"]]:
        raise ValueError(f"it lacks {missing}")
    return {name: filled(content["fields"][name]) for name in names}


def graphbolt_fields(graph: Shell) -> Fields:
    # The C++ object was written as a dict. The file may contain anything, so all types are checked.
    handle = graph.content.get(HANDLE) if isinstance(graph.content, dict) else None
    content = handle.content if isinstance(handle, Shell) else None
    state = content[0] if isinstance(content, tuple) and content else None
    if not isinstance(state, dict) or not isinstance(state.get("independent_tensors"), dict):
        raise ValueError(f"its {HANDLE} is not that of GraphBolt 2.1 or later")
    tensors = {"csc_indptr" if name == "indptr" else name: part for name, part in state["independent_tensors"].items()}
    if missing := {"csc_indptr", "indices"} - set(tensors):
        raise ValueError(f"it lacks {sorted(missing)}")
    fields: Fields = {name: tensors[name] for name in ARRAYS if name in tensors}
    for name in MAPS:
        if isinstance(state.get(name), dict):
            fields[name] = {type_name: int(number) for type_name, number in state[name].items()}
    return fields | {name: state[name] for name in ATTRIBUTES if state.get(name)}


def in_graph_order(
    attributes: Mapping[str, torch.Tensor], types: torch.Tensor | None, num_types: int
) -> dict[str, torch.Tensor]:
    """Reorder edge attributes, which are in the order of the edge types' concatenated edge lists, to graph order."""
    ids = attributes[ORIGINAL_EDGE_ID]
    if ids.is_floating_point() or ids.dim() != 1:
        raise ValueError(f"{ORIGINAL_EDGE_ID} must be a vector of integers, but is {ids.dtype} {list(ids.shape)}")
    for name, values in attributes.items():
        if values.dim() == 0 or len(values) != len(ids):
            raise ValueError(f"edge attribute {name!r} has shape {list(values.shape)}, but there are {len(ids)} edges")
    positions = ids.to(torch.int64)
    if types is not None:
        if len(types) != len(ids) or (len(types) and not 0 <= int(types.min()) <= int(types.max()) < num_types):
            raise ValueError(f"type_per_edge must have a type below {num_types} for each of {len(ids)} edges")
        # An id is a row in the edge list of its type; an attribute concatenates the lists.
        counts = torch.bincount(types.to(torch.int64), minlength=num_types)
        positions = positions + (counts.cumsum(0) - counts)[types.to(torch.int64)]
        # -1 for an id that is out of range for its type, which the next check rejects.
        positions = positions.where((ids >= 0) & (ids < counts[types.to(torch.int64)]), -1)
    # The positions must be a permutation.
    if not torch.equal(positions.sort().values, torch.arange(len(ids), device="cpu")):
        raise ValueError(f"{ORIGINAL_EDGE_ID} must number the edges of each edge type from 0, without duplicates")
    return {name: values if name == ORIGINAL_EDGE_ID else values[positions] for name, values in attributes.items()}
