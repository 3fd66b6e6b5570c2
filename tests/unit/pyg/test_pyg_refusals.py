"""Errors that the loaders raise for PyG's data, and their messages."""

from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import pyg
from graphfeed.pyg.data import import_pyg
from tests.kinds.neighborhood import KINDS, NUM_EDGES, events, heterogeneous, homogeneous
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.stores import in_stores, sorted_data

KIND = ("user", "likes", "item")
KNOWS = ("user", "knows", "user")
PYG, SAMPLER = (import_pyg(f"torch_geometric.{room}", "tests") for room in ("data", "sampler"))
IDS, ONES = torch.arange(3), torch.ones(3)
EACH = torch.ones(NUM_EDGES)
PAIRS = torch.zeros(1, 2, dtype=torch.int64)
Loader: Any = pyg.NeighborLoader


def changed(store: Any, values: dict[str, Any]) -> Any:
    """Set attributes; remove those whose value is None."""
    for name, value in values.items():
        if value is None:
            del store[name]
        else:
            store[name] = value
    return store


def data(**values: Any) -> Any:
    return changed(homogeneous(), values)


def typed(kind: Any = "user", **values: Any) -> Any:
    """Return data with types, with changed attributes of one type."""
    made = heterogeneous()
    changed(made[kind], values)
    return made


def few(node_norm: Any = None, nodes: int = 3) -> Any:
    """Return data without edges."""
    made = PYG.Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=nodes)
    return made if node_norm is None else changed(made, {"node_norm": node_norm})


def nodes(given: Any, seeds: Any = None, times: Any = None, **options: Any) -> Any:
    return next(iter(Loader(given, [2], seeds, times, **options)))


def timed(given: Any, seeds: Any = None, times: Any = None, **options: Any) -> Any:
    return nodes(given, seeds, times, **{"time_attr": "time", **options})


def links(given: Any, index: Any = None, **options: Any) -> Any:
    return next(iter(pyg.LinkNeighborLoader(given, [2], index, **options)))


def unsorted() -> Any:
    kind = import_pyg("torch_geometric", "tests").EdgeIndex
    return kind(torch.tensor([[0, 0], [1, 0]]), sort_order="col")


def unsized() -> Any:
    return typed("item", x=None, time=None)


NO_SIZE = r"node type 'item' has no num_nodes; set data\['item'\].num_nodes"
OF_DATA: list[Refusal] = [
    (lambda: nodes((1, 2)), TypeError, r"data must be a Data or HeteroData of PyG, or a pair .*, but is a tuple"),
    (lambda: nodes(np.ones(2)), TypeError, "but is a ndarray"),
    (lambda: nodes(data(names=["a"] * 60)), TypeError, "'names' has one value for each node or edge, but is"),
    (lambda: nodes(data(x=torch.eye(60).to_sparse())), TypeError, "'x' is sparse .torch.sparse_coo., but"),
    (lambda: nodes(data(edge_index=None, adj_t=0)), ValueError, "data has 'adj_t', but edges are read from edge_index"),
    (lambda: nodes(data(weight=EACH.clone().requires_grad_())), ValueError, "'weight' .*requires a gradient"),
    (lambda: nodes(data(), weight_attr="w"), ValueError, "weight_attr is 'w', but data has no such attribute; it has"),
    (lambda: nodes(typed(), "user", weight_attr="w"), ValueError, "weight_attr is 'w', but no type of data has such"),
    (lambda: nodes(data(), time_attr="name"), ValueError, "time_attr is 'name', but neither"),
    (lambda: timed(typed(KIND, time=torch.arange(120)), "user"), ValueError, "exists for nodes and for edges"),
    (lambda: timed(data(edge_time=EACH), time_attr="edge_time"), TypeError, "'edge_time' must be torch.int64"),
    (lambda: timed(data(time=EACH.numpy().astype("M8[s]"))), TypeError, "^time_attr 'time' .* but holds datetime64"),
    (lambda: timed(typed(time=torch.ones(40)), "user"), TypeError, "'time' must be torch.int64, but is torch.float32"),
    (lambda: nodes(unsized(), "user"), ValueError, NO_SIZE),
    (lambda: pyg.RandomNodeLoader(unsized(), 2), ValueError, NO_SIZE),
    (lambda: nodes(data(edge_index=unsorted())), ValueError, "claims to be sorted by col, but is not"),
    (lambda: nodes(PYG.Data(edge_index=PAIRS.T + 59, num_nodes=30)), ValueError, "must be in 0 .. 29, but holds 59"),
    (lambda: pyg.ClusterData(typed(), 2), ValueError, "data has types"),
    (lambda: pyg.ShaDowKHopSampler(typed(), 2, 2), ValueError, "data has types"),
    (lambda: pyg.HGTLoader(data(), [2], None), ValueError, "graph has no types"),
    (lambda: pyg.GraphSAINTNodeSampler(few(), 2), ValueError, "data has no edges"),
    (lambda: pyg.GraphSAINTEdgeSampler(few(), 2), ValueError, "data has no edges"),
    (lambda: pyg.GraphSAINTNodeSampler(few(nodes=0), 2), ValueError, "data has no nodes"),
    (lambda: pyg.GraphSAINTNodeSampler(few(ONES), 2), ValueError, "data has 'node_norm'"),
    (lambda: pyg.GraphSAINTSampler(data(), 2), NotImplementedError, "must implement draw_nodes"),
]


def whole(*keys: tuple[str, str], kind: Any = None, rows: int = 3, weights: bool = True) -> Any:
    """Return PyG's data of a graph of three nodes and edges with features."""
    attributes = {"weight": ONES} if weights else None
    graph = gf.from_coo(([0, 2, 1], [1, 1, 0]), 3, edge_attributes=attributes)
    features = {(one, kind, name): gf.TorchBasedFeature(torch.ones(rows, 1)) for one, name in keys}
    return pyg.to_pyg(graph, gf.BasicFeatureStore(features))


OF_WHOLE_GRAPHS: list[Refusal] = [
    (lambda: pyg.from_pyg({}), TypeError, "data must be a Data or HeteroData of PyG, but is a dict"),
    (lambda: pyg.from_pyg(pair()), TypeError, "data must be a Data or HeteroData of PyG, but is a tuple"),
    (lambda: whole(("node", "a"), ("edge", "a")), ValueError, "nodes and edges both have 'a', but a Data has one"),
    (lambda: whole(("node", "weight")), ValueError, "nodes and edges both have 'weight'"),
    (lambda: whole(("edge", "edge_index")), ValueError, "edge feature is called 'edge_index', which PyG needs"),
    (lambda: whole(("node", "num_nodes")), ValueError, "a node feature is called 'num_nodes', which PyG needs"),
    (lambda: whole(("node", "x"), rows=4, weights=False), ValueError, "'x' of None has 4 rows, not 3"),
    (lambda: whole(("node", "x"), kind="user", weights=False), ValueError, "'x' of 'user' has 3 rows, not None"),
]


def pair(kinds: bool = False, group: Any = None, rows: int = 0, name: str = "late") -> Any:
    """Return a pair of stores, with an additional feature if it has rows."""
    features, graph = in_stores(sorted_data(kinds, "coo"), "coo")
    if rows:
        features.put_tensor(torch.ones(rows), group_name=group, attr_name=name, index=None)
    return features, graph


def pair_without_sizes() -> Any:
    features, graph = pair(True)
    for attr in graph.get_all_edge_attrs():
        index = graph.get_edge_index(attr)
        graph.remove_edge_index(attr)
        graph.put_edge_index(index, edge_type=attr.edge_type, layout="coo")
    for name in ("x", "time"):
        features.remove_tensor(group_name="item", attr_name=name, index=None)
    return features, graph


def pair_with_and_without_types() -> Any:
    features, graph = pair(True)
    graph.put_edge_index((IDS, IDS), edge_type=None, layout="coo", size=(3, 3))
    return features, graph


def pair_with_rows_left_out() -> Any:
    features, graph = pair(rows=60)
    given = features.get_tensor
    vars(features)["get_tensor"] = lambda attr, **options: (
        given(attr, **options)[:0] if attr.attr_name == "late" and attr.index is not None else given(attr, **options)
    )
    return features, graph


OF_STORES: list[Refusal] = [
    (lambda: nodes(pair(True, ("a", "b", "c"), 3), "user"), ValueError, r"the group \('a', 'b', 'c'\), which is nei"),
    (lambda: nodes((pair(True)[0], pair()[1])), ValueError, r"has the groups \['item', 'user'\] of nodes, but the"),
    (lambda: nodes(pair(False, (None, None), 200, "x")), ValueError, "feature 'x' exists for nodes and for edges"),
    (lambda: nodes(pair_with_and_without_types(), "user"), ValueError, "edges with and without a type"),
    (lambda: nodes((pair(True)[0], type(pair()[1])()), "user"), ValueError, "the graph store has no edges"),
    (lambda: nodes(pair_without_sizes(), "user"), ValueError, "node type 'item' has neither a feature nor a size"),
    (lambda: nodes(pair(False, None, 2)), ValueError, "feature 'late' has 2 rows, but the graph has 60 nodes"),
    (lambda: nodes(pair_with_rows_left_out()), ValueError, "feature 'late' in CountingStore has 0 rows for"),
]


def timeless() -> Any:
    return typed("item", time=None)


def around_items() -> Any:
    """Sample temporally around nodes of a type without times."""
    sampler = pyg.NeighborSampler(timeless(), [-1], time_attr="time")
    return sampler.sample_from_nodes(SAMPLER.NodeSamplerInput(None, IDS, None, "item"))


BOTH: Any = {"user": None, "item": None}
OWN = "'time'; give input_time"
Former: Any = pyg.NeighborSampler
OF_NODES: list[Refusal] = [
    (lambda: nodes(data(), IDS + 60), ValueError, "must be in 0 .. 59, but holds 62; check"),
    (lambda: nodes(data(), IDS[:0]), ValueError, "is empty"),
    (lambda: nodes(data(), IDS > 0), ValueError, "is a mask of shape"),
    (lambda: nodes(data(), ONES), ValueError, "must be ids"),
    (lambda: nodes(data(), "user"), ValueError, "but data has no types"),
    (lambda: nodes(typed()), ValueError, "must name a node type"),
    (lambda: nodes(typed(), IDS), ValueError, "must name a node type"),
    (lambda: nodes(typed(), "shop"), ValueError, "'shop'"),
    (lambda: pyg.HGTLoader(typed(), [2], None), ValueError, "input_nodes must name a node type"),
    (lambda: timed(typed(), "user", IDS), ValueError, "input_time must have 40 values"),
    (lambda: timed(data(), IDS, ONES), TypeError, "input_time must be torch.int64, but is torch.float32"),
    (lambda: nodes(data(), IDS, IDS), ValueError, "input_time needs time_attr"),
    (lambda: timed(timeless(), "item"), ValueError, f"input_nodes of 'item' have no {OWN}"),
    (lambda: timed(timeless(), BOTH), ValueError, f"input_nodes of 'item' have no {OWN}"),
    (lambda: timed(data(), time_attr="edge_time"), ValueError, "have no 'edge_time'; give input_time"),
    (lambda: timed(typed(KNOWS, t=torch.arange(90)), "user", time_attr="t"), ValueError, "have no 't'"),
    (lambda: around_items(), ValueError, "the seeds have no 'time'; give time"),
    (lambda: nodes(data(), sampler=[70]), IndexError, "^sampler must be in 0 .. 59, but holds 70"),
    (lambda: Former(PAIRS, sizes=[2]), TypeError, r"use NeighborLoader\(data, num_neighbors=...\)"),
    (lambda: Former(edge_index=PAIRS, num_neighbors=[2]), TypeError, "use NeighborLoader"),
]


def link_seeds(seeds: Any) -> Any:
    return list(pyg.LinkSeeds(gf.IterableSource([gf.MiniBatch(seeds=seeds)])))


TWO: Any = {KIND: None, KNOWS: None}
BACK = ("item", "liked_by", "user")
TRIPLETS: dict[str, Any] = {"neg_sampling": "triplet", "edge_label": EACH}
WEIGHTS = pyg.NegativeSampling("binary", 1, src_weight=torch.ones(5))
Negatives: Any = pyg.NegativeSampling
OF_EDGES: list[Refusal] = [
    (lambda: links(data(), PAIRS.expand(3, 2)), ValueError, "must have shape"),
    (lambda: links(data(), IDS[:0].expand(2, 0)), ValueError, "is empty"),
    (lambda: links(data(edge_index=None)), ValueError, "edge_label_index is empty"),
    (lambda: links(data(), edge_label=ONES), ValueError, "edge_label must have 200 values"),
    (lambda: links(data(), edge_label_time=IDS, time_attr="time"), ValueError, "edge_label_time must have 200 values"),
    (
        lambda: links(data(), torch.tensor([[60], [1]])),
        ValueError,
        "edge_label_index .sources. must be in 0 .. 59, but",
    ),
    (lambda: links(typed(), (KIND, PAIRS.T + 25)), ValueError, "edge_label_index .destinations. must be in 0 .. 24"),
    (lambda: links(data(), torch.ones(2, 3)), ValueError, "edge_label_index must be ids, but is torch.float32"),
    (lambda: links(typed()), ValueError, "must name an edge type"),
    (lambda: links(typed(), ("a", "b", "c")), ValueError, "has the edge type"),
    (lambda: links(data(), time_attr="time"), ValueError, "only time_attr is given"),
    (lambda: links(data(), edge_label_time=EACH), ValueError, "only edge_label_time is given"),
    (lambda: links(data(), **TRIPLETS), ValueError, "edge_label must be None with triplets"),
    (lambda: links(data(), neg_sampling=WEIGHTS), ValueError, "weights of nodes must have 60 values"),
    (lambda: Negatives.cast(3), TypeError, "neg_sampling must be"),
    (lambda: Negatives("some"), ValueError, "mode must be"),
    (lambda: Negatives("binary", 0), ValueError, "amount must be more than 0"),
    (lambda: Negatives("triplet", 1.5), ValueError, "must be an integer"),
    (lambda: link_seeds(IDS), ValueError, "must be edges, shape"),
    (lambda: links(data(), {KIND: None}), ValueError, "is a dict by edge type, but data has no types"),
    (lambda: links(typed(), {}), ValueError, "edge_label_index has no edge type"),
    (lambda: links(typed(), {("a", "b", "c"): None}), ValueError, "has the edge type"),
    (lambda: links(typed(), {KIND: None, ("user", "item"): None}), ValueError, "edge type 'user:likes:item' twice"),
    (lambda: links(typed(), TWO, edge_label=EACH), ValueError, "edge_label must be a dict with the edge types of edge"),
    (
        lambda: links(typed(), TWO, edge_label_time={KIND: IDS}, time_attr="time"),
        ValueError,
        "edge_label_time must be a",
    ),
    (lambda: links(typed(), TWO, input_id={KIND: IDS, KNOWS: IDS}), ValueError, "input_id must have 120 values"),
    (lambda: links(typed(), TWO, exclude_seed_edges=BACK), ValueError, "but seeds have several types; give a dict by"),
    (
        lambda: links(typed(), TWO, exclude_seed_edges={KIND: BACK}),
        ValueError,
        "a dict with the edge types of the seed",
    ),
    (lambda: pyg.LinkLoader(typed(), Drawn(), TWO), TypeError, "link_sampler is a Drawn, which samples around edges"),
    (lambda: links(typed(), KIND, exclude_seed_edges="reverse"), ValueError, "must be True, .*, or, as the seeds are"),
    (lambda: links(typed(), KIND, exclude_seed_edges=KIND), ValueError, "is not an edge type from 'item' to 'user'"),
    (lambda: links(typed(), KIND, exclude_seed_edges=7), ValueError, "must be True, 'reverse' or False"),
    (lambda: nodes(data(), exclude_seed_edges=True), TypeError, "has no argument 'exclude_seed_edges'"),
]


def windowed(given: Any, seeds: Any, window: Any) -> Any:
    return timed(given, seeds, time_window=window)


def induced(**options: Any) -> Any:
    return nodes(data(), subgraph_type="induced", **options)


COO: Any = "coo"
HOPS = {kind: [1] * (1 + place) for place, kind in enumerate(KINDS)}
OF_OPTIONS: list[Refusal] = [
    (lambda: nodes(data(), time_window=3), ValueError, "time_window needs time_attr"),
    (lambda: windowed(data(), None, -1), ValueError, "time_window must be 0 or more, but is -1"),
    (lambda: windowed(data(), None, 1.5), TypeError, "time_window must be integers"),
    (lambda: windowed(data(), [1, 2], IDS), ValueError, "time_window must have 2 values"),
    (lambda: windowed(typed(), BOTH, {"user": 3}), ValueError, "time_window has no window for 'item'"),
    (lambda: induced(disjoint=True), ValueError, "subgraph_type='induced' has one node"),
    (lambda: induced(time_attr="time"), ValueError, "subgraph_type='induced' has one node"),
    (lambda: nodes(data(), subgraph_type="all"), ValueError, "subgraph_type must be one of"),
    (lambda: nodes(data(), temporal_strategy="first"), ValueError, "temporal_strategy must be one of"),
    (lambda: nodes(data(), batchsize=3), TypeError, "NeighborLoader has no argument 'batchsize'"),
    (lambda: nodes(data(), sampler=[1], shuffle=True), ValueError, "sampler sets the order"),
    (lambda: nodes(data(), batch_sampler=[[1]], batch_size=4), ValueError, "batch_sampler sets the seeds"),
    (lambda: nodes(data(), batch_size=None), ValueError, "batch_size must be a number"),
    (lambda: Loader(typed(), {KNOWS: [0]}, "user"), ValueError, "Missing number"),
    (lambda: Loader(typed(), pyg.NumNeighbors({KIND[::-1]: [0]}, [1]), "user"), ValueError, "Not all edge types"),
    (lambda: Loader(typed(), HOPS, "user"), ValueError, "Number of hops must be the same"),
    (lambda: Loader(data(), {KIND: [3]}), ValueError, "num_neighbors is a dict by edge type, but data has no types"),
    (lambda: pyg.HGTLoader(typed(), {"user": [2]}, "user"), ValueError, r"must have the node types \['user', 'item'\]"),
    (lambda: pyg.ClusterData(data(), 0), ValueError, "num_parts must be 1 or more, but is 0"),
    (lambda: pyg.ClusterData(data(), 2, sparse_format=COO), ValueError, "must be 'csr' or 'csc', but is 'coo'"),
    (lambda: pyg.ClusterData(data(), 2)[2], IndexError, ""),
    (lambda: pyg.ClusterLoader(data()), TypeError, "cluster_data must be a ClusterData, but is a Data"),
    (lambda: pyg.RandomNodeLoader(data(), 0), ValueError, "num_parts must be"),
    (lambda: pyg.RandomNodeLoader(data(), 2, batch_size=3), TypeError, "batch_size"),
    (lambda: pyg.ShaDowKHopSampler(data(), 0, 2), ValueError, "depth must be"),
    (lambda: pyg.GraphSAINTNodeSampler(data(), 2, num_steps=0), ValueError, "num_steps must be 1 or more, but is 0"),
    (lambda: pyg.GraphSAINTRandomWalkSampler(data(), 2, -1), ValueError, "walk_length must be 0 or more, but is -1"),
    (lambda: pyg.GraphSAINTNodeSampler(data(), 2, coverage=2), TypeError, "has no argument 'coverage'"),
    (lambda: pyg.ZipLoader([[1, 2]]), TypeError, "loaders must be of graphfeed"),
    (lambda: pyg.ZipLoader([]), ValueError, "loaders is empty"),
    (lambda: pyg.ZipBatches(()), ValueError, "datapipes is empty"),
]


class Drawn:
    """A user-defined sampler that is never called."""

    def sample_from_edges(self, *given: Any) -> None:
        """Return None."""


def backward(given: Any) -> pyg.NeighborSampler:
    return pyg.NeighborSampler(given, [2], sample_direction="backward")


def unsampled() -> Any:
    return gf.ItemSampler(gf.ItemSet([0], names="seeds"), 1)


STRICT = pyg.NegativeSampling("triplet", strict=True)
Links: Any = pyg.LinkLoader
OF_SAMPLERS: list[Refusal] = [
    (lambda: pyg.NodeLoader(typed(), object(), "user"), TypeError, "node_sampler must be a sampler with sample_from_n"),
    (lambda: pyg.NodeLoader(data(), backward(data()), custom_cls=dict), ValueError, "custom_cls must be None"),
    (lambda: Links(data(), object()), TypeError, "sample_from_edges"),
    (lambda: Links(data(), Drawn(), custom_cls=dict), ValueError, "custom_cls must be None"),
    (lambda: Links(data(), backward(data()), neg_sampling=STRICT), ValueError, 'strict=True can.t be .*="backward"'),
    (lambda: Links(typed(), backward(typed()), KIND, neg_sampling="binary"), ValueError, "several node types can't"),
    (lambda: Former(data(), [1], sample_direction="up"), ValueError, "sample_direction must be 'forward' or 'back"),
    (lambda: pyg.HGTSampler(typed(), [2]).sample_from_edges(None), NotImplementedError, "edges with NeighborSam"),
    (lambda: list(pyg.InduceTrees(unsampled(), gf.from_coo(PAIRS.T, 1))), ValueError, "put a sampler before Induce"),
    (lambda: list(pyg.ToSamplerOutput(unsampled())), ValueError, "no sampled_subgraphs yet"),
    (lambda: list(gf.IterableSource([IDS]).to_pyg_data()), TypeError, r"to_pyg_data\(\) needs mini-batches, but got"),
]
draw: Any = pyg.ImbalancedSampler
WEIGHTED = torch.utils.data.WeightedRandomSampler([1.0] * 9, 3)
OF_LABELS: list[Refusal] = [
    (lambda: draw(ONES), TypeError, "integers, one class each, but are torch.float32"),
    (lambda: draw(IDS - 1), ValueError, "a label is -1"),
    (lambda: draw(IDS[:0]), ValueError, "no labels to draw from"),
    (lambda: draw(PYG.Data(y=IDS[:2], num_nodes=3)), ValueError, "3 nodes, but 2 labels"),
    (lambda: draw(PYG.HeteroData()), TypeError, "give its labels"),
    (lambda: draw([PYG.Data(x=ONES)]), TypeError, "graphs with y"),
    (lambda: draw(IDS, num_samples=0), ValueError, "num_samples must be"),
    (lambda: draw(IDS, EACH > 0), ValueError, "input_nodes of ImbalancedSampler must be ids, .* or a mask of 3 labels"),
    (lambda: draw(IDS, ONES), ValueError, "input_nodes of ImbalancedSampler must be ids"),
    (lambda: draw(IDS, IDS + 1), ValueError, "ImbalancedSampler .* must be in 0 .. 2, but holds 3"),
    (lambda: draw(IDS, IDS - 1), ValueError, "but holds -1"),
    (lambda: nodes(data(), IDS, sampler=draw(IDS[:2])), ValueError, "is an ImbalancedSampler of 2 seeds, but .* has 3"),
    (lambda: nodes(data(), IDS, sampler=draw(data().y, IDS + 1)), ValueError, "ImbalancedSampler of other seeds than"),
    (
        lambda: nodes(data(), IDS, sampler=WEIGHTED),
        ValueError,
        "a WeightedRandomSampler of 9 seeds, but the loader has",
    ),
]


def eventful(options: Any = None, **values: Any) -> Any:
    made = events()
    for name, value in values.items():
        made[name] = value
    return pyg.TemporalDataLoader(made, **(options or {}))


OF_EVENTS: list[Refusal] = [
    (lambda: pyg.TemporalDataLoader({}), TypeError, "must be a TemporalData"),
    (lambda: eventful(t=torch.arange(50).flip(0)), ValueError, r"times must not decrease, but t\[1\] is 48 after 49"),
    (lambda: eventful(t=None), ValueError, "data has no t;"),
    (lambda: eventful(dst=None), ValueError, "data has no dst;"),
    (lambda: eventful({"shuffle": True}), ValueError, "so shuffle can't be given"),
    (lambda: eventful({"sampler": [1, 0]}), ValueError, "so sampler can't be given"),
    (lambda: eventful({"neg_sampling_ratio": -1.0}), ValueError, "0 or more, but is -1.0"),
]
TABLES = {name: rows for name, rows in globals().items() if name.startswith("OF_")}


@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
def test_what_is_wrong_is_refused_in_these_words() -> None:
    for name in TABLES:
        check_refused(TABLES[name])
