"""Data for the tests of loaders, and a slow and obvious version of the neighbourhoods with full fan-outs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphfeed.pyg.data import import_pyg

KINDS = {("user", "likes", "item"): 120, ("item", "liked_by", "user"): 120, ("user", "knows", "user"): 90}
SIZES = {"user": 40, "item": 25}
NUM_NODES, NUM_EDGES = 60, 200
ONLY = ("", "", "")
"""The edge type of data without types."""


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_index(num_sources: int, num_destinations: int, count: int, seed: int) -> torch.Tensor:
    generator = draws(seed)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in (num_sources, num_destinations)])


def homogeneous() -> Any:
    """Return data whose features and labels are the ids, and whose edge features are the edges' ids."""
    ids, edges = torch.arange(NUM_NODES), torch.arange(NUM_EDGES)
    return import_pyg("torch_geometric.data", "tests").Data(
        x=ids[:, None] * torch.ones(1, 3),
        y=ids,
        train_mask=ids % 3 == 0,
        edge_index=random_index(NUM_NODES, NUM_NODES, NUM_EDGES, 0),
        edge_attr=edges[:, None].float(),
        weight=(edges % 4).float(),
        time=torch.randint(50, (NUM_NODES,), generator=draws(1)),
        edge_time=torch.randint(50, (NUM_EDGES,), generator=draws(2)),
        name="random",
    )


def heterogeneous() -> Any:
    """Return data with two node types and three edge types."""
    data = import_pyg("torch_geometric.data", "tests").HeteroData()
    for place, (kind, size) in enumerate(SIZES.items()):
        data[kind].x = torch.arange(size)[:, None] + 1000.0 * place
        data[kind].time = torch.randint(50, (size,), generator=draws(place))
    data["user"].y = torch.arange(SIZES["user"])
    for place, (edge_type, count) in enumerate(KINDS.items()):
        data[edge_type].edge_index = random_index(SIZES[edge_type[0]], SIZES[edge_type[2]], count, place)
        data[edge_type].edge_attr = torch.arange(count)
    return data


def events(count: int = 50) -> Any:
    """Return events in the order of their times."""
    data = import_pyg("torch_geometric.data", "tests").TemporalData(
        src=torch.randint(9, (count,), generator=draws(0)),
        dst=torch.randint(20, 30, (count,), generator=draws(1)).int(),
        t=torch.arange(count) // 2,
        msg=torch.arange(count)[:, None] * torch.ones(3).half(),
        y=torch.arange(count) % 3 == 0,
    )
    data.scale = torch.tensor(2.0)
    return data


Kind = tuple[str, str, str]
Allowed = Callable[[Kind, int, int, int], bool]
"""Returns for an edge type, an edge, its source and a tree whether the edge exists."""


@dataclass
class Neighborhood:
    """The neighbourhood of seeds, by type."""

    nodes: dict[str, list[int]] = field(default_factory=dict)
    trees: dict[str, list[int]] = field(default_factory=dict)
    edges: dict[Kind, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Row, column and id."""
    node_counts: dict[str, list[int]] = field(default_factory=dict)
    edge_counts: dict[Kind, list[int]] = field(default_factory=dict)


def around(
    data: Any,
    seeds: Mapping[str, Sequence[int]],
    hops: int,
    *,
    disjoint: bool = False,
    allowed: Allowed = lambda kind, edge, source, tree: True,
    order: Callable[[int, int], int] = lambda edge, source: 0,
) -> Neighborhood:
    """Return the whole neighbourhood of seeds, each node once per mini-batch or tree, in the order of discovery.

    The in-edges of a node are sorted by a key, then by id.
    """
    typed = hasattr(data, "edge_types")
    lists = {kind: data[kind].edge_index.T.tolist() for kind in data.edge_types} if typed else {}
    lists = lists if typed else {ONLY: data.edge_index.T.tolist()}
    found = Neighborhood(edges={kind: [] for kind in lists})
    places: dict[tuple[str, int, int], int] = {}
    number = 0
    for kind in data.node_types if typed else [""]:
        found.nodes[kind], found.trees[kind] = [], []
        for node in seeds.get(kind, ()):
            tree = number if disjoint else 0
            places.setdefault((kind, node, tree), len(found.nodes[kind]))
            found.nodes[kind].append(node)
            found.trees[kind].append(tree)
            number += 1
    found.node_counts = {kind: [len(ids)] for kind, ids in found.nodes.items()}
    found.edge_counts = {kind: [] for kind in lists}
    known = dict.fromkeys(found.nodes, 0)
    for _ in range(hops):
        ends = {kind: len(ids) for kind, ids in found.nodes.items()}
        for kind, pairs in lists.items():
            before = len(found.edges[kind])
            source_kind, _, end_kind = kind
            for column in range(known[end_kind], ends[end_kind]):
                node, tree = found.nodes[end_kind][column], found.trees[end_kind][column]
                for edge, (source, end) in sorted(enumerate(pairs), key=lambda item: order(item[0], item[1][0])):
                    if end != node or not allowed(kind, edge, source, tree):
                        continue
                    key = (source_kind, source, tree)
                    if key not in places:
                        places[key] = len(found.nodes[source_kind])
                        found.nodes[source_kind].append(source)
                        found.trees[source_kind].append(tree)
                    found.edges[kind].append((places[key], column, edge))
            found.edge_counts[kind].append(len(found.edges[kind]) - before)
        for kind, ids in found.nodes.items():
            found.node_counts[kind].append(len(ids) - ends[kind])
        known = ends
    return found


def assert_is(batch: Any, found: Neighborhood, *, disjoint: bool = False) -> None:
    """Compare the mini-batches of a loader with the slow version."""
    for kind, ids in found.nodes.items():
        store = batch[kind] if kind else batch
        assert store.n_id.tolist() == ids
        assert store.num_sampled_nodes == found.node_counts[kind]
        if disjoint:
            assert store.batch.tolist() == found.trees[kind]
    for edge_type, edges in found.edges.items():
        store = batch if edge_type == ONLY else batch[edge_type]
        assert store.edge_index.T.tolist() == [list(edge[:2]) for edge in edges]
        assert store.e_id.tolist() == [edge[2] for edge in edges]
        assert store.num_sampled_edges == found.edge_counts[edge_type]


def assert_true(data: Any, batch: Any) -> None:
    """Every edge of a batch is the data's edge with its id; features and labels are those of the ids."""
    for kind in getattr(data, "node_types", [""]):
        store, whole = (batch[kind], data[kind]) if kind else (batch, data)
        assert torch.equal(store.x, whole.x[store.n_id])
    for edge_type in getattr(data, "edge_types", [ONLY]):
        store, whole = (batch, data) if edge_type == ONLY else (batch[edge_type], data[edge_type])
        ends = [batch if edge_type == ONLY else batch[kind] for kind in edge_type[::2]]
        joined = torch.stack([end.n_id[row] for end, row in zip(ends, store.edge_index, strict=True)])
        assert torch.equal(joined, whole.edge_index[:, store.e_id])
        assert torch.equal(store.edge_attr, whole.edge_attr[store.e_id])


def values_of(batch: Any) -> Any:
    """Return the contents of a batch in a form that `==` compares."""
    return as_lists(batch.to_dict())


def as_lists(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        known = (getattr(value, name, None) for name in ("sort_order", "_indptr"))  # of an `EdgeIndex`
        return (str(value.dtype), value.tolist(), *map(str, known))
    if isinstance(value, dict):
        return {key: as_lists(part) for key, part in value.items()}
    return value
