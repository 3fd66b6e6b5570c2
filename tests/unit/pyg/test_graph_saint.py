"""GraphSAINT's samplers: their draws and norms."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed import ItemSampler, ItemSet, IterableSource, MiniBatch, from_coo
from graphfeed.pyg import (
    DrawEdgeEnds,
    DrawWalks,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    SplitByType,
)
from graphfeed.pyg.data import import_pyg
from graphfeed.pyg.loaders.graph_saint import COUNTED
from tests.kinds.chance import check_counts
from tests.kinds.neighborhood import NUM_EDGES, NUM_NODES, assert_true, heterogeneous, homogeneous, values_of

KINDS: dict[Any, dict[str, int]] = {
    GraphSAINTNodeSampler: {},
    GraphSAINTEdgeSampler: {},
    GraphSAINTRandomWalkSampler: {"walk_length": 2},
}


def make(kind: Any, data: Any = None, batch_size: int = 8, **options: Any) -> Any:
    return kind(homogeneous() if data is None else data, batch_size, **KINDS[kind], **{"seed": 1, **options})


def test_a_batch_is_an_induced_subgraph_in_the_order_of_ids() -> None:
    for kind in KINDS:
        data = homogeneous()
        loader = make(kind, data, num_steps=6)
        assert len(loader) == 6
        batches = list(loader)
        for batch in batches:
            assert_true(data, batch)
            assert batch.n_id.tolist() == sorted(set(batch.n_id.tolist()))
            inside = torch.isin(data.edge_index, batch.n_id).all(dim=0).nonzero().squeeze(1)
            assert batch.e_id.sort().values.tolist() == inside.tolist()
            assert batch.edge_index[0].tolist() == sorted(batch.edge_index[0].tolist())
            assert (batch.name, batch.num_nodes) == ("random", len(batch.n_id))
            assert "node_norm" not in batch
            assert "batch_size" not in batch
            assert type(batch) is type(data)
        assert len({str(values_of(batch)) for batch in batches}) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_with_types_they_are_those_of_the_graph_without_types(kind: Any) -> None:
    data = heterogeneous()
    plain = data.to_homogeneous(node_attrs=[], edge_attrs=[])
    # The ids of each type in the whole graph, in its order.
    nodes = [(plain.node_type == number).nonzero()[:, 0] for number in range(len(data.node_types))]
    edges = [(plain.edge_type == number).nonzero()[:, 0] for number in range(len(data.edge_types))]
    options = {"num_steps": 4, "sample_coverage": 5}
    typed, whole = make(kind, data, **options), make(kind, plain, **options)
    for found, wanted in zip(typed, whole, strict=True):
        assert_true(data, found)
        ids, norms = [], []
        for name, known in zip(data.node_types, nodes, strict=True):
            ids += known[found[name].n_id].tolist()
            norms += found[name].node_norm.tolist()
        assert ids == wanted.n_id.tolist()
        assert norms == wanted.node_norm.tolist()
        of_edges = dict(zip(wanted.e_id.tolist(), wanted.edge_norm.tolist(), strict=True))
        for relation, known in zip(data.edge_types, edges, strict=True):
            for edge, norm in zip(
                known[found[relation].e_id].tolist(), found[relation].edge_norm.tolist(), strict=True
            ):
                assert of_edges.pop(edge) == norm
        assert not of_edges


def test_ids_in_a_whole_graph_become_ids_in_their_types() -> None:
    graph = from_coo({"a:r:b": ([0, 1], [1, 0])}, {"a": 3, "b": 2})
    whole = MiniBatch(input_nodes=torch.tensor([0, 2, 3]))
    found: Any = next(iter(SplitByType(IterableSource([whole]), graph))).input_nodes
    assert {name: ids.tolist() for name, ids in found.items()} == {"a": [0, 2], "b": [0]}


def test_mini_batches_with_types_are_the_same_for_any_workers() -> None:
    for kind in KINDS:
        data = heterogeneous()
        values = [values_of(batch) for batch in make(kind, data, num_steps=5, num_workers=0)]
        with make(kind, data, num_steps=5, num_workers=2) as loader:
            assert [values_of(batch) for batch in loader] == values


def drawn_by(loader: Any, times: int) -> Iterator[torch.Tensor]:
    """Yield the nodes of mini-batches for which one node, edge or walk is drawn."""
    pipe = loader.draw_nodes(ItemSampler(ItemSet(times, names="seeds"), 1), loader.graph, 1)
    assert isinstance(pipe, DrawEdgeEnds | DrawWalks)
    for minibatch in pipe:
        assert minibatch.seeds is None
        yield minibatch.input_nodes


def test_nodes_of_many_edges_are_drawn_often() -> None:
    data = homogeneous()
    drawn = torch.cat(list(drawn_by(make(GraphSAINTNodeSampler, data), 1500)))
    check_counts(torch.bincount(drawn, minlength=NUM_NODES), torch.bincount(data.edge_index[0], minlength=NUM_NODES))


def test_edges_are_drawn_by_the_degrees_of_their_ends() -> None:
    index = torch.tensor([[0, 0, 0, 1, 4], [1, 2, 3, 3, 5]])
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=6)
    pairs = [tuple(nodes.tolist()) for nodes in drawn_by(make(GraphSAINTEdgeSampler, data), 1000)]
    # 1 / out-degree of the source + 1 / in-degree of the destination.
    chances = {(0, 1): 1 / 3 + 1, (0, 2): 1 / 3 + 1, (0, 3): 1 / 3 + 1 / 2, (1, 3): 1 + 1 / 2, (4, 5): 2.0}
    assert set(pairs) == set(chances)
    check_counts(torch.tensor([pairs.count(pair) for pair in chances]), torch.tensor(list(chances.values())))


def test_walks_follow_the_edges() -> None:
    index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=5)
    found = {tuple(nodes.tolist()) for nodes in drawn_by(make(GraphSAINTRandomWalkSampler, data), 60)}
    assert found == {(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4), (4,)}
    data.edge_index = index[:, :0]
    assert next(iter(make(GraphSAINTRandomWalkSampler, data))).num_edges == 0


def test_norms_are_what_the_mini_batches_that_were_counted_say() -> None:
    for kind in KINDS:
        data = homogeneous()
        loader = make(kind, data, num_steps=5, sample_coverage=20)
        nodes, edges, epoch = Counter[int](), Counter[int](), 0
        pipe = loader.append_to(ItemSampler(ItemSet(5, names="seeds"), 1), 8)
        while nodes.total() < 20 * NUM_NODES:
            for minibatch in pipe.with_seed(COUNTED, epoch):
                nodes.update(minibatch.output.node.tolist())
                edges.update(minibatch.output.edge.tolist())
            epoch += 1
        sources = data.edge_index[0].tolist()
        for batch in loader:
            shares = [5 * epoch / (nodes[node] or 0.1) / NUM_NODES for node in batch.n_id.tolist()]
            counts = [(nodes[sources[edge]], edges[edge]) for edge in batch.e_id.tolist()]
            rates = [(min(leading / (own or 1e-4), 1e4) if leading else 0.1) for leading, own in counts]
            torch.testing.assert_close(batch.node_norm, torch.tensor(shares))
            torch.testing.assert_close(batch.edge_norm, torch.tensor(rates))
        # The weights of the nodes of a mini-batch add up to the number of all nodes.
        total = torch.stack([batch.node_norm.sum() for _ in range(4) for batch in loader]).mean()
        assert 0.8 < float(total) < 1.2


def test_it_goes_on_in_a_loader_that_was_given_no_seed() -> None:
    loader, other = (make(GraphSAINTNodeSampler, seed=None, num_steps=3, sample_coverage=2) for _ in range(2))
    batches = iter(loader)
    next(batches)
    other.load_state_dict(loader.state_dict())
    assert [values_of(batch) for batch in other] == [values_of(batch) for batch in batches]


def test_the_norm_of_an_edge_that_never_came_up_is_pygs() -> None:
    # A mini-batch has only node 0, so none of its edges is sampled; nodes 50 and 51 have none.
    index = torch.stack([torch.zeros(49, dtype=torch.int64), torch.arange(1, 50)])
    data = import_pyg("torch_geometric.data", "tests").Data(edge_index=index, num_nodes=52)
    loader = make(GraphSAINTNodeSampler, data, batch_size=1, num_steps=52, sample_coverage=1)
    assert set(loader.edge_norm.tolist()) == {1e4}
    assert loader.node_norm.tolist() == pytest.approx([1 / 52] + [10.0] * 51)


@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_kept_in_the_file_of_pygs_name(kind: Any, tmp_path: Path) -> None:

    def norms(seed: int, **options: Any) -> list[tuple[list[float], list[float]]]:
        loader = make(kind, seed=seed, num_steps=9, sample_coverage=3, save_dir=str(tmp_path), **options)
        return [(batch.node_norm.tolist(), batch.edge_norm.tolist()) for batch in loader]

    first = norms(1)
    name = f"{kind.__name__.lower()}{'_2' if KINDS[kind] else ''}_3.pt"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    torch.save((torch.full((NUM_NODES,), 2.0), torch.full((NUM_EDGES,), 3.0)), tmp_path / name)
    second = norms(1)
    assert [len(batch[0]) for batch in second] == [len(batch[0]) for batch in first]
    assert {norm for batch in second for norm in batch[0]} == {2.0}
    torch.save((torch.ones(3), torch.ones(4)), tmp_path / name)
    with pytest.raises(ValueError, match="is of another graph; remove it or give another save_dir"):
        norms(1)
