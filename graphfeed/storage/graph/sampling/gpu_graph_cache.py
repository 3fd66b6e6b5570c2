"""A pinned graph with copies on a GPU of those columns that are requested again and again."""

import threading
import weakref
from collections.abc import Sequence

import torch

from graphfeed import ops
from graphfeed.ops import on_gpu
from graphfeed.ops.arguments import check_ids
from graphfeed.ops.rows import take_rows
from graphfeed.ops.sampling import CachedColumns, sample_cached_columns
from graphfeed.ops.structure import compact_marked
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampled_subgraph import ByType, SampledSubgraph
from graphfeed.storage.graph.sampling.one_hop import EdgeArrays, sample_one_hop
from graphfeed.storage.graph.sampling_graph import parse_seeds
from graphfeed.storage.graph.sampling_request import SamplingRequest
from graphfeed.storage.graph.stand_in_graph import StandInGraph
from graphfeed.storage.memory.stream_ordered_lock import StreamOrderedLock


class GPUGraphCache:
    """Copies of a graph's columns on a GPU: each is made when it was requested often enough, while there is room.

    Nothing is evicted. The cache is full as soon as a column that is due finds no room; one with more edges than the
    whole cache is never copied. The cache takes 8 bytes per node on the GPU, and for each edge that there is room for
    the size of its values. Which columns it holds depends on the requests and their order alone, and a value is the
    same wherever it is read. Any thread may use it, on any stream; until it is full, one at a time.

    Args:
        csc_indptr: Column starts, in memory that the GPU can read.
        edges: The values of the graph's edges, of integer dtypes, in such memory.
        num_edges: The number of edges that there is room for.
        threshold: The number of requests after which a column is copied; 1 is at once.
        device: The GPU.
    """

    def __init__(
        self, csc_indptr: torch.Tensor, edges: EdgeArrays, num_edges: int, threshold: int, device: torch.device
    ) -> None:
        self._indptr = csc_indptr
        self._edges = {name: values for name, values in edges._asdict().items() if values is not None}
        self._threshold = threshold
        self._size = min(num_edges, min(map(len, self._edges.values())))
        self._used = 0
        self._full = self._size == 0
        self._cached = {name: values.new_empty(self._size, device=device) for name, values in self._edges.items()}
        # The distance from a column's values to its copy; for a column without a copy, the number of its requests.
        self._cache_offsets = torch.full((csc_indptr.numel() - 1,), ops.NOT_CACHED, dtype=torch.int64, device=device)
        self._lock = StreamOrderedLock(self._cache_offsets, *self._cached.values())

    @property
    def num_edges(self) -> int:
        """The number of edges that there are copies of."""
        return self._used

    def holds(self, csc_indptr: torch.Tensor, edges: EdgeArrays) -> bool:
        """Tell whether the cache is one of these very arrays."""
        return csc_indptr is self._indptr and all(
            values is self._edges.get(name) for name, values in edges._asdict().items()
        )

    def look_up(self, ids: torch.Tensor) -> CachedColumns:
        """Return the edges with the copies of the columns of some nodes; copy the columns that are due first.

        Until the cache is full, this waits for the device once, and twice if there are columns to copy.

        Args:
            ids: Nodes of the graph, on the GPU; a node that occurs twice was requested once.
        """
        with self._lock.acquire():
            if not self._full and ids.numel():
                self._copy_due_columns(ids)
            offsets = take_rows(self._cache_offsets, ids).clamp_(min=ops.NOT_CACHED)
        return CachedColumns(
            **{name: ops.CachedEdgeValues(values, self._cached[name], offsets) for name, values in self._edges.items()}
        )

    def _copy_due_columns(self, ids: torch.Tensor) -> None:
        """Count requests, and copy the columns that are due, in order of first appearance, until one finds no room."""
        known = take_rows(self._cache_offsets, ids)
        self._cache_offsets[ids.long()] = torch.where(known <= ops.NOT_CACHED, known - 1, known)
        due = compact_marked(ids, known <= ops.NOT_CACHED - self._threshold + 1).rows.long()
        if due.numel() == 0:
            return
        starts, ends = (take_rows(self._indptr, nodes).long() for nodes in (due, due + 1))
        fits = ends - starts <= self._size
        columns = torch.cat([starts.new_zeros(1), ((ends - starts) * fits).cumsum(0)])
        # One transfer for both numbers, because each would wait for the device.
        last = torch.searchsorted(columns, self._size - self._used, right=True).view(1) - 1
        count, size = torch.cat([last, columns.index_select(0, last)]).tolist()
        self._full = count < due.numel() or self._used + size == self._size
        due, starts, columns, fits = due[:count], starts[:count], columns[: count + 1], fits[:count]
        positions = ops.indptr_edge_ids(columns, offset=starts, output_size=size)
        after = self._used + size
        for name, values in self._edges.items():
            self._cached[name][self._used : after] = take_rows(values, positions)
        self._cache_offsets[due] = torch.where(fits, self._used + columns[:-1] - starts, ops.NOT_CACHED)
        self._used = after


CACHES: "weakref.WeakKeyDictionary[GraphArrays, dict[object, GPUGraphCache]]" = weakref.WeakKeyDictionary()
CACHES_LOCK = threading.Lock()


class GPUCachedGraph(StandInGraph[GraphArrays]):
    """A pinned graph that a GPU samples, with a cache of columns there. Its hops are those of the graph, bit by bit.

    A cache lasts as long as the graph, and as long as that has the same arrays. Graphs with the same limits share it.

    Args:
        graph: The graph.
        limits: The number of edges that there is room for, and that of requests after which a column is copied.
        device: The GPU.
    """

    def __init__(self, graph: GraphArrays, limits: tuple[int, int], device: torch.device) -> None:
        super().__init__(graph)
        self.limits = limits
        self.device = device

    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample in-edges of the seeds, as the graph does."""
        drawn = ops.draw_key() if key is None else key
        return self._sample(seeds, fanouts, probs_name, ops.Drawing("uniform", replace), (drawn, drawn))

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample in-edges of the seeds by LABOR, as the graph does."""
        keys, share = parse_seeds(random_seed, seed2_contribution)
        return self._sample(seeds, fanouts, probs_name, ops.Drawing("labor", replace, share), keys)

    def cache(self, probs_name: str | None = None) -> GPUGraphCache:
        """Return the cache for some weights."""
        edges = EdgeArrays.of(self.graph, probs_name)
        with CACHES_LOCK:
            caches = CACHES.setdefault(self.graph, {})
            key = (self.device, *self.limits, probs_name)
            if key not in caches or not caches[key].holds(self.graph.csc_indptr, edges):
                caches[key] = GPUGraphCache(self.graph.csc_indptr, edges, *self.limits, self.device)
            return caches[key]

    def _sample(
        self, seeds: ByType, fanouts: torch.Tensor, probs_name: str | None, drawing: ops.Drawing, keys: tuple[int, int]
    ) -> SampledSubgraph:
        """Sample one hop: choose edges and read them, so that what is left is to split what was read by type."""
        graph, cache = self.graph, self.cache(probs_name)
        found: list[ops.Picks] = []

        def read(ids: torch.Tensor) -> EdgeArrays:
            if graph.node_type_to_id is None:
                check_ids("seeds", ids, graph.total_num_nodes)
            edges = cache.look_up(ids)
            num_types = len(graph.edge_type_to_id or {}) or 1
            picks = sample_cached_columns(graph.csc_indptr, edges, ids, fanouts, keys, drawing, num_types)
            if edges.types is not None:  # types ascend where edges do
                picks = sort_within_columns(picks)
            found.append(picks)
            # Copies are found by column, so all is read before it is split by type.
            parts = {
                name: ops.read_edges(values, *picks)
                for name, values in edges._asdict().items()
                if values is not None and name != "weights"
            }
            return EdgeArrays(**{"edge_ids": picks.positions, **parts})

        def take_all(ids: torch.Tensor, edges: EdgeArrays, num_types: int) -> ops.Picks:  # noqa: ARG001
            (offsets, positions), device = found[0], edges.indices.device
            return ops.Picks(offsets, torch.arange(positions.numel(), device=device))

        return sample_one_hop(graph, seeds, take_all, read)[0]


def sort_within_columns(picks: ops.Picks) -> ops.Picks:
    """Return picks whose positions ascend in each column; waits for no device."""
    offsets, positions = picks
    columns = torch.arange(offsets.numel() - 1, device=offsets.device)
    columns = torch.repeat_interleave(columns, offsets.diff(), output_size=positions.numel())
    order = positions.argsort()
    order = order[columns[order].argsort(stable=True)]
    return ops.Picks(offsets, positions[order])


def cached_graph_for(graph: GraphArrays, seeds: ByType, request: SamplingRequest) -> GPUCachedGraph | None:
    """Return the graph with a cache on the seeds' GPU, as a request asks for; None where no graph is read over the bus.

    Args:
        graph: The graph; a graph in GPU memory needs no cache.
        seeds: Node ids; on the CPU, they need no cache.
        request: The size of the cache, and its threshold.
    """
    if request.num_gpu_cached_edges == 0 or not graph.indices.is_cpu:
        return None
    parts = list(seeds.values()) if isinstance(seeds, dict) else [seeds]
    if not parts or not all(map(on_gpu, parts)):
        return None
    return GPUCachedGraph(graph, (request.num_gpu_cached_edges, request.gpu_cache_threshold), parts[0].device)
