import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, cut_graph
from graphfeed.storage.graph import SamplingRequest
from tests import golden_pipelines
from tests.digests import assert_same
from tests.distributed import matrix
from tests.distributed.equal_pipelines import ALL
from tests.distributed.graphs import typed
from tests.distributed.joint import GRAPHS, in_threads
from tests.distributed.rank_processes import run_ranks


def check_equal(folder: Path, world_size: int, names: list[str], **options: Any) -> None:
    """Fail unless mini-batches of the ranks are those of the whole graph."""
    options["names"] = names
    for found in run_ranks("tests.distributed.equal_pipelines:compare", world_size, folder, **options):
        assert found == dict.fromkeys(names, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "how", "share_memory"),
    [
        (1, "random", "yes"),
        (2, "range", "yes"),
        (3, "empty", "no"),
        (5, "random", "some"),
    ],
)
def test_mini_batches_of_all_samplers_are_those_of_the_whole_graph(
    tmp_path: Path, world_size: int, how: str, share_memory: str
) -> None:
    check_equal(tmp_path, world_size, list(ALL), how=how, share_memory=share_memory)


@pytest.mark.slow
def test_eight_parts_as_metis_finds_them_make_no_difference(tmp_path: Path) -> None:
    check_equal(tmp_path, 8, ["features", "typed", "weighted, int64"], how="stored", share_memory="some")


@pytest.mark.slow
@pytest.mark.parametrize("share_memory", ["yes", "no"])
def test_threads_ask_at_the_same_time(tmp_path: Path, share_memory: str) -> None:
    names = ["features", "typed", "LABOR, int64", "weighted, int64"]
    check_equal(tmp_path, 2, names, how="random", num_workers=3, share_memory=share_memory)


@pytest.mark.parametrize("share_memory", [True, False])
def test_samplers_that_are_made_of_one_hop_give_the_bits_of_the_whole_graph(share_memory: bool) -> None:
    whole, whole_typed = golden_pipelines.untyped(), typed()
    seeds = gf.HeteroItemSet({"user": gf.ItemSet(90, names="seeds")})

    def sample(graph: gf.SamplingGraph, by_type: gf.SamplingGraph) -> list[Any]:
        walks = graph.random_walks(torch.arange(0, whole.total_num_nodes, 7), 5, key=3)
        pipe = gf.ItemSampler(seeds, 30).sample_by_budget(by_type, {"user": [5, 9], "item": [4, 8], "shop": [1]})
        return [walks, *pipe.with_seed(3)]

    def work(rank: int, peers: Peers) -> list[Any]:
        graphs = (cut_graph(one, torch.arange(one.total_num_nodes) % 2, rank) for one in (whole, whole_typed))
        return sample(*(PartitionedGraph(part, peers) for part in graphs))

    wanted = sample(whole, whole_typed)
    for found in in_threads(2, work, share_memory=share_memory):
        assert_same(found, wanted)


@pytest.mark.parametrize("kind", ["plain", "typed"])
@pytest.mark.parametrize(
    "options",
    [{}, {"replace": True}, {"probs_name": "weight"}, {"deduplicate": False}, {"only_new": True}],
    ids=lambda options: "".join(options),
)
def test_several_mini_batches_are_sampled_as_each_alone(kind: str, options: dict[str, Any]) -> None:
    whole = GRAPHS[kind]()
    per_type = [2, 3, 1, 4] if kind == "typed" else [3]
    request = SamplingRequest((torch.tensor(per_type), torch.tensor([2])), **options)
    nodes = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([], dtype=torch.int64)]
    seeds: list[Any] = nodes if kind == "plain" else [{"item": own, "user": own.flip(0) + 7} for own in nodes]
    keys = [[11, 12], [13, 14], [15, 16]]
    wanted = [whole.sample_hops(own, request, own_keys) for own, own_keys in zip(seeds, keys, strict=True)]

    def work(rank: int, peers: Peers) -> Any:
        graph = PartitionedGraph(cut_graph(whole, torch.arange(whole.total_num_nodes) % 2, rank), peers)
        return graph.sample_hops_together(seeds, request, keys), peers.traffic.exchanges

    for found, exchanges in in_threads(2, work, share_memory=False):
        assert_same(found, wanted)
        # Once to compare the parts, and once per hop.
        assert exchanges <= 3 or request.only_new


def test_walks_in_a_graph_whose_parts_are_all_here_read_it_as_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = golden_pipelines.untyped()
    starts = torch.arange(whole.total_num_nodes)
    wanted = [whole.random_walks(ids, 4, key=5) for ids in (starts, starts.int(), starts[:0])]
    monkeypatch.delattr(gf.SamplingGraph, "in_subgraph")  # one hop at a time would need it

    def work(rank: int, peers: Peers) -> list[torch.Tensor]:
        graph = PartitionedGraph(cut_graph(whole, starts % 2, rank), peers)
        return [graph.random_walks(ids, 4, key=5) for ids in (starts, starts.int(), starts[:0])]

    for found in in_threads(2, work):
        assert_same(found, wanted)


def test_a_single_rank_needs_no_process_group() -> None:
    whole = golden_pipelines.untyped()
    graph = PartitionedGraph(cut_graph(whole, torch.zeros(whole.total_num_nodes, dtype=torch.int32), 0))
    found = list(gf.DataLoader(golden_pipelines.nodes().sample_neighbor(graph, [5, 4]), 0, seed=3))
    wanted = list(gf.DataLoader(golden_pipelines.nodes().sample_neighbor(whole, [5, 4]), 0, seed=3))
    assert_same(found, wanted)


def test_worker_processes_are_refused_with_what_to_do() -> None:
    whole = golden_pipelines.untyped()
    graph = PartitionedGraph(cut_graph(whole, torch.zeros(whole.total_num_nodes, dtype=torch.int32), 0))
    pipe = golden_pipelines.nodes().sample_neighbor(graph, [5])
    with (
        gf.DataLoader(pipe, 1, worker="process", seed=0) as loader,
        pytest.raises(pickle.PicklingError, match=r"a PartitionedGraph can't be sent.*worker='thread'"),
    ):
        next(iter(loader))


def test_a_state_is_that_of_the_whole_graph() -> None:
    whole = golden_pipelines.typed()
    graph = PartitionedGraph(cut_graph(whole, torch.zeros(whole.total_num_nodes, dtype=torch.int32), 0))
    states = [
        gf.DataLoader(golden_pipelines.by_type().sample_neighbor(part, [4, 3]), 0, seed=0).state_dict()
        for part in (whole, graph)
    ]
    assert states[0] == states[1]


def test_parts_and_ranks_must_agree() -> None:
    whole = golden_pipelines.untyped()
    part = cut_graph(whole, torch.arange(whole.total_num_nodes) % 2, 0)
    with pytest.raises(ValueError, match="there are 2 parts, but 1 ranks; start one process for each part"):
        PartitionedGraph(part)


def test_seeds_outside_of_the_graph_and_unknown_names_are_refused() -> None:
    whole = golden_pipelines.untyped()
    graph = PartitionedGraph(cut_graph(whole, torch.zeros(whole.total_num_nodes, dtype=torch.int32), 0))
    with pytest.raises(ValueError, match="seeds"):
        graph.sample_neighbors(torch.tensor([whole.total_num_nodes]), torch.tensor([2]))
    with pytest.raises(KeyError, match="Edge attribute none does not exist"):
        graph.sample_neighbors(torch.tensor([0]), torch.tensor([2]), probs_name="none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cora", [(1, "random"), (5, "metis")]),
        ("musae_github", [(3, "empty")]),
        ("wordnet", [(2, "metis"), (8, "random")]),
        ("wikipedia_temporal", [(3, "empty"), (5, "metis")]),
    ],
)
def test_any_number_of_parts_of_real_graphs_gives_the_mini_batches_of_the_whole_graph(
    shared_data: Path, name: str, parts: list[tuple[int, str]]
) -> None:
    """The ranks are threads."""
    pytest.importorskip("pymetis")
    for num_parts, method in parts:
        assert len(matrix.compare(shared_data, name, num_parts, method)) >= 9
    matrix.compare(shared_data, name, 5, "random", share_memory=True)


@pytest.mark.slow
def test_a_window_takes_an_exchange_per_hop_a_mini_batch_one_for_features_and_few_bytes(tmp_path: Path) -> None:
    for window, exchanges in ((0, 4 * (2 + 1)), (None, 3 * 2 + 4)):  # windows of 1, 2 and 1
        given: Any = {"share_memory": False, "window": window}
        (tmp_path / str(window)).mkdir()
        found = run_ranks("tests.distributed.traffic:count_traffic", 2, tmp_path / str(window), **given)
        assert [(rank["batches"], rank["exchanges"]) for rank in found] == [(4, exchanges)] * 2
    sent, least = (sum(rank[name] for rank in found) for name in ("sent", "least"))
    assert least <= sent <= 1.1 * least


@pytest.mark.slow
def test_ids_of_edges_may_be_of_any_size() -> None:
    """One rank's ids fit into int32, in which they are sent; the other's don't."""
    ends = torch.arange(8)
    whole = gf.from_coo((ends.flip(0), ends), num_nodes=8)
    whole.add_edge_attribute("_ORIGINAL_EDGE_ID", ends + (ends % 2 << 40))
    wanted = whole.sample_neighbors(ends, torch.tensor([-1]), key=0)

    def work(rank: int, peers: Peers) -> None:
        graph = PartitionedGraph(cut_graph(whole, ends % 2, rank), peers)
        assert_same(graph.sample_neighbors(ends, torch.tensor([-1]), key=0), wanted)

    in_threads(2, work, share_memory=False)


@pytest.mark.slow
def test_ranks_of_one_machine_send_nothing(tmp_path: Path) -> None:
    for found in run_ranks("tests.distributed.traffic:count_traffic", 2, tmp_path, share_memory=True):
        assert (found["batches"], found["exchanges"], found["sent"]) == (4, 0, 0)
