"""The loaders over parts: equality with loaders over the whole graph, their options, and a program that uses them."""

import json
import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.distributed import (
    DistContext,
    DistLinkNeighborLoader,
    DistLoader,
    DistNeighborLoader,
    DistRole,
    LocalFeatureStore,
    LocalGraphStore,
    Partitioner,
)
from graphfeed.pyg import LinkNeighborLoader, NegativeSampling, NeighborLoader
from graphfeed.pyg.data import import_pyg, tables_of
from tests.kinds.digests import assert_same
from tests.kinds.golden_pipelines import numbers
from tests.kinds.pages import rows
from tests.kinds.pyg_data import classes, hetero_data, plain_data
from tests.kinds.refusals import check_refused
from tests.laws.test_edge_truth import load
from tests.stand_ins import pyg_example
from tests.stand_ins.rank_processes import free_port, rank_and_size, run_ranks, run_spawned
from tests.unit.distributed.test_local_graph_store import in_time


def cora(folder: Path) -> Any:
    """Return a graph without types, whose features identify ids."""
    arrays = load(folder, "cora")
    index = torch.stack([arrays["src"], arrays["dst"]]).long()
    count = int(arrays["num_nodes"])
    codes = torch.arange(count)[:, None] * torch.ones(1, 2)
    edge_attr = torch.arange(index.shape[1])[:, None] * torch.ones(1, 1)
    return classes()[0](num_nodes=count, edge_index=index, x=codes, y=arrays["label"].long(), edge_attr=edge_attr)


def edits(folder: Path) -> Any:
    """Return a graph with types, and timestamps of edges."""
    arrays = load(folder, "wikipedia_temporal")
    pair = torch.stack([arrays["src"], arrays["dst"]]).long()
    data = classes()[1]()
    for kind in ("user", "page"):
        data[kind].x = torch.arange(int(arrays[f"num_nodes_{kind}"]))[:, None]
    for ends, index in ((("user", "edits", "page"), pair), (("page", "edited_by", "user"), pair.flip(0))):
        data[ends].edge_index = index
        data[ends].edge_time = arrays["timestamp"].long()
    return data


LIKES = ("user", "likes", "item")
SMALL = ["plain in time", "typed"]
DATA: dict[str, Callable[[Path], Any]] = {
    "cora": cora,
    "edits": edits,
    "plain in time": lambda _: plain_data(),
    "typed": lambda _: hetero_data(),
}


def cases(name: str, data: Any) -> list[tuple[bool, dict[str, Any]]]:
    """Return cases to compare: whether seeds are edges, and the arguments of both loaders."""
    if name == "cora":
        pairs = data.edge_index[:, numbers(300, data.edge_index.shape[1], 6 + rank_and_size()[0])]
        return [
            (False, {"num_neighbors": [10, 10], "input_nodes": numbers(500, data.num_nodes, 5), "batch_size": 100}),
            (False, {"num_neighbors": [4, 3], "disjoint": True, "subgraph_type": "bidirectional", "batch_size": 60}),
            (False, {"num_neighbors": [4, 3], "subgraph_type": "induced", "replace": True, "batch_size": 60}),
            (True, {"num_neighbors": [5, 5], "edge_label_index": pairs, "neg_sampling": "binary", "batch_size": 90}),
            (True, {"num_neighbors": [5], "edge_label_index": pairs, "neg_sampling": ("triplet", 2), "batch_size": 90}),
        ]
    if name == "edits":
        index, times = data["user", "edits", "page"].edge_index, data["user", "edits", "page"].edge_time
        chosen = numbers(900, len(times), 40 + rank_and_size()[0])
        given: dict[str, Any] = {"num_neighbors": [6, 4], "time_attr": "edge_time", "batch_size": 150}
        edges = {"edge_label_index": (("user", "edits", "page"), index[:, chosen]), "edge_label_time": times[chosen]}
        nodes = {"input_nodes": ("page", index[1, chosen]), "input_time": times[chosen]}
        return [(False, {**given, **nodes, "temporal_strategy": "last"}), (True, {**given, **edges})]
    if name == "plain in time":
        pairs = numbers(60, 60, 3).view(2, 30)
        given = {"num_neighbors": [3, 2], "time_attr": "time", "batch_size": 10}
        edges = {"edge_label_index": pairs, "edge_label_time": numbers(30, 31, 8) + 20, "neg_sampling": "triplet"}
        return [(False, given), (True, {**given, **edges})]
    every = {kind: [2, 3] for kind in data.edge_types}
    return [
        (False, {"num_neighbors": every, "input_nodes": "user", "batch_size": 11}),
        (True, {"num_neighbors": [2, 0], "edge_label_index": LIKES, "neg_sampling_ratio": 1.0, "batch_size": 40}),
    ]


def stores(root: str, name: str) -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return this rank's part."""
    rank = rank_and_size()[0]
    return LocalFeatureStore.from_partition(f"{root}/{name}", rank), LocalGraphStore.from_partition(
        f"{root}/{name}", rank
    )


def context() -> DistContext:
    """Return the context of this rank."""
    rank, world_size = rank_and_size()
    return DistContext(rank, rank, world_size, world_size, "test")


def seeds_of_own(loader: Any, data: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for the whole graph, with the default seeds of a rank."""
    own, place = loader.dist_sampler.connect(), dict(given)
    if loader.__class__ is DistNeighborLoader and not isinstance(given.get("input_nodes"), (tuple, torch.Tensor)):
        kind = given.get("input_nodes")
        place["input_nodes"] = own.own_nodes() if kind is None else (kind, own.own_nodes(kind))
    kind = given.get("edge_label_index")
    if isinstance(kind, tuple) and isinstance(kind[1], str):
        place["edge_label_index"] = (kind, own.own_edges(kind))
    return place


def compare(root: str, data_folder: str, names: list[str]) -> None:
    """Run a rank that compares mini-batches, with its own seeds and draws."""
    rank, number = rank_and_size()[0], 0
    for name in names:
        data, parts = DATA[name](Path(data_folder)), stores(root, name)
        for is_link, given in cases(name, data):
            make: Any = DistLinkNeighborLoader if is_link else DistNeighborLoader
            options = {"shuffle": True, "seed": rank, "num_workers": 2}
            found = make(parts, master_addr=None, master_port=None, current_ctx=context(), **given, **options)
            whole: Any = LinkNeighborLoader if is_link else NeighborLoader
            wanted = whole(data, **seeds_of_own(found, data, given), shuffle=True, seed=rank)
            for one, other in islice(zip(found, wanted, strict=True), 3):
                assert_same(values_of(one), values_of(other))
                number += 1
            found.close()
    assert number >= 4 * len(names)


def values_of(data: Any) -> dict[Any, Any]:
    """Return the content of PyG's data, in any order; the number of nodes is included only if the whole data had it."""
    stores = tables_of(data).by_type
    return {
        kind: {name: own[name] for name in sorted(own.keys()) if name != "num_nodes"} for kind, own in stores.items()
    }


def be_uneven(root: str, counts: list[int]) -> None:
    """Make different numbers of mini-batches on each rank, possibly none, and resume one of the epochs."""
    parts, count = stores(root, "typed"), counts[rank_and_size()[0]]
    options: dict[str, Any] = {"input_nodes": ("user", torch.arange(count) % 50), "batch_size": 4, "seed": 5}

    def make() -> DistNeighborLoader:
        return DistNeighborLoader(parts, [2, 2], None, None, context(), **options)

    loader = make()
    made = [values_of(batch) for batch in loader]
    assert len(made) == len(loader) == -(-count // 4)
    with make() as batches:
        first = [values_of(batch) for batch in islice(batches, 1)]
    again = make()
    with again as batches:
        list(islice(batches, 1))
    resumed = make()
    resumed.load_state_dict(state_after(make(), min(1, len(made))))
    rest = [values_of(batch) for batch in resumed]
    assert_same([values_of(batch) for batch in again], made)
    assert_same(first, made[:1])
    assert_same(rest, made[1:])


def state_after(loader: DistNeighborLoader, count: int) -> dict[str, Any]:
    """Return the state of a loader after some mini-batches, saved to a file and loaded."""
    epoch = iter(loader)
    for _ in range(count):
        next(epoch)
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def partition(root: Path, names: list[str], num_parts: int, folder: Path) -> str:
    """Write partitioned graphs, and return their folder."""
    for name in names:
        Partitioner(DATA[name](folder), num_parts, root / name, method="hash").generate_partition()
    return str(root)


def test_mini_batches_of_a_single_rank_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    compare(partition(tmp_path, SMALL, 1, tmp_path), "", SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "names"),
    [
        (3, SMALL),
        pytest.param(2, ["cora"], marks=pytest.mark.thorough),
        pytest.param(3, ["edits"], marks=pytest.mark.thorough),
    ],
)
def test_mini_batches_are_those_of_the_whole_graph(
    tmp_path: Path, shared_data: Path, world_size: int, names: list[str]
) -> None:
    root = partition(tmp_path / "parts", names, world_size, shared_data)
    run_ranks(f"{__name__}:compare", world_size, tmp_path, root=root, data_folder=str(shared_data), names=names)


@pytest.mark.slow
def test_ranks_make_uneven_numbers_of_mini_batches_and_resume(tmp_path: Path) -> None:
    root = partition(tmp_path / "parts", ["typed"], 3, tmp_path)
    run_ranks(f"{__name__}:be_uneven", 3, tmp_path, root=root, counts=[10, 0, 41])


ALONE = DistContext(0, 0, 1, 1, "test", DistRole.WORKER)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "from-pyg-distributed.md"


def parts() -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return the single part of a graph whose nodes have timestamps."""
    data = plain_data()
    features = LocalFeatureStore.from_data(torch.arange(60), data.x)
    features.put_tensor(data.time, None, "time")
    return features, LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)


def make_loader(**options: Any) -> DistNeighborLoader:
    """Return a loader of a single rank."""
    given: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 1, **options}
    return DistNeighborLoader(parts(), [3, 2], "127.0.0.1", 0, ALONE, **given)


def test_rows_of_edges_follow_the_ids_of_the_graph_store() -> None:
    features, graph = parts()
    features.put_tensor(torch.arange(400) * 2, (None, None), "weight")
    loader = DistNeighborLoader((features, graph), [3, 2], None, None, ALONE, batch_size=16)
    ids = graph.get_edge_id(edge_type=None, layout="coo")
    assert ids is not None
    place = ids.argsort()
    assert all(torch.equal(batch.weight, 2 * place[batch.e_id]) for batch in loader)


def make_links(**options: Any) -> DistLinkNeighborLoader:
    """Return a loader of links of a single rank."""
    return DistLinkNeighborLoader(parts(), [3, 2], "127.0.0.1", 0, ALONE, batch_size=100, **options)


def test_a_context_gives_an_epoch_that_does_not_count() -> None:
    loader = make_loader()
    with loader as batches:
        first = [values_of(batch) for batch in islice(batches, 2)]
    whole = [values_of(batch) for batch in loader]
    assert_same(whole[:2], first)
    assert len(whole) == len(loader) == 4
    with loader as batches:
        assert len(list(batches)) == 4
    assert loader.state_dict()["epoch"] == 1


def test_names_of_the_predecessor_are_there() -> None:
    loader = make_loader(transform=lambda data: len(data.n_id), filter_per_worker=None, async_sampling=False)
    assert isinstance(loader, DistLoader)
    loader.reset_channel()
    loader.worker_init_fn(0)
    assert loader.channel_get(5) == 5
    assert loader.channel.empty()
    with loader.enable_multithreading(2), loader.enable_cpu_affinity([0]):
        assert all(size > 16 for size in islice(loader, 3))
    assert loader.pipeline is loader.plan.written


def test_a_rank_without_seeds_makes_no_mini_batches() -> None:
    loader = make_loader(input_nodes=torch.tensor([], dtype=torch.int64))
    assert (len(loader), list(loader)) == (0, [])
    assert list(make_links(edge_label_index=plain_data().edge_index[:, :0])) == []


def test_all_edges_of_the_part_are_seeds_unless_others_are_given() -> None:
    data = plain_data()
    found = [batch.n_id[batch.edge_label_index] for batch in make_links()]
    seeds = torch.cat(found, dim=1)
    order = (data.edge_index[1] * 60 + data.edge_index[0]).sort().values
    assert torch.equal((seeds[1] * 60 + seeds[0]).sort().values, order)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    graph = LocalGraphStore.from_data(torch.arange(1), torch.tensor([[0], [1]]), 2)
    graph.num_partitions, graph.node_pb = 2, torch.tensor([0, 1])
    data, two = (LocalFeatureStore.from_data(torch.arange(2)), graph), DistContext(0, 0, 2, 2, "test")
    index, times = plain_data().edge_index[:, :50], torch.arange(50)
    strict = make_links(neg_sampling=NegativeSampling("binary", strict=True))
    together = "edge_label_time and time_attr go together"

    def two_ranks(address: str | None) -> object:
        return DistNeighborLoader(data, [2], address, None, two)

    def make_timed(kind: str) -> object:
        stores, nodes = in_time(user=torch.arange(2)), (kind, torch.arange(2))
        return DistNeighborLoader(stores, [2], None, None, ALONE, input_nodes=nodes, time_attr="time")

    check_refused(
        [
            (lambda: make_loader(rpc_timeout=0), ValueError, "rpc_timeout must be more than 0"),
            (lambda: make_loader(colour=1), TypeError, "DistNeighborLoader has no argument 'colour'"),
            (lambda: make_loader(input_time=torch.arange(60)), ValueError, "input_time needs time_attr"),
            (lambda: make_links(edge_label_index=index, edge_label_time=times), ValueError, together),
            (lambda: make_links(edge_label_index=index, time_attr="time"), ValueError, together),
            (lambda: make_timed("item"), ValueError, "input_nodes of 'item' have no 'time'; give input_time"),
            (lambda: next(iter(strict)), TypeError, "strict=True needs a graph in memory"),
            (lambda: two_ranks(None), ValueError, "master_addr is missing, the address of rank 0; pass it, or set"),
            (lambda: two_ranks("127.0.0.1"), ValueError, "master_port is missing, the address of rank 0; pass it"),
        ]
    )


def test_the_page_about_the_move_names_every_argument() -> None:
    listed = {name for names, _ in rows(PAGE, "argument") for name in re.findall(r"`(\w+)`", names)}
    taken = {name for loader in (DistNeighborLoader, DistLinkNeighborLoader) for name in signature(loader).parameters}
    assert listed == taken - {"kwargs"} | {"rpc_timeout", "frozen_timeout"}


def run_example(rank: int, world_size: int, port: int, **options: Any) -> None:
    """Run a rank of the example."""
    make = import_pyg("torch_geometric.nn", "a test").GraphSAGE
    model = partial(make, 2, 16, num_layers=2, out_channels=7)
    pyg_example.run_proc(rank, world_size, port, make_model=model, **options)


@pytest.mark.slow
def test_a_program_of_pygs_runs_with_other_imports(tmp_path: Path, shared_data: Path) -> None:
    data = DATA["cora"](shared_data)
    data.x = torch.nn.functional.one_hot(data.y, 7)[:, :2] * 1.0
    Partitioner(data, 2, tmp_path / "cora-partitions", method="hash").generate_partition()
    torch.save(data.y, tmp_path / "label.pt")
    for rank in range(2):
        nodes = torch.arange(rank, data.num_nodes, 2)
        torch.save([nodes[:400], nodes[-300:]], tmp_path / f"split{rank}.pt")
    options = {
        "root_dir": str(tmp_path),
        "result": str(tmp_path / "result"),
        "loader_ports": [free_port(), free_port()],
    }
    status, printed = run_spawned(f"{__name__}:run_example", 2, **options)
    assert status == 0, printed
    for rank in range(2):
        losses, accuracy = torch.load(tmp_path / f"result{rank}.pt", weights_only=True)
        assert losses[-1] < losses[0]
        assert accuracy > 0.4
