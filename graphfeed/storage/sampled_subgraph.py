"""What one hop of sampling gives: a small graph, and the ids that its nodes and edges have in the large one."""

from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import torch

ByType: TypeAlias = torch.Tensor | dict[str, torch.Tensor]


def move(value: Any, device: torch.device | str, *, non_blocking: bool = False) -> Any:
    """Return a value with the tensors inside of dicts, lists, tuples and objects with `.to` on the device."""
    if isinstance(value, dict):
        return {name: move(part, device, non_blocking=non_blocking) for name, part in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(move(part, device, non_blocking=non_blocking) for part in value)
    if isinstance(value, torch.Tensor) and str(device) == "pinned":
        return value.pin_memory()
    return value.to(device, non_blocking=non_blocking) if hasattr(value, "to") else value


@dataclass
class CSCFormatBase:
    """Compressed sparse columns.

    Raises:
        ValueError: `indptr` does not end at the number of `indices`.

    Example:
        >>> CSCFormatBase(indptr=torch.tensor([0, 1]), indices=torch.tensor([3])).indices
        tensor([3])
    """

    indptr: torch.Tensor
    """Where each column's edges start, shape (columns + 1,)."""
    indices: torch.Tensor
    """Row of each edge."""

    def __post_init__(self) -> None:
        if self.indptr.device.type == "cpu" and int(self.indptr[-1]) != len(self.indices):
            raise ValueError(
                f"indptr must end with the number of edges, {len(self.indices)} (the length of indices), "
                f"but ends with {int(self.indptr[-1])}"
            )

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "CSCFormatBase":
        """Return the same on another device."""
        return CSCFormatBase(
            move(self.indptr, device, non_blocking=non_blocking),
            move(self.indices, device, non_blocking=non_blocking),
        )


@dataclass
class SampledSubgraph:
    """One layer of a mini-batch: in-edges of the columns, rows and columns relabelled.

    A value is a tensor for a graph of one type, else a dict by node type or by edge type "src:rel:dst". Every type of
    the graph is present, also where it has no edge or no node here.
    """

    sampled_csc: CSCFormatBase | dict[str, CSCFormatBase]
    """Edges: columns are destinations; `indices` are positions in the row ids of the source type."""
    original_column_node_ids: ByType | None = None
    """Ids of the destinations: the seeds of this layer."""
    original_row_node_ids: ByType | None = None
    """Ids of the sources; begins with the column ids."""
    original_edge_ids: ByType | None = None
    """Id of each edge: its row in its type's edge list where the graph knows it, else its position in the graph."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "SampledSubgraph":
        """Return the same on another device."""
        moved = {
            field.name: move(getattr(self, field.name), device, non_blocking=non_blocking) for field in fields(self)
        }
        return replace(self, **moved)
