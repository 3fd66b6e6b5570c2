"""The in-edges of other ranks' nodes that this rank meets again and again, kept here within a bound of bytes."""

import os
import threading
from typing import NamedTuple

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.exchange import COUNTS, starts_of
from graphfeed.distributed.merged_columns import (
    ATTRIBUTE,
    IDS,
    INDICES,
    INDPTR,
    TYPES,
    MergedColumns,
    Sources,
    are_unchanged,
    edge_arrays,
    sources_of,
    split_ids,
)
from graphfeed.ops.checks import check_count
from graphfeed.ops.rows.copy_rows import copy_rows
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.verified import count_writes
from graphfeed.storage import SamplingRequest
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph, fused_csc_sampling_graph

RECEIVED_TIMES = 4
"""Columns are chosen once so many times the cache's bytes of edges have come from other ranks."""
LONGEST_SHARE = 16
"""A column that takes more than one part in so many of the room is not kept."""
SUM_BYTES, ORDER_BYTES = 8, 32
"""What sampling computes of each edge at most: for each attribute with weights, and for each pair of times."""
NODES = "node attribute "
"""What the names of the nodes' attributes begin with."""


class Kept(NamedTuple):
    """The columns that were chosen."""

    columns: FusedCSCSamplingGraph
    """The whole graph's nodes, with the edges of these columns alone."""
    is_kept: torch.Tensor
    """Whether the column of a node is among them; it may have no edges."""
    names: frozenset[str]
    """What there may be of each edge; see `needs_of`."""
    sources: Sources
    """The arrays of this rank's part when they were fetched."""


class HotColumns:
    """Keeps whole columns of other ranks, from which this rank samples itself what their owners would send.

    The columns are chosen once: those of which the most edges were received, for the bytes that they take. All threads
    sample from them without a lock after that.

    A request for an array that was replaced or edited in place since then goes to the owners. This rank sees that by
    its own part, as `MergedColumns` does.

    Args:
        here: The columns that this rank can read without.
        max_size_in_bytes: The most bytes that they take, with 9 bytes per node of the whole graph to find them, and
            with what sampling by weights or in time computes of them. 0 keeps none.

    Raises:
        ValueError: The bytes are negative, or leave no room for any edge.
    """

    def __init__(self, here: MergedColumns, max_size_in_bytes: int) -> None:
        check_count("max_cache_size_in_bytes", max_size_in_bytes, 0)
        self.max_size_in_bytes = max_size_in_bytes
        self.hits = 0
        """How many nodes of other ranks were sampled here."""
        self.misses = 0
        """How many their owners were asked for."""
        self._here = here
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._needs: dict[str, int] = {}
        """What was asked for so far; see `needs_of`."""
        self._counts: torch.Tensor | None = None
        self._received = 0
        self._kept: Kept | None = None
        columns = here.part.columns
        least = columns.csc_indptr.nbytes + columns.total_num_nodes
        self._room = max_size_in_bytes - least
        if max_size_in_bytes > 0 >= self._room:
            raise ValueError(
                f"max_cache_size_in_bytes must be 0 (no cache) or more than the {least} bytes that it takes to find "
                f"the columns of {columns.total_num_nodes} nodes, but is {max_size_in_bytes}"
            )
        self._chosen = max_size_in_bytes == 0

    kind = "columns in memory"
    """What `DataLoader.explain()` calls it."""

    def find(self, ids: torch.Tensor, request: SamplingRequest) -> tuple[FusedCSCSamplingGraph, torch.Tensor] | None:
        """Return the columns, and which of some nodes have theirs among them; None where a request can't use them."""
        kept = self._kept
        # A fork learns from the peers that it can't reach other ranks.
        if kept is None or os.getpid() != self._process:
            return None
        own = self._here.part.columns
        needs = needs_of(own, request).keys()
        if not needs <= kept.names or not are_unchanged(kept.sources, with_node_attributes(own), needs):
            return None
        return kept.columns, take_rows(kept.is_kept, ids)

    def note(
        self, ids: torch.Tensor, owners: torch.Tensor, kept: torch.Tensor | None, offsets: torch.Tensor,
        request: SamplingRequest,
    ) -> None:  # fmt: skip
        """Count what was sampled around some nodes, and choose the columns if it is time to.

        Args:
            ids: The nodes.
            owners: The ranks that were, or would have been, asked for them.
            kept: Which of them were sampled here; None for none.
            offsets: Where the edges of each begin.
            request: How they were sampled.
        """
        if self.max_size_in_bytes == 0:
            return
        away = np.flatnonzero((owners != self._here.part.number).numpy())
        hits = 0 if kept is None else int(np.count_nonzero(kept.numpy()))
        if away.size and self._count(hits, away.size - hits):
            self._note_edges(ids, torch.from_numpy(away), offsets, request)

    def _count(self, hits: int, misses: int) -> bool:
        """Count nodes of other ranks; return whether the columns are still to be chosen."""
        with self._lock:
            self.hits += hits
            self.misses += misses
            return not self._chosen

    def _note_edges(
        self, ids: torch.Tensor, away: torch.Tensor, offsets: torch.Tensor, request: SamplingRequest
    ) -> None:
        """Count edges of other ranks, and choose the columns if it is time to."""
        edges = take_rows(offsets.diff(), away) + 1
        with self._lock:
            if self._chosen:
                return
            if self._counts is None:
                self._counts = torch.zeros(self._here.part.columns.total_num_nodes, dtype=torch.int64)
            self._counts.index_add_(0, take_rows(ids, away).long(), edges)
            self._needs |= needs_of(self._here.part.columns, request)
            self._received += int(edges.sum()) * self._bytes_received()
            if self._received < RECEIVED_TIMES * self.max_size_in_bytes:
                return
            self._chosen = True
            counts, self._counts = self._counts, None
        self._kept = self._fetch(*self._choose(counts))

    def _bytes_received(self) -> int:
        """Return the bytes of an edge that came, as it lies in memory here: a source and an id."""
        return self._here.part.columns.indices.itemsize + torch.int64.itemsize

    def _choose(self, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the nodes whose columns are kept, ascending, and the number of edges of each.

        Args:
            counts: For each node of the graph, how many edges were received, and one more for each time.
        """
        met = counts.nonzero()[:, 0]
        received, owners = counts[met], self._here.part.book.owners_of(met)
        degrees = torch.zeros_like(met)
        for rank in np.unique(owners.numpy()).tolist():
            own = owners == rank
            degrees[own] = self._here.columns_of(rank, met[own], edges=False)[COUNTS]
        fitting = degrees * (self._edge_bytes() * LONGEST_SHARE) <= self._room
        met, received, degrees = met[fitting], received[fitting], degrees[fitting]
        order = torch.argsort(received / degrees, descending=True, stable=True)  # columns without edges take no room
        taken = order[: int((degrees[order].cumsum(0) * self._edge_bytes() <= self._room).sum())].sort().values
        return met[taken], degrees[taken]

    def _edge_bytes(self) -> int:
        """Return the bytes of an edge that is kept, with what sampling computes of it."""
        stored = sum(rows.new_empty((1, *rows.shape[1:])).nbytes for rows in self._arrays().values())
        return stored + sum(self._needs.values())

    def _arrays(self) -> dict[str, torch.Tensor]:
        """Return those of this rank's arrays of edges that are kept of other ranks."""
        return {name: rows for name, rows in edge_arrays(self._here.part.columns).items() if name in self._needs}

    def _fetch(self, ids: torch.Tensor, degrees: torch.Tensor) -> Kept:
        """Return columns, after asking their owners for them."""
        here, own = self._here, self._here.part.columns
        sources = with_node_attributes(own)
        counts = torch.zeros(own.total_num_nodes, dtype=torch.int64)
        counts[ids] = degrees
        indptr = starts_of(counts)
        arrays = {name: rows.new_empty((int(indptr[-1]), *rows.shape[1:])) for name, rows in self._arrays().items()}
        owners = here.part.book.owners_of(ids)
        for rank in np.unique(owners.numpy()).tolist():
            for piece in split_ids(ids[owners == rank], counts):
                columns = here.columns_of(rank, piece, edges=True, names=list(arrays))
                places = ops.indptr_edge_ids(starts_of(columns[COUNTS]), offset=indptr[piece])
                for name, out in arrays.items():
                    copy_rows(columns[name], torch.arange(places.numel()), out, places, distinct=True)
        attributes = {name.removeprefix(ATTRIBUTE): rows for name, rows in arrays.items() if name.startswith(ATTRIBUTE)}
        graph = fused_csc_sampling_graph(
            indptr.to(own.csc_indptr.dtype),
            arrays[INDICES],
            own.node_type_offset,
            arrays.get(TYPES),
            own.node_type_to_id,
            own.edge_type_to_id,
            own.node_attributes,
            attributes,
        )
        is_kept = torch.zeros(own.total_num_nodes, dtype=torch.bool)
        is_kept[ids] = True
        return Kept(graph, is_kept, frozenset(self._needs), sources)


def with_node_attributes(columns: FusedCSCSamplingGraph) -> Sources:
    """Return the arrays that sampling reads, by the names that `needs_of` gives them."""
    nodes = {f"{NODES}{name}": (rows, count_writes(rows)) for name, rows in columns.node_attributes.items()}
    return {**sources_of(columns), **nodes}


def needs_of(columns: FusedCSCSamplingGraph, request: SamplingRequest) -> dict[str, int]:
    """Return the names of the arrays that a request reads, and of what is computed of the edges for it.

    Args:
        columns: The graph.
        request: How nodes are sampled.

    Returns:
        By name, the bytes per edge that come on top of the graph's own arrays.
    """
    needs = dict.fromkeys((INDPTR, INDICES, IDS) if columns.type_per_edge is None else (INDPTR, INDICES, IDS, TYPES), 0)
    weights, query = request.probs_name, request.temporal
    if weights is not None:
        needs[f"{ATTRIBUTE}{weights}"] = 0
    if weights is not None and query is None:
        needs[f"running sums of {weights}"] = SUM_BYTES
    if query is not None:
        names = (query.node_timestamp_attr_name, query.edge_timestamp_attr_name)
        times = zip((NODES, ATTRIBUTE), names, strict=True)
        needs |= {f"{prefix}{name}": 0 for prefix, name in times if name is not None}
        # Edges are in one order for fan-outs per edge type, and in another for one number.
        for by_type in {fanout.numel() > 1 for fanout in request.fanouts}:
            order = f"order by {names}{' within types' if by_type else ''}"
            needs[order] = ORDER_BYTES
            if weights is not None:
                needs[f"running sums of {weights} in {order}"] = SUM_BYTES
    return needs
