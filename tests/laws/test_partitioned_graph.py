import pickle
from pathlib import Path
from random import Random

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartitionedGraph, Peers, cut_graph
from tests.kinds import golden_pipelines
from tests.kinds.digests import assert_same
from tests.kinds.equal_pipelines import ALL, GOLDEN, made, parts_of, real
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_refused
from tests.stand_ins.rank_processes import run_ranks

COMPARE = "tests.kinds.equal_pipelines:compare"
PARTS_AND_RANKS = [(1, 3), (2, 1), (2, 2), (3, 1), (3, 2), (5, 1)]
"""The number of parts, and the number of ranks that store each."""
SOME = ["features", "typed", "LABOR, int64", "weighted, int64"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "how", "each"),
    [
        (4, "range", 2),
        (3, "empty", 1),
        pytest.param(2, "random", 2, marks=pytest.mark.thorough),
        pytest.param(6, "random", 2, marks=pytest.mark.thorough),
    ],
)
def test_mini_batches_of_all_samplers_are_those_of_the_whole_graph(
    tmp_path: Path, world_size: int, how: str, each: int
) -> None:
    run_ranks(COMPARE, world_size, tmp_path, names=list(ALL), how=how, each=each)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "num_workers", "each"), [(2, 3, 1), (4, 3, 2), pytest.param(8, 0, 2, marks=pytest.mark.thorough)]
)
def test_threads_ask_at_the_same_time_for_what_parts_as_metis_finds_them_have(
    tmp_path: Path, world_size: int, num_workers: int, each: int
) -> None:
    given = {"how": "stored", "num_workers": num_workers, "each": each}
    run_ranks(COMPARE, world_size, tmp_path, names=SOME, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "parts"),
    [
        ("cora", [(2, "metis")]),
        pytest.param("cora", [(8, "random"), (5, "metis")], marks=pytest.mark.thorough),
        pytest.param("musae_github", [(3, "empty")], marks=pytest.mark.thorough),
    ],
)
def test_any_number_of_parts_of_a_real_graph_gives_the_mini_batches_of_the_whole_graph(
    shared_data: Path, graph: str, parts: list[tuple[int, str]]
) -> None:
    """The ranks are threads."""
    pytest.importorskip("pymetis")
    graphs, names = real(shared_data, graph), [name for name in ALL if "typed" not in name]
    wanted = made(graphs, names, 5)
    for num_parts, how in parts:

        def work(_: int, peers: Peers, how: str = how) -> None:
            assert_same(made(parts_of(graphs, how, peers), names, 5), wanted)

        in_threads(num_parts, work)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [number if number < 2 else pytest.param(number, marks=pytest.mark.thorough) for number in range(12)]
)
def test_sixty_combinations_of_pipelines_parts_and_ranks_give_the_mini_batches_of_the_whole_graph(number: int) -> None:
    chosen = Random(number)
    (num_parts, each), how = chosen.choice(PARTS_AND_RANKS), chosen.choice(["range", "random", "empty", "stored"])
    names, num_workers = chosen.sample(list(ALL), 5), chosen.choice([0, 2])
    wanted = made(GOLDEN, names, number)

    def work(_: int, peers: Peers) -> None:
        assert_same(made(parts_of(GOLDEN, how, peers, each), names, number, num_workers), wanted)

    in_threads(num_parts * each, work)


def alone(whole: gf.FusedCSCSamplingGraph) -> PartitionedGraph:
    """Return a graph of a single part, which needs no process group."""
    return PartitionedGraph(cut_graph(whole, torch.zeros(whole.total_num_nodes, dtype=torch.int32), 0))


def test_a_single_rank_makes_mini_batches_and_states_of_the_whole_graph() -> None:
    whole = golden_pipelines.typed()
    loaders = [
        gf.DataLoader(golden_pipelines.by_type().sample_neighbor(graph, [4, 3]), 0, seed=3)
        for graph in (whole, alone(whole))
    ]
    states = [loader.state_dict() for loader in loaders]
    assert_same(list(loaders[1]), list(loaders[0]))
    plain = golden_pipelines.untyped()
    walks = [graph.random_walks(torch.arange(200), 4, key=5) for graph in (plain, alone(plain))]
    assert_same(walks[1], walks[0])
    del states[0]["fingerprint"]["2 NeighborSampler"]["graph (checksum)"]  # parts may be those of another partition
    assert states[0] == states[1]


def test_worker_processes_are_refused_with_what_to_do() -> None:
    pipe = golden_pipelines.nodes().sample_neighbor(alone(golden_pipelines.untyped()), [5])
    with (
        gf.DataLoader(pipe, 1, worker="process", seed=0) as loader,
        pytest.raises(pickle.PicklingError, match=r"a PartitionedGraph can't be sent.*worker='thread'"),
    ):
        next(iter(loader))


def test_what_does_not_fit_is_refused() -> None:
    whole = golden_pipelines.untyped()
    part, graph, two = cut_graph(whole, torch.arange(whole.total_num_nodes) % 2, 0), alone(whole), torch.tensor([2])
    outside, first = torch.tensor([whole.total_num_nodes]), torch.tensor([0])
    check_refused(
        [
            (lambda: PartitionedGraph(part), ValueError, "2 parts, but 1 ranks; start one process per part"),
            (lambda: graph.sample_neighbors(outside, two), ValueError, "seeds"),
            (lambda: graph.sample_neighbors(first, two, probs_name="none"), KeyError, "none does not exist"),
        ]
    )


@pytest.mark.slow
def test_a_window_takes_an_exchange_per_hop_a_mini_batch_one_for_features_and_few_bytes(tmp_path: Path) -> None:
    for window, exchanges in ((0, 4 * (2 + 1)), (None, 3 * 2 + 4)):  # windows of 1, 2 and 1
        (tmp_path / str(window)).mkdir()
        found = run_ranks("tests.stand_ins.traffic:count_traffic", 2, tmp_path / str(window), window=window)
        assert [(rank["batches"], rank["exchanges"]) for rank in found] == [(4, exchanges)] * 2
    sent, least = (sum(rank[name] for rank in found) for name in ("sent", "least"))
    assert least <= sent <= 1.1 * least


@pytest.mark.slow
def test_ids_of_edges_may_be_of_any_size() -> None:
    """The ids of one rank fit into int32, in which they are sent; those of the other don't."""
    ends = torch.arange(8)
    whole = gf.from_coo((ends.flip(0), ends), num_nodes=8)
    whole.add_edge_attribute("_ORIGINAL_EDGE_ID", ends + (ends % 2 << 40))
    wanted = whole.sample_neighbors(ends, torch.tensor([-1]), key=0)

    def work(rank: int, peers: Peers) -> None:
        graph = PartitionedGraph(cut_graph(whole, ends % 2, rank), peers)
        assert_same(graph.sample_neighbors(ends, torch.tensor([-1]), key=0), wanted)

    in_threads(2, work)
