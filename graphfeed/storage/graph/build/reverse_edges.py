"""Add the reverse of each edge."""

from collections.abc import Mapping

import torch

from graphfeed.ops.arguments import as_ids, checked
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.type_names import by_type_name, type_name


@checked
def add_reverse_edges(edges: ByType, reverse_etypes_mapping: Mapping[str, str] | None = None) -> ByType:
    """Return the edges, followed by each with its ends swapped.

    Args:
        edges: A tensor or array of shape (N, 2), or a dict of these by edge type, which is not changed.
        reverse_etypes_mapping: For edges by type: the reverse of each edge type, as strings or tuples. The swapped
            edges of a type are appended to its reverse type, which is created if needed. Types that the mapping or the
            edges lack are left alone. Only the given edges are swapped, never those that were appended.

    Returns:
        A tensor of shape (2N, 2), or a new dict.

    Raises:
        ValueError: Edges of another shape.
        TypeError: A mapping for edges that are not by type.

    Example:
        >>> add_reverse_edges(torch.tensor([[0, 1], [2, 3]])).tolist()
        [[0, 1], [2, 3], [1, 0], [3, 2]]
    """
    if not isinstance(edges, Mapping):
        edges = as_ids("edges", edges)
        if reverse_etypes_mapping is not None:
            raise TypeError("reverse_etypes_mapping is for edges by type, but edges is a tensor; leave it out")
        check_edges("edges", edges)
        return torch.cat([edges, edges.flip(1)])
    given = {edge_type: as_ids(f"edges[{edge_type!r}]", part) for edge_type, part in by_type_name(edges).items()}
    result = dict(given)
    for edge_type, reverse_type in by_type_name(reverse_etypes_mapping or {}).items():
        if edge_type in given:
            check_edges(f"edges[{edge_type!r}]", given[edge_type])
            swapped, reverse_type = given[edge_type].flip(1), type_name(reverse_type)
            # A reverse type may be one that is there, or the type itself.
            known = result.get(reverse_type)
            result[reverse_type] = swapped if known is None else torch.cat([known, swapped])
    return result


def check_edges(name: str, edges: torch.Tensor) -> None:
    if edges.dim() != 2 or edges.shape[1] != 2:
        raise ValueError(f"Only tensor with shape N*2 is supported now, but {name} has {list(edges.shape)}")
