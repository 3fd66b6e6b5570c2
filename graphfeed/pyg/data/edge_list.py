"""The edges of one type as PyG's data or stores hold them: pairs of nodes, or columns that are sorted already."""

from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops import expand_indptr, gather_rows


class Columns(NamedTuple):
    """Edges grouped by their destinations."""

    indptr: torch.Tensor
    """The start of each column's edges, shape (columns + 1,)."""
    indices: torch.Tensor
    """The source of each edge."""
    order: torch.Tensor | None = None
    """The id of each edge; None: its position."""

    def widened(self, num_nodes: int) -> "Columns | None":
        """Return one column per node, those that are missing without edges; None if there are more than nodes."""
        missing = num_nodes + 1 - len(self.indptr)
        if missing < 0:
            return None
        if missing == 0:
            return self
        return self._replace(indptr=torch.cat([self.indptr, self.indptr[-1:].expand(missing)]))

    def arrange(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of edges, which are given by id, in the order of the columns."""
        return values if self.order is None else gather_rows(values, self.order)


class EdgeList(NamedTuple):
    """Edges as they are stored: by pairs of nodes, by columns, or both. The id of an edge is its place there.

    Example:
        >>> edges = EdgeList.from_columns(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0]))
        >>> [part.tolist() for part in edges.ends()], len(edges)
        ([[1, 2, 0], [0, 0, 2]], 3)
    """

    source: torch.Tensor
    destination: torch.Tensor | None
    columns: Columns | None = None
    """Where there is no destination, they have the same order as the sources."""

    @classmethod
    def from_index(cls, index: Any) -> Self:
        """Return the edges of an `edge_index`, shape (2, E). What a PyG `EdgeIndex` knows of its order is kept."""
        source, destination = plain_index(index)
        return cls(source, destination, columns_of(index, by_row=False))

    @classmethod
    def from_index_reversed(cls, index: Any) -> Self:
        """Do as `from_index`, with source and destination exchanged."""
        source, destination = plain_index(index)
        return cls(destination, source, columns_of(index, by_row=True))

    @classmethod
    def from_columns(cls, indptr: torch.Tensor, indices: torch.Tensor) -> Self:
        """Return edges in compressed sparse columns."""
        return cls(indices, None, Columns(indptr, indices))

    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sources and destinations."""
        if self.destination is not None:
            return self.source, self.destination
        assert self.columns is not None
        return self.source, expand_indptr(self.columns.indptr, dtype=torch.int64, output_size=len(self.source))

    def __len__(self) -> int:
        """Return the number of edges."""
        return len(self.source)


def plain_index(index: Any) -> torch.Tensor:
    """Return an `edge_index` as a plain tensor on the CPU that shares its memory."""
    plain: torch.Tensor = index.as_tensor() if is_edge_index(index) else index.as_subclass(torch.Tensor)
    return plain.detach().cpu()


def is_edge_index(index: Any) -> bool:
    """Tell whether an `edge_index` is a PyG `EdgeIndex`."""
    return hasattr(index, "get_csc") and hasattr(index, "as_tensor")


def columns_of(index: Any, *, by_row: bool) -> Columns | None:
    """Return what a sorted `EdgeIndex` has as columns by destination, or by source; None if it would have to sort.

    Raises:
        ValueError: It says that it is sorted, but is not.
    """
    if not is_edge_index(index) or not index.is_sorted:
        return None
    is_direct = index.is_sorted_by_row if by_row else index.is_sorted_by_col
    if not is_direct and index._T_perm is None:
        return None  # grouping by counting is faster than its sort
    row = 0 if index.is_sorted_by_row else 1
    keys = index.as_tensor()[row]
    if bool((keys[1:] < keys[:-1]).any()):
        raise ValueError(
            f"edge_index says that it is sorted by {'row' if row == 0 else 'col'}, but is not; give the EdgeIndex "
            "without sort_order, or sort it with sort_by()"
        )
    (starts, others), order = index.get_csr() if by_row else index.get_csc()
    if order is not None and not keeps_order(starts, order):
        return None
    return Columns(starts.cpu(), others.cpu(), None if order is None else order.cpu())


def keeps_order(starts: torch.Tensor, order: torch.Tensor) -> bool:
    """Tell whether edges that were sorted into columns are inside each in the order in which they were given.

    PyG's sort need not keep it, and mini-batches must not depend on what happens to be cached.
    """
    falls = (order[1:] < order[:-1]).nonzero().squeeze(1) + 1
    return bool(torch.isin(falls, starts).all())
