"""Tests of the sampler. The graph with ten nodes is from PyG's tests, in two overlapping parts."""

import asyncio
import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphfeed.distributed import DistContext, DistNeighborSampler, LocalFeatureStore, LocalGraphStore
from graphfeed.pyg.data import import_pyg
from tests.kinds.digests import assert_same
from tests.kinds.pyg_data import hetero_data, plain_data
from tests.kinds.refusals import check_refused
from tests.stand_ins.rank_processes import rank_and_size, run_cases
from tests.unit.distributed.test_dist_loaders import context

PARTS = (
    torch.tensor([[1, 2, 3, 4, 5, 0, 0], [0, 1, 2, 3, 4, 4, 9]]),
    torch.tensor([[5, 6, 7, 8, 9, 5, 0], [4, 5, 6, 7, 8, 9, 9]]),
)
LIKES = ("user", "likes", "item")


def inputs(name: str) -> Any:
    """Return a class of PyG's samplers."""
    return getattr(import_pyg("torch_geometric.sampler", "a test"), name)


def whole_sampler(make: Any = plain_data, *args: Any, **options: Any) -> tuple[Any, DistNeighborSampler]:
    """Return data, and a sampler of a single part that contains all of it."""
    data = make()
    if make is plain_data:
        features = LocalFeatureStore.from_data(torch.arange(60), data.x, data.y, torch.arange(400), data.edge_attr)
        graph = LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)
        features.put_tensor(data.time, None, "time")
    else:
        edges = {kind: data[kind].edge_index for kind in data.edge_types}
        ids = {kind: torch.arange(index.shape[1]) for kind, index in edges.items()}
        sizes = {"user": 50, "item": 20}
        features = LocalFeatureStore.from_hetero_data(
            {kind: torch.arange(size) for kind, size in sizes.items()}, {kind: data[kind].x for kind in sizes}, None,
            ids, {kind: data[kind].edge_attr for kind in edges},
        )  # fmt: skip
        for kind in edges:
            features.put_tensor(data[kind].edge_time, kind, "edge_time")
        graph = LocalGraphStore.from_hetero_data(ids, edges, sizes)
    return data, DistNeighborSampler(DistContext(0, 0, 1, 1, "test"), (features, graph), *args, **options)


def run(sampler: DistNeighborSampler, coro: Any) -> Any:
    """Return the result of a coroutine."""
    sampler.init_sampler_instance()
    sampler.register_sampler_rpc()
    sampler.init_event_loop()
    loop = sampler.event_loop
    assert loop is not None

    async def inside() -> Any:
        return loop.run_task(coro)  # as in a notebook, whose own loop is running

    return asyncio.run(inside())


def test_edges_join_the_nodes_that_they_name() -> None:
    data, sampler = whole_sampler(plain_data, [3, 2])
    seeds = torch.tensor([5, 1])
    out = run(sampler, sampler.node_sample(inputs("NodeSamplerInput")(None, seeds)))
    assert_same(out.node[:2], seeds)
    assert_same(torch.stack([out.node[out.row], out.node[out.col]]), data.edge_index[:, out.edge])
    assert out.metadata == (None, None, 2)
    assert (sum(out.num_sampled_nodes), sum(out.num_sampled_edges)) == (len(out.node), len(out.edge))
    assert len(set(out.node.tolist())) == len(out.node)


def test_features_labels_and_ids_are_in_the_metadata() -> None:
    data, sampler = whole_sampler(plain_data, [3])
    sampler.feature_store.labels = data.y
    ids = torch.tensor([8, 9])
    out = sampler.sample_from_nodes((ids, torch.tensor([5, 1]), torch.tensor([99, 99])))
    expected = (ids, torch.tensor([99, 99]), 2, data.x[out.node], data.y[out.node], data.edge_attr[out.edge])
    assert_same(out.metadata, expected)


def test_types_have_outputs_by_type() -> None:
    data, sampler = whole_sampler(hetero_data, [2, 2])
    sampler.feature_store.labels = data["user"].y
    out = sampler.sample_from_nodes((None, torch.tensor([3, 4]), None, "user"))
    for kind, edge in out.edge.items():
        ends = torch.stack([out.node[kind[0]][out.row[kind]], out.node[kind[2]][out.col[kind]]])
        assert_same(ends, data[kind].edge_index[:, edge])
        assert_same(out.metadata[-1][kind], data[kind].edge_attr[edge])
    assert_same(out.metadata[3], {kind: data[kind].x[ids] for kind, ids in out.node.items()})
    assert_same(out.metadata[4], {"user": data["user"].y[out.node["user"]]})
    both = SimpleNamespace(
        node_dict={"user": torch.tensor([3]), "item": torch.tensor([4])}, time_dict=None, input_type=LIKES
    )
    out = run(sampler, sampler.node_sample(both))
    assert [out.node[kind][0].item() for kind in ("user", "item")] == [3, 4]


def test_edges_get_labels_and_negatives() -> None:
    data, sampler = whole_sampler(plain_data, [2])
    row, col = data.edge_index[:, :6]
    given = inputs("EdgeSamplerInput")(torch.arange(6), row, col)
    out = run(sampler, sampler.edge_sample(given, None, 60, False))
    ids, index, labels, times = out.metadata
    assert_same([ids, out.node[index], labels, times], [torch.arange(6), data.edge_index[:, :6], None, None])
    out = sampler.sample_from_edges(given, neg_sampling=inputs("NegativeSampling")("binary", 2))
    assert out.metadata[1].shape == (2, 18)
    assert out.metadata[2].tolist() == [1.0] * 6 + [0.0] * 12
    assert_same(out.metadata[4], data.x[out.node])
    out = run(sampler, sampler.edge_sample(given, neg_sampling=("triplet", 2)))
    sources, positives, negatives = out.metadata[1:4]
    assert_same([out.node[sources], out.node[positives]], [row, col])
    assert negatives.shape == (6, 2)


def test_one_hop_has_the_neighbours_of_each_node() -> None:
    data, sampler = whole_sampler(plain_data, [2])
    seeds, trees = torch.tensor([5, 1, 5]), torch.tensor([0, 1, 2])
    out = run(sampler, sampler.sample_one_hop(seeds, -1, src_batch=trees))
    ends = seeds.repeat_interleave(torch.tensor(out.metadata[0]))
    assert_same(torch.stack([out.node, ends]), data.edge_index[:, out.edge])
    assert out.metadata[0] == [int((data.edge_index[1] == seed).sum()) for seed in seeds]
    assert_same(out.batch, trees.repeat_interleave(torch.tensor(out.metadata[0])))
    data, sampler = whole_sampler(hetero_data, [2], time_attr="edge_time")
    out = run(sampler, sampler.sample_one_hop(torch.tensor([3, 7]), -1, torch.tensor([50, 101]), None, LIKES))
    ends = torch.tensor([3, 7]).repeat_interleave(torch.tensor(out.metadata[0]))
    assert_same(torch.stack([out.node, ends]), data[LIKES].edge_index[:, out.edge])
    times = data[LIKES].edge_time[out.edge]
    assert bool((times <= torch.tensor([50, 101])[(ends == 7).long()]).all())
    index = data[LIKES].edge_index
    wanted = ((index[1] == 3) & (data[LIKES].edge_time <= 50)) | (index[1] == 7)
    assert sorted(out.edge.tolist()) == wanted.nonzero().squeeze(1).tolist()


def test_a_channel_gets_results_and_errors() -> None:
    channel: queue.Queue[Any] = queue.Queue()
    _, sampler = whole_sampler(plain_data, [2], channel=channel, concurrency=3)
    calls: queue.Queue[Any] = queue.Queue()
    assert sampler.sample_from_nodes((None, torch.tensor([5])), callback=calls.put) is None
    assert channel.get(timeout=60) is calls.get(timeout=60)
    sampler.sample_from_nodes((None, torch.tensor([500])))
    assert isinstance(channel.get(timeout=60), Exception)


def test_what_does_not_fit_is_refused() -> None:
    data, alone = (LocalFeatureStore(), LocalGraphStore()), DistContext(0, 0, 1, 1, "test")
    wrong: Any = (1, 2)
    _, timed = whole_sampler(hetero_data, [2], time_attr="edge_time")
    seeds = torch.tensor([3])
    check_refused(
        [
            (
                lambda: DistNeighborSampler(DistContext(1, 1, 2, 2, "test"), data, [2]),
                ValueError,
                "current_ctx is rank 1 of 2, but the stores have part 0 of 1",
            ),
            (lambda: DistNeighborSampler(alone, data, [2], concurrency=0), ValueError, "concurrency"),
            (
                lambda: DistNeighborSampler(alone, wrong, [2]),
                TypeError,
                "data must be a LocalFeatureStore and a LocalGraphStore",
            ),
            (lambda: timed.sample_from_nodes((None, seeds)), ValueError, "input_type must be a node type"),
            (lambda: timed.sample_from_nodes((None, seeds, None, "user")), ValueError, "no attribute 'edge_time'"),
        ]
    )


def overlapping() -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return this rank's part of the graph with ten nodes, built as in PyG's tests."""
    rank = rank_and_size()[0]
    graph = LocalGraphStore.from_data(edge_id=None, edge_index=PARTS[rank], num_nodes=10, is_sorted=True)
    graph.node_pb = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert graph.meta is not None
    graph.meta.update({"num_parts": 2})
    graph.partition_idx, graph.num_partitions = rank, 2
    return LocalFeatureStore.from_data(torch.arange(10)), graph


def sample_overlapping() -> None:
    """Run a rank that samples around two nodes of different parts."""
    sampler = DistNeighborSampler(data=overlapping(), current_ctx=context(), num_neighbors=[-1, -1], shuffle=False)
    out = run(sampler, sampler.node_sample(inputs("NodeSamplerInput")(None, torch.tensor([1, 6]))))
    assert out.node.tolist() == [1, 6, 2, 7, 3, 8]
    assert (out.row.tolist(), out.col.tolist(), out.edge) == ([2, 3, 4, 5], [0, 1, 2, 3], None)
    assert out.num_sampled_nodes == [2, 2, 2]


@pytest.mark.slow
def test_two_ranks_sample_the_predecessors_graph(tmp_path: Path) -> None:
    run_cases([sample_overlapping], 2, tmp_path)
