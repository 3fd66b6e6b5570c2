"""Notices that the arrays of a graph were edited in place since they were checked, or others made of them."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from graphfeed.ops.structure.csc import joined_by
from graphfeed.ops.verified import Tensors, check_once, has_passed, trust
from graphfeed.storage.graph.type_names import numbers_of


class Arrays(Protocol):
    """What decides where sampling reads and writes."""

    csc_indptr: torch.Tensor
    indices: torch.Tensor
    node_type_offset: torch.Tensor | None
    type_per_edge: torch.Tensor | None
    node_type_to_id: dict[str, int] | None
    edge_type_to_id: dict[str, int] | None

    def check(self) -> None:
        """Raise unless the arrays are a valid graph."""


def structure_of(graph: Arrays) -> Tensors:
    """Return the arrays that were checked together."""
    return graph.csc_indptr, graph.indices, graph.node_type_offset, graph.type_per_edge


def check_edits(graph: Arrays) -> None:
    """Check a graph if PyTorch has written to its arrays since it was last checked."""
    check_once("graph", structure_of(graph), graph.check)


def trust_graph(graph: Arrays, indptr: torch.Tensor | None = None, types: torch.Tensor | None = None) -> None:
    """Take the arrays as a valid graph, without a pass over them.

    Args:
        graph: The graph.
        indptr: A copy of its column starts; None: these themselves.
        types: The same of its edge types.
    """
    indptr, types = (
        indptr if indptr is not None else graph.csc_indptr,
        types if types is not None else graph.type_per_edge,
    )
    trust("columns", (indptr,))
    trust("csc", (indptr, graph.indices))
    if graph.edge_type_to_id is not None:
        assert graph.node_type_to_id is not None
        assert graph.node_type_offset is not None
        trust(("types", len(graph.edge_type_to_id)), (indptr, types))
        ends = numbers_of(graph.node_type_to_id, graph.edge_type_to_id).ends
        trust(joined_by(graph.node_type_offset, ends), (indptr, graph.indices, types))
    trust("graph", structure_of(graph))


def note_sources(graph: Arrays, name: str, sources: Tensors, made: Tensors) -> None:
    """Note that some tensors are made of others, and of the graph's arrays, as these are now."""
    trust(("made", name), (*structure_of(graph), *sources, *made))


def are_made_of(graph: Arrays, name: str, sources: Tensors, made: Tensors) -> bool:
    """Tell whether tensors are made of these very sources and arrays, and nobody has written to any of them since."""
    return has_passed(("made", name), (*structure_of(graph), *sources, *made))


def without_those_of(
    derived: Mapping[str, tuple[Any, ...]], before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> dict[str, tuple[Any, ...]]:
    """Return what was made, but for what was made of attributes that are gone, directly or not: it would take memory.

    Args:
        derived: By name, the sources, what was made of them, and more; what is made of the results comes later.
        before: The attributes.
        after: Those that take their place.
    """
    gone = {id(values) for values in before.values()} - {id(values) for values in after.values()}
    kept = {}
    for name, entry in derived.items():
        sources, made = entry[:2]
        if any(id(source) in gone for source in sources if source is not None):
            gone.update(id(part) for part in made if part is not None)
        else:
            kept[name] = entry
    return kept
