"""A pinned graph, and on a GPU copies of the columns that are asked for again and again."""

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.backend import on_gpu
from graphfeed.ops.rows.gather import take_rows
from graphfeed.storage.graph.fused_csc_sampling_graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph, Hop
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_graph import SamplingGraph
from graphfeed.storage.memory.stream_ordered_lock import StreamOrderedLock
from graphfeed.storage.memory.tensor_tree import tensors_in

READ = ("indices", ORIGINAL_EDGE_ID)
"""What is read of the edges that were picked; the rest is read to pick them."""


class GPUGraphCache:
    """Copies of a graph's columns on a GPU: each is made when it was asked for often enough, while there is room.

    Nothing is thrown out. Takes 8 bytes a node on the GPU, and for each edge that there is room for as many as its
    values have. Which columns are there depends on the requests and their order alone; where a value is read makes no
    difference to it. Any thread may ask, on any stream; until it is full, one at a time.

    Args:
        csc_indptr: Column starts, in memory that the GPU reads.
        edges: By name values of the graph's edges, of integer dtypes, in such memory.
        num_edges: For how many edges there is room.
        threshold: When a column is asked for so often, it is copied; 1 is at once.
        device: The GPU.
    """

    def __init__(
        self,
        csc_indptr: torch.Tensor,
        edges: dict[str, torch.Tensor],
        num_edges: int,
        threshold: int,
        device: torch.device,
    ) -> None:
        self._indptr = csc_indptr
        self._edges = edges
        self._threshold = threshold
        self._size = min(num_edges, min(map(len, edges.values())))
        self._used = 0
        self._kept = {name: values.new_empty(self._size, device=device) for name, values in edges.items()}
        # How far a column's copy lies from its values, and for one without a copy how often it was asked for.
        self._shifts = torch.full((csc_indptr.numel() - 1,), ops.NOT_KEPT, dtype=torch.int64, device=device)
        self._lock = StreamOrderedLock(self._shifts, *self._kept.values())

    @property
    def num_edges(self) -> int:
        """How many edges there are copies of."""
        return self._used

    def look_up(self, ids: torch.Tensor) -> dict[str, ops.KeptEdges]:
        """Return the edges, with the copies of the columns of some nodes; make those that are due first.

        Until the cache is full that waits for the device once, and more often where there are copies to make.

        Args:
            ids: Nodes of the graph, on the GPU; one that occurs twice was asked for once.
        """
        with self._lock.acquire():
            if self._used < self._size:
                self._keep_often_asked(ids)
            shifts = take_rows(self._shifts, ids).clamp_(min=ops.NOT_KEPT)
        return {name: ops.KeptEdges(values, self._kept[name], shifts) for name, values in self._edges.items()}

    def _keep_often_asked(self, ids: torch.Tensor) -> None:
        """Count what is asked for, and copy what is due and finds room, in order of first appearance."""
        known = take_rows(self._shifts, ids)
        self._shifts[ids.long()] = torch.where(known <= ops.NOT_KEPT, known - 1, known)
        asked = ids[known <= ops.NOT_KEPT - self._threshold + 1]
        if asked.numel() == 0:
            return
        due = ops.compact(asked[:0], asked).rows.long()
        starts, ends = (take_rows(self._indptr, nodes).long() for nodes in (due, due + 1))
        room = self._size - self._used
        fitting = ends - starts <= room
        due, starts, ends = due[fitting], starts[fitting], ends[fitting]
        last = (ends - starts).cumsum(0)
        count = int((last <= room).sum())
        if count == 0:
            return
        due, starts, last = due[:count], starts[:count], last[:count]
        columns = torch.cat([last.new_zeros(1), last])
        positions = ops.indptr_edge_ids(columns, offset=starts)
        after = self._used + positions.numel()
        for name, values in self._edges.items():
            self._kept[name][self._used : after] = take_rows(values, positions)
        self._shifts[due] = self._used + columns[:-1] - starts
        self._used = after


class CachedGraph(FusedCSCSamplingGraph):
    """A graph whose sampled edges are read from a cache; made by `with_gpu_cache`."""

    _cache: GPUGraphCache

    # Hop after hop: all hops in one call would read the graph's own arrays.
    sample_hops = SamplingGraph.sample_hops
    labor_sample_hops = SamplingGraph.labor_sample_hops

    def _open_hop(self, ids: torch.Tensor) -> Hop:
        return KeptHop(self, ids, self._cache.look_up(ids))


class KeptHop(Hop):
    """A hop whose edges are read from copies of their columns where there are such."""

    def __init__(self, graph: FusedCSCSamplingGraph, ids: torch.Tensor, edges: dict[str, ops.KeptEdges]) -> None:
        super().__init__(graph, ids)
        self.edges = edges

    def given(self, values: Any) -> Any:
        """Return values of the graph's edges with their copies, and anything else as it is."""
        return next((own for own in self.edges.values() if own.values is values), values)

    def pick(self, pick: Callable[..., ops.Picks], **types: Any) -> ops.Picks:
        """Choose edges; what the op is given of the graph's edges it gets with the copies."""
        if isinstance(pick, partial):
            named = {name: self.given(value) for name, value in pick.keywords.items()}
            pick = partial(pick.func, *map(self.given, pick.args), **named)
        return pick(self.ids, **types)

    def read(self, picks: ops.Picks, typed: ops.TypedPicks | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sources and the ids of the edges that were picked, by type where they were grouped so."""
        read = {name: ops.read_edges(own, *picks) for name, own in self.edges.items() if name in READ}
        sources, edge_ids = read["indices"], read.get(ORIGINAL_EDGE_ID, picks.positions)
        if typed is None:
            return sources, edge_ids
        order = ops.read_edges(self.edges["types"], *picks).argsort(stable=True)
        return sources[order], edge_ids[order]


CACHED: "weakref.WeakKeyDictionary[FusedCSCSamplingGraph, dict[object, CachedGraph]]" = weakref.WeakKeyDictionary()
CACHED_LOCK = threading.Lock()


def with_gpu_cache(
    graph: SamplingGraph, seeds: ByType, num_edges: int, threshold: int, probs_name: str | None = None
) -> SamplingGraph:
    """Return a graph that gives the same bits, with a cache on the seeds' GPU where that reads the graph over the bus.

    The cache lasts as long as the graph, and as its arrays are these: samplers of one graph that ask for the same
    number of edges, the same threshold and the same weights share it.

    Args:
        graph: Any; what lies on the GPU itself, or is not in memory, is returned as it is.
        seeds: Node ids; where they lie on the CPU, the graph is returned as it is.
        num_edges: For how many edges there is room; 0 for no cache.
        threshold: When a column is asked for so often, it is copied.
        probs_name: The edge attribute whose weights will be asked for.
    """
    parts = list(seeds.values()) if isinstance(seeds, dict) else [seeds]
    there = num_edges > 0 and all(map(on_gpu, parts))
    if not there or not parts or not isinstance(graph, FusedCSCSamplingGraph) or not graph.indices.is_cpu:
        return graph
    weights = None if probs_name is None else graph.prepare_weights(probs_name)
    key = (parts[0].device, num_edges, threshold, probs_name)
    with CACHED_LOCK:
        views = CACHED.setdefault(graph, {})
        if key not in views or not same_arrays(views[key], graph):
            views[key] = make_view(graph, weights, num_edges, threshold, parts[0].device)
        return views[key]


def same_arrays(view: FusedCSCSamplingGraph, graph: FusedCSCSamplingGraph) -> bool:
    """Tell whether two graphs have the same arrays under the same names."""
    names = [(own.node_attributes.keys(), own.edge_attributes.keys()) for own in (view, graph)]
    mine, its = ([id(tensor) for tensor in tensors_in(own.fields())] for own in (view, graph))
    return names[0] == names[1] and mine == its


def make_view(
    graph: FusedCSCSamplingGraph,
    weights: torch.Tensor | None,
    num_edges: int,
    threshold: int,
    device: torch.device,
) -> CachedGraph:
    """Return a graph of the same arrays with an empty cache."""
    edges = {
        "indices": graph.indices,
        "types": graph.type_per_edge,
        "weights": weights,
        ORIGINAL_EDGE_ID: graph.edge_attributes.get(ORIGINAL_EDGE_ID),
    }
    there = {name: values for name, values in edges.items() if values is not None}
    view = CachedGraph(**graph.fields())
    # Of the same weights, so that their running sums are made once.
    view._cumulative = graph._cumulative
    view._cache = GPUGraphCache(graph.csc_indptr, there, num_edges, threshold, device)
    return view
