"""PyG's data whose edges and attributes have wrong shapes, or may belong to nodes or to edges."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from graphfeed.distributed import LocalGraphStore, Partitioner
from graphfeed.pyg import ClusterData, LinkNeighborLoader, NeighborLoader, NeighborSampler, NodeLoader, from_pyg
from graphfeed.pyg.data import graph_of_data, import_pyg
from tests.kinds.neighborhood import heterogeneous, homogeneous
from tests.kinds.refusals import check_all_refused
from tests.kinds.stores import in_stores

PYG = import_pyg("torch_geometric.data", "tests")
LIKES = ("user", "likes", "item")


def first(data: Any, seeds: Any = None, **options: Any) -> Any:
    return next(iter(NeighborLoader(data, [2], seeds, **{"batch_size": 4, **options})))


WRONG_EDGES = {
    "a row for each edge": torch.tensor([[0, 1], [1, 2], [2, 3]]),
    "three rows": torch.zeros(3, 5, dtype=torch.int64),
    "one dimension": torch.arange(4),
    "no edge, a row for each": torch.empty(0, 2, dtype=torch.int64),
    "nothing": torch.empty(0),
    "floats": torch.ones(2, 5),
    "sparse": torch.eye(4).to_sparse(),
    "a list": [[0, 1], [1, 2]],
}


def with_edges(edges: Any, typed: bool = True) -> Any:
    if not typed:
        return PYG.Data(x=torch.eye(4), edge_index=edges)
    data = PYG.HeteroData()
    data["user"].x = data["item"].x = torch.eye(4)
    data[LIKES].edge_index = edges
    return data


def in_pair(edges: Any) -> Any:
    """Return a pair of stores whose edges are not a pair of tensors."""
    features, graph = in_stores(with_edges(torch.zeros(2, 1, dtype=torch.int64)), "coo")
    graph.get_edge_index = lambda attr: edges
    return features, graph


READERS: dict[str, Any] = {
    "graph": lambda edges: from_pyg(with_edges(edges)),
    "graph without types": lambda edges: from_pyg(with_edges(edges, typed=False)),
    "sampler": lambda edges: NeighborSampler(with_edges(edges), [2]),
    "nodes": lambda edges: NeighborLoader(with_edges(edges), [2], "item"),
    "links": lambda edges: LinkNeighborLoader(with_edges(edges), [2], LIKES),
    "stores": lambda edges: NeighborLoader(in_pair(edges), [2], "item"),
    "any sampler": lambda edges: NodeLoader(with_edges(edges), SomeSampler(), "item"),
    "clusters": lambda edges: ClusterData(with_edges(edges, typed=False), 2),
    "parts": lambda edges: Partitioner(with_edges(edges), 1, "nowhere").generate_partition(),
    "a part": lambda edges: LocalGraphStore.from_hetero_data({}, {LIKES: edges}, {"user": 4, "item": 4}),
}


class SomeSampler:
    """A sampler that is never called."""

    def sample_from_nodes(self, *given: Any) -> None:
        """Return None."""


def test_edges_that_have_not_two_rows_of_ids_are_refused_by_edge_type() -> None:
    for reader in READERS:
        owner = "data" if reader in ("graph without types", "clusters") else "user:likes:item"
        words = rf"edge_index of {owner} must be a tensor of ids, shape \(2, E\), but (is|has shape .* transpose it)"
        check_all_refused(READERS[reader], WRONG_EDGES.values(), words, (TypeError, ValueError))
        if reader not in ("links", "parts", "a part"):  # the first needs an edge
            READERS[reader](torch.empty(2, 0))


WRONG_ROWS: list[tuple[str, Any, str]] = [
    ("x", torch.ones(200, 2), "'x' has 200 rows, but there are 60 nodes and 200 edges; give it a row for each node"),
    ("x", torch.ones(1, 2), "'x' has 1 rows, but there are 60 nodes"),
    ("edge_weight", torch.ones(1), "'edge_weight' has 1 rows, but there are .* 200 edges"),
    ("pos", torch.ones(59, 2), "'pos' has 59 rows, but .* a row for each node"),
    ("edge_attr", torch.ones(60, 2), "'edge_attr' has 60 rows, .* a row for each edge"),
    ("edge_weight", torch.ones(199), "'edge_weight' has 199 rows, but .* a row for each edge"),
]


def test_standard_attributes_have_a_row_for_each_node_or_edge() -> None:
    readers: list[Callable[[Any], Any]] = [from_pyg, first, lambda data: ClusterData(data, 2)]
    for (name, values, words), reads in product(WRONG_ROWS, readers):
        data = homogeneous()
        data.num_nodes, data[name] = 60, values
        with pytest.raises(ValueError, match=words):
            reads(data)
    typed = PYG.HeteroData()
    typed["user"].x = typed["item"].x = torch.eye(4)
    typed[LIKES].edge_attr, typed[LIKES].edge_index = torch.ones(4), torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match="'edge_attr' of 'user:likes:item' has 4 rows, but there are 5 edges"):
        from_pyg(typed)


def test_other_attributes_without_a_row_for_each_node_or_edge_are_warned_of() -> None:
    for name in ["y", "train_mask", "edge_time"]:
        data, typed = homogeneous(), heterogeneous()
        data[name] = data[name][:-1]
        typed["user"][name] = torch.ones(39)
        of_user = f"'{name}' of 'user' has 39 rows, but there are 40 nodes"
        cases: list[Any] = [(data, None, f"'{name}' has .* but there are 60 nodes and 200"), (typed, "user", of_user)]
        for given, seeds, words in cases:
            with pytest.warns(UserWarning, match=words):
                first(given, seeds)
        graph_level = homogeneous()
        graph_level.scale, graph_level.train_idx, graph_level.edge_label = (
            torch.ones(1),
            torch.arange(9),
            torch.arange(9),
        )
        assert torch.equal(first(graph_level).train_idx, torch.arange(9))


def ring(**values: Any) -> Any:
    """Return data with as many edges as nodes; edge `e` leads from node `e` to the next one."""
    ids = torch.arange(6)
    return PYG.Data(edge_index=torch.stack([ids, (ids + 1) % 6]), num_nodes=6, **values)


def test_weights_are_those_of_edges_where_there_are_as_many_nodes() -> None:
    data = ring(w=torch.arange(6.0) + 1, y=torch.arange(6))
    assert ("edge", None, "w") in from_pyg(data, weight_attr="w")[1].keys()  # noqa: SIM118
    features, graph = in_stores(data, "coo")
    for given, seeds in ((data, None), ((features, graph), torch.arange(6))):
        loader = NeighborLoader(given, [1, 1], seeds, batch_size=2, weight_attr="w")
        for batch in (next(iter(loader)), loader([5])):
            assert torch.equal(batch.w, batch.e_id + 1.0)
            assert torch.equal(batch.y, batch.n_id)
    data.extra = torch.arange(6)  # a change, so that features are read again
    assert all(torch.equal(batch.w, batch.e_id + 1.0) for batch in NeighborLoader(data, [1, 1], weight_attr="w"))


def test_ids_of_edges_are_those_of_edges_where_there_are_as_many_nodes() -> None:
    data = ring(e_id=torch.arange(6) + 10, n_id=torch.arange(6) + 20)
    features = from_pyg(data)[1]
    assert set(features.keys()) == {("edge", None, "e_id"), ("node", None, "n_id")}


def test_times_that_may_be_of_nodes_or_of_edges_are_warned_of() -> None:
    data = ring(t=torch.arange(6), node_t=torch.arange(6), edge_t=torch.arange(6))
    for given in (data, in_stores(data, "coo")):
        with pytest.warns(
            UserWarning, match="time_attr 't' is read as times of nodes, but .* as many edges as nodes, 6"
        ):
            assert graph_of_data(given, "t").node_time == "t"
        assert graph_of_data(given, "node_t").node_time == "node_t"
        assert graph_of_data(given, "edge_t").edge_time == "edge_t"
