"""Sampled subgraphs as the input of PyG's bipartite convolutions; PyG itself is not needed.

Under `torch.compile` it is traced as a whole: nothing here imports, starts a kernel or reads a value meanwhile.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch

from graphfeed.ops.structure import check_starts
from graphfeed.storage.graph.type_names import ends_of

if TYPE_CHECKING:
    from graphfeed.storage.graph.sampled_subgraph import ByType, CSCFormatBase, SampledSubgraph


class PyGLayerData(NamedTuple):
    """The input of a bipartite layer of PyG."""

    x: tuple[torch.Tensor, torch.Tensor]
    """Features of the sources and of the destinations; the sources begin with the destinations."""
    edge_index: torch.Tensor
    """Sources and destinations, int64, shape (2, E)."""
    size: tuple[int, int]
    """The number of sources and of destinations."""


class PyGLayerHeteroData(NamedTuple):
    """The input of a bipartite layer of PyG, by node type and edge type "src:rel:dst"."""

    x: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
    """Features of the sources and of the destinations, by node type."""
    edge_index: dict[str, torch.Tensor]
    """Sources and destinations, int64, shape (2, E)."""
    size: dict[str, tuple[int, int]]
    """The number of sources and of destinations."""


def make_layer_data(subgraph: "SampledSubgraph", x: "ByType") -> PyGLayerData | PyGLayerHeteroData:
    """Return a subgraph with features of its rows; see `SampledSubgraph.to_pyg`."""
    csc = subgraph.sampled_csc
    if not isinstance(csc, dict):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x must be a tensor, as the subgraph has no types, but is a {type(x).__name__}")
        # The rows begin with the columns.
        count = len(csc.indptr) - 1
        return PyGLayerData((x, x[:count]), edge_index(csc), (len(x), count))
    if not isinstance(x, dict):
        raise TypeError(f"x must be a dict by node type, as the subgraph has types, but is a {type(x).__name__}")
    rows = subgraph.original_row_node_ids
    destinations: dict[str, torch.Tensor] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for edge_type, own in csc.items():
        source, destination = ends_of(edge_type)
        count = len(own.indptr) - 1
        if destination in x:
            destinations[destination] = x[destination][:count]
        # A type may have no features; its number of rows is still known.
        sources = rows[source] if isinstance(rows, dict) and source in rows else x.get(source, ())
        sizes[edge_type] = (len(sources), count)
    return PyGLayerHeteroData((x, destinations), {edge_type: edge_index(own) for edge_type, own in csc.items()}, sizes)


def edge_index(csc: "CSCFormatBase") -> torch.Tensor:
    return torch.stack([csc.indices.to(torch.int64), columns_of(csc)])


def columns_of(csc: "CSCFormatBase") -> torch.Tensor:
    """Return the column of each edge, int64; except under `torch.compile`, a wrong `indptr` is a ValueError."""
    if not torch.compiler.is_compiling():  # a check reads values, where the compiler would have to stop
        check_starts(csc.indptr)
    columns = torch.arange(len(csc.indptr) - 1, device=csc.indptr.device)
    return torch.repeat_interleave(columns, csc.indptr.diff(), output_size=len(csc.indices))
