"""The options of the loaders over parts, for nodes and for links, and a whole program that uses them."""

import os
import re
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
from graphfeed.pyg import NegativeSampling
from graphfeed.pyg.data.tables import import_pyg
from tests.digests import assert_same
from tests.distributed import pyg_example
from tests.distributed.pyg.test_dist_loaders import DATA, values_of
from tests.distributed.pyg.test_local_graph_store import in_time
from tests.distributed.pyg_data import plain_data
from tests.distributed.rank_processes import free_port, run_spawned
from tests.pages import rows
from tests.refusals import check_refused

ALONE = DistContext(0, 0, 1, 1, "test", DistRole.WORKER)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "from-pyg-distributed.md"


def parts() -> tuple[LocalFeatureStore, LocalGraphStore]:
    """Return the single part of a graph whose nodes have times."""
    data = plain_data()
    features = LocalFeatureStore.from_data(torch.arange(60), data.x)
    features.put_tensor(data.time, None, "time")
    return features, LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)


def make_loader(**options: Any) -> DistNeighborLoader:
    """Return a loader of a single rank."""
    given: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 1, **options}
    return DistNeighborLoader(parts(), [3, 2], "127.0.0.1", 0, ALONE, **given)


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


def test_an_epoch_resumes_with_other_workers() -> None:
    loader, resumed = make_loader(num_workers=2, concurrency=2), make_loader(num_workers=0)
    assert (loader.num_workers, resumed.num_workers) == (4, 0)
    epoch = iter(loader)
    next(epoch)
    resumed.load_state_dict(loader.state_dict())
    assert_same([values_of(batch) for batch in resumed], [values_of(batch) for batch in epoch])
    loader.close()


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
    assert str(loader) == f"{type(loader).__name__}(pid={os.getpid()})"


def test_a_rank_without_seeds_makes_no_mini_batches() -> None:
    loader = make_loader(input_nodes=torch.tensor([], dtype=torch.int64))
    assert (len(loader), list(loader)) == (0, [])
    assert list(make_links(edge_label_index=plain_data().edge_index[:, :0])) == []


def test_seeds_of_a_type_without_times_need_some() -> None:
    parts, ctx = in_time(user=torch.arange(2))[:2], DistContext(0, 0, 1, 1, "test")
    options: dict[str, Any] = {"current_ctx": ctx, "time_attr": "time", "master_addr": None, "master_port": None}
    with pytest.raises(ValueError, match=r"input_nodes of 'item' have no 'time' of their own; give input_time"):
        DistNeighborLoader(parts, [2], input_nodes=("item", torch.arange(2)), **options)
    (batch,) = DistNeighborLoader(parts, [2], input_nodes=("user", torch.arange(2)), batch_size=2, **options)
    assert batch["user"].n_id.tolist() == [0, 1]
    given = {"input_time": torch.arange(2), "batch_size": 2, **options}
    assert len(list(DistNeighborLoader(parts, [2], input_nodes=("item", torch.arange(2)), **given))) == 1


def test_all_edges_of_the_part_are_seeds_unless_others_are_given() -> None:
    data = plain_data()
    found = [batch.n_id[batch.edge_label_index] for batch in make_links()]
    seeds = torch.cat(found, dim=1)
    order = (data.edge_index[1] * 60 + data.edge_index[0]).sort().values
    assert torch.equal((seeds[1] * 60 + seeds[0]).sort().values, order)


def test_negatives_follow_the_edges() -> None:
    index = plain_data().edge_index[:, :50]
    (batch,) = make_links(edge_label_index=index, neg_sampling_ratio=1.0, edge_label=torch.arange(50))
    assert batch.edge_label.tolist() == [*range(1, 51), *[0] * 50]
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :50]], index)
    (batch,) = make_links(edge_label_index=index, neg_sampling="triplet")
    assert torch.equal(batch.n_id[torch.stack([batch.src_index, batch.dst_pos_index])], index)


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

    check_refused(
        [
            (lambda: make_loader(num_rpc_threads=0), ValueError, "num_rpc_threads must be more than 0"),
            (lambda: make_loader(rpc_timeout=0), ValueError, "rpc_timeout must be more than 0"),
            (lambda: make_loader(colour=1), TypeError, "DistNeighborLoader has no argument 'colour'"),
            (lambda: make_loader(input_time=torch.arange(60)), ValueError, "input_time needs time_attr"),
            (lambda: make_links(edge_label_index=index, edge_label_time=times), ValueError, together),
            (lambda: make_links(edge_label_index=index, time_attr="time"), ValueError, together),
            (lambda: next(iter(strict)), TypeError, "strict=True needs a graph in memory"),
            (lambda: two_ranks(None), ValueError, "master_addr is missing: where rank 0 listens; give it, or set"),
            (lambda: two_ranks("127.0.0.1"), ValueError, "master_port is missing: where rank 0 listens; give it"),
        ]
    )


def test_the_page_about_the_move_names_every_argument() -> None:
    listed = {name for names, _ in rows(PAGE, "argument") for name in re.findall(r"`(\w+)`", names)}
    taken = {name for loader in (DistNeighborLoader, DistLinkNeighborLoader) for name in signature(loader).parameters}
    assert listed == taken - {"kwargs"} | {"rpc_timeout"}


def run_example(rank: int, world_size: int, port: int, **options: Any) -> None:
    """Be a rank of the example."""
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
