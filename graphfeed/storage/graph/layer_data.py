"""Conversion of sampled subgraphs to the input of PyG's bipartite convolutions; PyG itself is not needed.

`torch.compile` traces it without graph breaks: nothing here imports, launches a kernel or reads a value.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch

from graphfeed.ops.arguments import kind_of
from graphfeed.ops.structure import check_starts
from graphfeed.storage.graph.type_names import ends_of

if TYPE_CHECKING:
    from graphfeed.storage.graph.by_type import ByType
    from graphfeed.storage.graph.sampled_subgraph import CSCFormatBase, SampledSubgraph


class PyGLayerData(NamedTuple):
    """The input of a bipartite layer of PyG."""

    x: tuple[torch.Tensor, torch.Tensor]
    """Features of the sources and of the destinations. The first sources are the destinations."""
    edge_index: torch.Tensor
    """Sources and destinations, int64, shape (2, E)."""
    size: tuple[int, int]
    """Number of sources and of destinations."""


class PyGLayerHeteroData(NamedTuple):
    """The input of a bipartite layer of PyG, by node type and edge type "src:rel:dst"."""

    x: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]
    """Features of the sources and of the destinations, by node type."""
    edge_index: dict[str, torch.Tensor]
    """Sources and destinations, int64, shape (2, E)."""
    size: dict[str, tuple[int, int]]
    """Number of sources and of destinations."""


def make_layer_data(subgraph: "SampledSubgraph", x: "ByType") -> PyGLayerData | PyGLayerHeteroData:
    """Return PyG's layer input for a subgraph and the features of its rows; see `SampledSubgraph.to_pyg`."""
    csc = subgraph.sampled_csc
    if not isinstance(csc, dict):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x must be a tensor, as the subgraph has no types, but is {kind_of(x)}")
        # The rows begin with the columns.
        count = len(csc.indptr) - 1
        return PyGLayerData((x, x[:count]), edge_index(csc), (len(x), count))
    if not isinstance(x, dict):
        raise TypeError(f"x must be a dict by node type, as the subgraph has types, but is {kind_of(x)}")
    rows = subgraph.original_row_node_ids
    destinations: dict[str, torch.Tensor] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for edge_type, own in csc.items():
        source, destination = ends_of(edge_type)
        count = len(own.indptr) - 1
        if destination in x:
            destinations[destination] = x[destination][:count]
        # Without features of a type, the subgraph has its number of rows.
        sources = rows[source] if isinstance(rows, dict) and source in rows else x.get(source, ())
        sizes[edge_type] = (len(sources), count)
    return PyGLayerHeteroData((x, destinations), {edge_type: edge_index(own) for edge_type, own in csc.items()}, sizes)


def edge_index(csc: "CSCFormatBase") -> torch.Tensor:
    return torch.stack([csc.indices.to(torch.int64), layer_columns(csc)])


def layer_columns(csc: "CSCFormatBase") -> torch.Tensor:
    """Return the column of each edge, int64. An invalid `indptr` is a ValueError, except under `torch.compile`."""
    if not torch.compiler.is_compiling():  # the check reads values, which breaks the graph of the compiler
        check_starts(csc.indptr)
    columns = torch.arange(len(csc.indptr) - 1, device=csc.indptr.device)
    return torch.repeat_interleave(columns, csc.indptr.diff(), output_size=len(csc.indices))
