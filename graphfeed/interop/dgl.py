"""DGL: sampled subgraphs as blocks, DGL graphs as graphs, the walks of `dgl.sampling`, and embeddings that are trained.

The functions take DGL graphs, which they convert in each call, or graphs of this package, whose reversed copy they
keep. Walks follow the edges, as in DGL. Their random numbers come from `graphfeed.seed`, or from the mini-batch in a
stage; the same ones give the same walks on any number of threads.

If this module is imported before DGL, DGL works with any release of torch. `import dgl` imports `dgl.graphbolt`, which
needs a library that was compiled for one release of torch, and a module that was removed from torchdata. If DGL is not
imported yet, graphfeed replaces that module: `import dgl` succeeds, and `dgl.graphbolt` has graphfeed's names.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch

from graphfeed.interop.dgl_embeddings import NodeEmbedding, SparseAdagrad, SparseAdam
from graphfeed.ops.arguments import as_ids, brief, checked, kind_of
from graphfeed.ops.process import import_optional
from graphfeed.ops.sampling import count_visits
from graphfeed.storage.graph import (
    ORIGINAL_EDGE_ID,
    FusedCSCSamplingGraph,
    SampledSubgraph,
    WalkRequest,
    etype_str_to_tuple,
    etype_tuple_to_str,
    from_coo,
    fused_csc_sampling_graph,
    to_type_dict,
)

__all__ = [
    "NodeEmbedding", "PinSAGESampler", "RandomWalkNeighborSampler", "SparseAdagrad", "SparseAdam", "from_dglgraph",
    "node2vec_random_walk", "random_walk",
]  # fmt: skip

INT32_MAX = torch.iinfo(torch.int32).max
OF_TYPES = ("node_type_offset", "type_per_edge", "node_type_to_id", "edge_type_to_id")
"""Fields of a graph that only a typed one has."""


def compute_blocks(subgraphs: list[SampledSubgraph]) -> list[Any]:
    """Return one DGL block per subgraph. The subgraphs are not changed."""
    dgl = import_optional(
        "dgl",
        "blocks",
        "pip install dgl, any release since 2.1, and import graphfeed.interop.dgl before it; or use sampled_subgraphs "
        "and their to_pyg()",
    )
    blocks = [make_block(dgl, subgraph) for subgraph in subgraphs]
    for block, subgraph in zip(blocks, subgraphs, strict=True):
        if isinstance(subgraph.original_edge_ids, dict):
            for edge_type, ids in subgraph.original_edge_ids.items():
                block.edges[tuple(edge_type.split(":"))].data[dgl.EID] = ids
        elif subgraph.original_edge_ids is not None:
            block.edata[dgl.EID] = subgraph.original_edge_ids
    # Only the source nodes of the first block have their ids.
    rows = subgraphs[0].original_row_node_ids if subgraphs else None
    if isinstance(rows, dict):
        for node_type, ids in rows.items():
            blocks[0].srcnodes[node_type].data[dgl.NID] = ids
    elif rows is not None:
        blocks[0].srcdata[dgl.NID] = rows
    return blocks


def make_block(dgl: Any, subgraph: SampledSubgraph) -> Any:
    """Return a subgraph as a DGL block without data."""
    counts = []
    for name in ("original_row_node_ids", "original_column_node_ids"):
        ids = getattr(subgraph, name)
        if ids is None:
            raise ValueError(f"Missing `{name}` in sampled subgraph; a block needs the number of its nodes")
        counts.append({name: len(values) for name, values in (ids if isinstance(ids, dict) else {"": ids}).items()})
    csc = subgraph.sampled_csc
    parts = csc if isinstance(csc, dict) else {"": csc}
    most = max([*counts[0].values(), *(len(part.indices) for part in parts.values())], default=0)
    # DGL is faster with int32.
    dtype = torch.int32 if most <= INT32_MAX else torch.int64
    data = {}
    for name, part in parts.items():
        positions = torch.arange(len(part.indices), dtype=dtype, device=part.indices.device)
        data[tuple(name.split(":"))] = "csc", (part.indptr.to(dtype), part.indices.to(dtype), positions)
    if isinstance(csc, dict):
        return dgl.create_block(data, num_src_nodes=counts[0], num_dst_nodes=counts[1])
    return dgl.create_block(data[("",)], num_src_nodes=counts[0][""], num_dst_nodes=counts[1][""])


@checked
def from_dglgraph(
    g: Any, is_homogeneous: bool = False, include_original_edge_id: bool = False
) -> FusedCSCSamplingGraph:
    """Return a graph with the nodes and edges of a `dgl.DGLGraph`. Node types and edge types keep their numbers.

    An attribute belongs to all nodes or all edges. Therefore, node and edge data become attributes only if every type
    has them, with the same dtype and row shape. DGL is not imported.

    Args:
        g: The graph, or any object with the same `ntypes`, `canonical_etypes`, `num_nodes`, `edges` and `nodes`.
        is_homogeneous: Whether to drop the types. The ids of each node type then follow those of the previous type. If
            False, a graph of one type is typed, too.
        include_original_edge_id: Whether to keep DGL's edge ids, by type, as the `original_edge_ids` of sampled
            subgraphs. Without them, edge ids are positions in the new graph, and edge features of the DGL graph can't
            be fetched.

    Example:
        >>> import dgl  # doctest: +SKIP
        >>> from_dglgraph(dgl.graph(([1, 2], [0, 0])), is_homogeneous=True)  # doctest: +SKIP
        FusedCSCSamplingGraph(num_nodes=3, num_edges=2)
    """
    if not all(hasattr(g, name) for name in ("ntypes", "canonical_etypes", "num_nodes", "edges", "nodes")):
        raise TypeError(f"g must be a dgl.DGLGraph, but is {kind_of(g)}; from_coo takes edge lists")
    names = {":".join(canonical): canonical for canonical in g.canonical_etypes}
    edges = {name: g.edges(etype=canonical, order="eid") for name, canonical in names.items()}
    graph = from_coo(
        edges,
        {canonical: g.num_nodes(canonical) for canonical in g.ntypes},
        node_attributes=in_every_type({canonical: g.nodes[canonical].data for canonical in g.ntypes}),
        edge_attributes=in_every_type({name: g.edges[canonical].data for name, canonical in names.items()}),
    )
    edge_attributes = dict(graph.edge_attributes)
    if not include_original_edge_id:
        del edge_attributes[ORIGINAL_EDGE_ID]
    fields = {**graph.fields(), "edge_attributes": edge_attributes}
    fields["indices"] = graph.indices.to(next(iter(edges.values()))[0].dtype)
    if is_homogeneous:
        fields.update(dict.fromkeys(OF_TYPES))
    return fused_csc_sampling_graph(**fields)


def in_every_type(data: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
    """Return the data that every type has with the same dtype and row shape, by name, then by type."""
    attributes = {}
    for name in next(iter(data.values())):
        by_type = {type_name: columns[name] for type_name, columns in data.items() if name in columns}
        if len(by_type) == len(data) and len({(values.dtype, values.shape[1:]) for values in by_type.values()}) == 1:
            attributes[name] = by_type
    return attributes


REVERSED: WeakKeyDictionary[FusedCSCSamplingGraph, tuple[list[Any], dict[bool, FusedCSCSamplingGraph]]]
REVERSED = WeakKeyDictionary()
"""By graph: its arrays when it was reversed, and the reversed graph, with its types and without."""


def reversed_graph(g: Any, *, untyped: bool = False) -> FusedCSCSamplingGraph:
    """Return a graph whose in-edges are the out-edges of `g`, without the only type if `untyped`."""
    if not isinstance(g, FusedCSCSamplingGraph):
        return from_dglgraph(g, is_homogeneous=untyped, include_original_edge_id=True).reversed()
    parts = [g.csc_indptr, g.indices, g.type_per_edge, *chain.from_iterable(g.edge_attributes.items())]
    before, made = REVERSED.get(g, ([], {}))
    if len(before) != len(parts) or any(old is not new for old, new in zip(before, parts, strict=True)):
        made = {}
        REVERSED[g] = parts, made
    if untyped not in made:
        is_one = untyped and len(g.edge_types) == len(g.node_type_to_id or ()) == 1
        own = fused_csc_sampling_graph(**{**g.fields(), **dict.fromkeys(OF_TYPES)}) if is_one else g
        made[untyped] = own.reversed()
    return made[untyped]


def reversed_etypes(g: FusedCSCSamplingGraph, metapath: Sequence[Any]) -> list[str]:
    """Return the edge types of a reversed graph for a metapath along the edges: relations, or edge types."""
    known = {name: etype_str_to_tuple(name) for name in g.edge_types}
    found = []
    for given in metapath:
        ends = tuple(given) if isinstance(given, (tuple, list)) else tuple(str(given).split(":"))
        near = [
            name for name, (source, relation, end) in known.items() if ends in ((relation,), (end, relation, source))
        ]
        if len(near) != 1:
            along = [etype_tuple_to_str((end, relation, source)) for source, relation, end in known.values()]
            raise ValueError(f"metapath has {brief(given)}, which is {len(near)} of the edge types {along}")
        found += near
    return found


def walk_along(
    g: Any, nodes: Any, request: WalkRequest, metapath: Sequence[Any] | None, *, edge_ids: bool, untyped: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the nodes of walks along the edges, the number of the type of each step's node, and the edge ids."""
    graph = reversed_graph(g, untyped=untyped)
    if graph.edge_types:
        if metapath is None and len(graph.edge_types) > 1:
            raise ValueError(f"g has {len(graph.edge_types)} edge types; give metapath instead of length")
        etypes = graph.edge_types * request.length if metapath is None else reversed_etypes(graph, metapath)
        request = WalkRequest(
            request.length, request.per_seed, request.p, request.q, request.stop, request.probs_name, etypes
        )
        if not request.etypes:
            raise ValueError("metapath and length must have at least one step, since g has types")
    seeds = as_ids("nodes", nodes)
    given: Any = seeds if not graph.edge_types else {request.node_types[0] or next(iter(graph.node_type_to_id)): seeds}
    # Equal starts have different walks, as in DGL.
    numbers = torch.arange(len(seeds), device="cpu") % (1 << 23) if request.per_seed == 1 else None
    walks = graph.sample_walks(given, request, numbers=numbers, edge_ids=edge_ids)
    kinds: dict[Any, int] = graph.node_type_to_id or {None: 0}
    types = torch.tensor([kinds[name] for name in request.node_types], dtype=torch.int64, device="cpu")
    return walks.nodes, types, walks.edges


@checked
def random_walk(
    g: Any,
    nodes: torch.Tensor,
    *,
    metapath: Sequence[Any] | None = None,
    length: int | None = None,
    prob: str | None = None,
    restart_prob: Any = None,
    return_eids: bool = False,
) -> Any:
    """Return random walks along the edges, like `dgl.sampling.random_walk`.

    Args:
        g: A graph, or a DGL graph, which is converted in each call.
        nodes: Start node of each walk, of the type where the metapath begins.
        metapath: The edge type of each step, as relations or full names; needed if the graph has several edge types.
        length: Number of steps, without a metapath.
        prob: Name of edge data with the weights of the edges.
        restart_prob: The chance that a walk ends before a step; or a number for each step.
        return_eids: Whether to return the ids of the edges.

    Returns:
        The traces, shape (nodes, length + 1), with -1 after the end of a walk; the edge ids, if asked for, shape
        (nodes, length); and the number of the node type of each column.

    Raises:
        ValueError: A start is not a node, or neither `metapath` nor `length` is given, or both.

    Example:
        >>> graph = from_coo(([0, 1, 2], [1, 2, 3]), num_nodes=4)
        >>> traces, types = random_walk(graph, torch.tensor([0, 2]), length=2)
        >>> traces
        tensor([[ 0,  1,  2],
                [ 2,  3, -1]])
    """
    if (metapath is None) == (length is None):
        raise ValueError("either metapath or length must be given; a metapath has an edge type for each step")
    steps: Any = length if metapath is None else len(metapath)
    stop = 0.0 if restart_prob is None else restart_prob.tolist() if hasattr(restart_prob, "tolist") else restart_prob
    request = WalkRequest(steps, stop=stop, probs_name=prob)
    traces, types, edges = walk_along(g, nodes, request, metapath, edge_ids=return_eids)
    return (traces, edges, types) if return_eids else (traces, types)


@checked
def node2vec_random_walk(
    g: Any,
    nodes: torch.Tensor,
    p: float,
    q: float,
    walk_length: int,
    prob: str | None = None,
    return_eids: bool = False,
) -> Any:
    """Return node2vec walks along the edges, like `dgl.sampling.node2vec_random_walk`; the graph has one edge type.

    Args:
        g, nodes, prob, return_eids: As for `random_walk`.
        p, q: As for `sample_walks`.
        walk_length: Number of steps.

    Returns:
        The traces; with `return_eids`, also the ids of the edges.

    Example:
        >>> graph = from_coo(([0, 1, 2], [1, 2, 3]), num_nodes=4)
        >>> node2vec_random_walk(graph, torch.tensor([1]), p=1.0, q=0.5, walk_length=3)
        tensor([[ 1,  2,  3, -1]])
    """
    request = WalkRequest(walk_length, 1, p, q, 0.0, prob)
    traces, _, edges = walk_along(g, nodes, request, None, edge_ids=return_eids, untyped=True)
    return (traces, edges) if return_eids else traces


class RandomWalkNeighborSampler:
    """Returns the nodes that walks from seeds visit most, as `dgl.sampling.RandomWalkNeighborSampler` does.

    `sampler(seeds)` returns a DGL graph with an edge to each seed from each of its neighbours. As in DGL, nodes with
    equal numbers of visits are sorted by descending id. In pipelines, use the stage `sample_by_visits`.

    Args:
        G: A graph, or a DGL graph.
        num_traversals: Number of traversals of the metapath per walk.
        termination_prob: The chance that a walk ends before each traversal after the first.
        num_random_walks: Number of walks from each seed.
        num_neighbors: Number of nodes for each seed.
        metapath: The edge types of a traversal, which leads back to its first node type; by default, the only one.
        weight_column: Name of the edge data with the numbers of visits.

    Raises:
        ValueError: The metapath doesn't lead back, or the graph has several edge types and there is no metapath.
    """

    @checked
    def __init__(
        self,
        G: Any,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        metapath: Sequence[Any] | None = None,
        weight_column: str = "weights",
    ) -> None:
        self.graph, self.num_neighbors, self.weight_column = reversed_graph(G), num_neighbors, weight_column
        if metapath is None and len(self.graph.edge_types) > 1:
            raise ValueError(f"G has {len(self.graph.edge_types)} edge types; give metapath")
        names = self.graph.edge_types if metapath is None else reversed_etypes(self.graph, metapath)
        self.hops = len(names) or 1
        stops = [0.0] * self.hops + ([termination_prob] + [0.0] * (self.hops - 1)) * (num_traversals - 1)
        self.request = WalkRequest(len(stops), num_random_walks, stop=stops, etypes=names)
        if self.request.node_types[0] != self.request.node_types[-1]:
            raise ValueError(f"metapath must lead back to {self.request.node_types[0]!r}, where it begins")

    def visits(self, seed_nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the source, destination and number of visits of each edge, by destination."""
        seeds, node_type = as_ids("seed_nodes", seed_nodes), self.request.node_types[0]
        walks = self.graph.sample_walks(seeds if node_type is None else {node_type: seeds}, self.request).nodes
        last = self.num_nodes - 1
        # Descending ids among equal numbers of visits.
        ends = walks[:, self.hops :: self.hops]
        ranked = count_visits(
            torch.where(ends < 0, ends, last - ends).reshape(len(seeds), self.request.per_seed * ends.shape[1]),
            self.num_neighbors,
        )
        return last - ranked.nodes, seeds.repeat_interleave(ranked.indptr.diff()), ranked.values

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the type of the seeds."""
        found: int = to_type_dict(self.graph.num_nodes)[self.request.node_types[0]]
        return found

    def __call__(self, seed_nodes: torch.Tensor) -> Any:
        """Return the DGL graph of the seeds and their neighbours."""
        sources, destinations, counts = self.visits(seed_nodes)
        dgl = import_optional("dgl", "graphs", "pip install dgl, or use the stage sample_by_visits")
        kind = self.request.node_types[0] or "_N"
        made = dgl.heterograph({(kind, "_E", kind): (sources, destinations)}, {kind: self.num_nodes})
        made.edata[self.weight_column] = counts
        return made


class PinSAGESampler(RandomWalkNeighborSampler):
    """Returns the nodes that walks to another type and back visit most, as `dgl.sampling.PinSAGESampler` does.

    Args:
        ntype: Type of the seeds.
        other_type: The type between; there must be one edge type in each direction.
        G, num_traversals, termination_prob, num_random_walks, num_neighbors, weight_column: As for the base class.

    Raises:
        ValueError: There is not one edge type in each direction.
    """

    @checked
    def __init__(
        self,
        G: Any,
        ntype: str,
        other_type: str,
        num_traversals: int,
        termination_prob: float,
        num_random_walks: int,
        num_neighbors: int,
        weight_column: str = "weights",
    ) -> None:
        graph = G if isinstance(G, FusedCSCSamplingGraph) else from_dglgraph(G, include_original_edge_id=True)
        ends = {name: etype_str_to_tuple(name)[::2] for name in graph.edge_types}
        there, back = (
            [name for name, own in ends.items() if own == pair] for pair in ((ntype, other_type), (other_type, ntype))
        )
        if len(there) != 1 or len(back) != 1:
            raise ValueError(
                f"there are {len(there)} edge types from {ntype!r} to {other_type!r} and {len(back)} back; "
                "use RandomWalkNeighborSampler with a metapath"
            )
        options = num_traversals, termination_prob, num_random_walks, num_neighbors
        super().__init__(graph, *options, [*there, *back], weight_column)


# At import time, because DGL imports the module: a function would be called too late if `import dgl` comes first.
if "dgl" not in sys.modules:
    sys.modules.setdefault("dgl.graphbolt", sys.modules["graphfeed"])
