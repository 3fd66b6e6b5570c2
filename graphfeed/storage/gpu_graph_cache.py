"""A pinned graph, and on a GPU copies of the columns that are asked for again and again."""

import threading
import weakref
from collections.abc import Sequence

import torch

from graphfeed import ops
from graphfeed.ops.backend import on_gpu
from graphfeed.ops.gather import take_rows
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph
from graphfeed.storage.sampled_subgraph import ByType, SampledSubgraph, tensors_in
from graphfeed.storage.sampling_graph import SamplingGraph
from graphfeed.storage.turns import Turns


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
        self._turns = Turns(self._shifts, *self._kept.values())

    @property
    def num_edges(self) -> int:
        """How many edges there are copies of."""
        return self._used

    def look_up(self, ids: torch.Tensor) -> dict[str, ops.KeptEdges]:
        """Return the edges, with the copies of the columns of some nodes; make those that are due first.

        Args:
            ids: Nodes of the graph, on the GPU; one that occurs twice was asked for once.
        """
        with self._turns.take():
            if self._used < self._size:
                self._keep_often_asked(ops.compact(ids[:0], ids).rows)
            shifts = take_rows(self._shifts, ids).clamp_(min=ops.NOT_KEPT)
        return {name: ops.KeptEdges(values, self._kept[name], shifts) for name, values in self._edges.items()}

    def _keep_often_asked(self, ids: torch.Tensor) -> None:
        """Count what is asked for, and copy in this order what is due and finds room."""
        known = take_rows(self._shifts, ids)
        missing = known <= ops.NOT_KEPT
        ids, counts = ids[missing], known[missing] - 1
        self._shifts[ids.long()] = counts
        due = ids[counts <= ops.NOT_KEPT - self._threshold].long()
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

    def sample_layers(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        keys: Sequence[int],
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop (see `SamplingGraph`)."""
        return SamplingGraph.sample_layers(self, seeds, fanouts, keys, replace, probs_name)

    def sample_layers_jointly(
        self,
        seeds: ByType,
        fanouts: Sequence[torch.Tensor],
        random_seeds: Sequence[tuple[int, int]],
        seed2_contribution: float = 0.0,
        replace: bool = False,
        probs_name: str | None = None,
    ) -> list[SampledSubgraph]:
        """Sample hop after hop (see `SamplingGraph`)."""
        return SamplingGraph.sample_layers_jointly(
            self, seeds, fanouts, random_seeds, seed2_contribution, replace, probs_name
        )

    def _read_edges(
        self, ids: torch.Tensor, picks: ops.Picks, typed: ops.TypedPicks | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        edges = self._cache.look_up(ids)
        read = {name: ops.read_edges(own, picks) for name, own in edges.items()}
        sources, edge_ids = read["indices"], read.get(ORIGINAL_EDGE_ID, picks.positions)
        if typed is None:
            return sources, edge_ids
        order = read["types"].argsort(stable=True)
        return sources[order], edge_ids[order]


CACHED: "weakref.WeakKeyDictionary[FusedCSCSamplingGraph, dict[object, CachedGraph]]" = weakref.WeakKeyDictionary()
CACHED_LOCK = threading.Lock()


def with_gpu_cache(
    graph: SamplingGraph, seeds: ByType, num_edges: int, threshold: int, probs_name: str | None = None
) -> SamplingGraph:
    """Return a graph that gives the same bits, with a cache on the seeds' GPU where that reads the graph over the bus.

    The cache lasts as long as the graph, and as its arrays are these: samplers of one graph that ask for the same
    number of edges and the same threshold share it.

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
    if probs_name is not None:
        graph.prepare_weights(probs_name)
    key = (parts[0].device, num_edges, threshold)
    with CACHED_LOCK:
        views = CACHED.setdefault(graph, {})
        if key not in views or not same_arrays(views[key], graph):
            views[key] = make_view(graph, num_edges, threshold, parts[0].device)
        return views[key]


def same_arrays(view: FusedCSCSamplingGraph, graph: FusedCSCSamplingGraph) -> bool:
    """Tell whether two graphs have the same arrays under the same names."""
    names = [(own.node_attributes.keys(), own.edge_attributes.keys()) for own in (view, graph)]
    mine, its = ([id(tensor) for tensor in tensors_in(own.fields())] for own in (view, graph))
    return names[0] == names[1] and mine == its


def make_view(graph: FusedCSCSamplingGraph, num_edges: int, threshold: int, device: torch.device) -> CachedGraph:
    """Return a graph of the same arrays with an empty cache."""
    edges = {"indices": graph.indices}
    if graph.type_per_edge is not None:
        edges["types"] = graph.type_per_edge
    if ORIGINAL_EDGE_ID in graph.edge_attributes:
        edges[ORIGINAL_EDGE_ID] = graph.edge_attribute(ORIGINAL_EDGE_ID)
    view = CachedGraph(**graph.fields())
    # Of the same weights, so that their running sums are made once.
    view._cumulative = graph._cumulative
    view._cache = GPUGraphCache(graph.csc_indptr, edges, num_edges, threshold, device)
    return view
