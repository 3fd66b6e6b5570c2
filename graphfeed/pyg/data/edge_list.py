"""The edges of one type as PyG's data or stores hold them: pairs of nodes, or already grouped by destination."""

from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops.structure import expand_indptr


class EdgeList(NamedTuple):
    """Edges as they are stored; the id of an edge is its position there.

    Example:
        >>> edges = EdgeList(torch.tensor([1, 2, 0]), indptr=torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in edges.ends()], len(edges)
        ([[1, 2, 0], [0, 0, 2]], 3)
    """

    source: torch.Tensor
    destination: torch.Tensor | None = None
    indptr: torch.Tensor | None = None
    """Where the edges to each node begin, if edges are grouped by destination; there may be no `destination` then."""

    @classmethod
    def from_index(cls, index: Any, *, reverse: bool = False) -> Self:
        """Return the edges of an `edge_index`, shape (2, E), with source and destination exchanged if `reverse`.

        A PyG `EdgeIndex` that is sorted by destination is not sorted again.

        Raises:
            ValueError: It says that it is sorted, but is not.
        """
        ends = plain_index(index)
        source, destination = ends[int(reverse)], ends[int(not reverse)]
        if not is_edge_index(index) or not (index.is_sorted_by_row if reverse else index.is_sorted_by_col):
            return cls(source, destination)
        # PyG believes what an EdgeIndex is told of its order, and its pointers would put edges to other nodes.
        if bool((destination[1:] < destination[:-1]).any()):
            raise ValueError(
                f"edge_index says that it is sorted by {'row' if reverse else 'col'}, but is not; give the EdgeIndex "
                "without sort_order, or sort it with sort_by()"
            )
        return cls(source, destination, index.get_indptr().cpu())

    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sources and destinations."""
        if self.destination is not None:
            return self.source, self.destination
        assert self.indptr is not None
        return self.source, expand_indptr(self.indptr, dtype=torch.int64, output_size=len(self.source))

    def __len__(self) -> int:
        return len(self.source)


def plain_index(index: Any) -> torch.Tensor:
    plain: torch.Tensor = index.as_tensor() if is_edge_index(index) else index.as_subclass(torch.Tensor)
    return plain.detach().cpu()


def is_edge_index(index: Any) -> bool:
    return hasattr(index, "get_indptr") and hasattr(index, "as_tensor")
