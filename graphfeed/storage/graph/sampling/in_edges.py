"""In-edges of nodes of all types, as ids in the whole graph."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.storage.graph.type_names import ends_of, first_ids, from_type_dict, to_type_dict

if TYPE_CHECKING:
    from graphfeed.storage.graph.sampling_graph import SamplingGraph

Ints = NDArray[np.int64]


def type_bounds(graph: "SamplingGraph") -> torch.Tensor:
    """Return the first id of each node type in the whole graph, and the number of nodes."""
    sizes = to_type_dict(graph.num_nodes).values()
    return torch.from_numpy(np.cumsum([0, *sizes]))


def read_columns(graph: "SamplingGraph", nodes: Ints) -> tuple[Ints, Ints]:
    """Return where the in-edges of each node begin and end, and their sources; all are ids in the whole graph."""
    firsts, bounds = first_ids(graph.num_nodes), type_bounds(graph).numpy()
    places = np.searchsorted(nodes, bounds)
    columns = {
        name: torch.from_numpy(nodes[low:high] - firsts[name])
        for name, low, high in zip(firsts, places[:-1], places[1:], strict=True)
    }
    sampled = to_type_dict(graph.in_subgraph(from_type_dict(columns)).sampled_csc)
    begins = dict(zip(firsts, places, strict=False))
    owners, sources = [], []
    for name, csc in sampled.items():
        source, destination = ends_of(name)
        counts = np.diff(csc.indptr.numpy())
        owners.append(np.repeat(np.arange(len(counts)) + begins[destination], counts))
        sources.append(csc.indices.numpy().astype(np.int64) + firsts[source])
    owner = np.concatenate([*owners, np.empty(0, np.int64)])
    order = np.argsort(owner, kind="stable")
    return np.searchsorted(owner[order], np.arange(len(nodes) + 1)), np.concatenate([*sources, np.empty(0, np.int64)])[
        order
    ]
