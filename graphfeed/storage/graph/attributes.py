"""The attributes of nodes and edges."""

from collections.abc import Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import UnknownName, as_tensor, brief, nearest

ORIGINAL_EDGE_ID = "_ORIGINAL_EDGE_ID"
"""The edge attribute that holds each edge's row in its own type's edge list."""


def as_attributes(domain: str, attributes: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: as_tensor(f"{domain}_attributes[{name!r}]", values) for name, values in attributes.items()}


def look_up(attributes: Mapping[str, torch.Tensor], name: str, domain: str) -> torch.Tensor:
    if not isinstance(name, str):
        raise TypeError(f"the name of {domain.lower()} attributes must be a string, but is {brief(name)}")
    if name not in attributes:
        near = nearest(name, attributes) or f"; the graph has {sorted(attributes)!s:.160}"
        raise UnknownName(f"{domain} attribute {name!s:.80} does not exist{near}")
    return attributes[name]


def check_attributes(domain: str, attributes: Mapping[str, torch.Tensor], rows: int) -> None:
    for name, values in attributes.items():
        check_rows(f"{domain}_attributes[{name!r}]", values, rows)


def check_rows(name: str, values: torch.Tensor, rows: int) -> None:
    """Raise unless an attribute has so many rows; its name begins with "node" or "edge"."""
    count = values.shape[0] if values.dim() else "no dimension"
    if count != rows:
        raise ValueError(f"{name} must have {rows} rows, one for each {name[:4]}, but has {count}")
