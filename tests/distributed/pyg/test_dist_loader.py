import os
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.distributed import (
    DistContext,
    DistLoader,
    DistNeighborLoader,
    LocalFeatureStore,
    LocalGraphStore,
    Partitioner,
)
from graphfeed.pyg.data.tables import import_pyg
from tests.digests import assert_same
from tests.distributed import pyg_example
from tests.distributed.dist_loaders import DATA, values_of
from tests.distributed.pyg_data import plain_data
from tests.distributed.rank_processes import free_port, run_spawned

ALONE = DistContext(0, 0, 1, 1, "test")


def make_loader(**options: Any) -> DistNeighborLoader:
    """Return a loader of a single rank."""
    data = plain_data()
    graph = LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)
    features = LocalFeatureStore.from_data(torch.arange(60), data.x)
    given: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 1, **options}
    return DistNeighborLoader((features, graph), [3, 2], "127.0.0.1", 0, ALONE, **given)


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
    with loader.enable_multithreading(2), loader.enable_cpu_affinity([0]):
        assert all(size > 16 for size in islice(loader, 3))
    assert loader.pipeline is loader.plan.written
    assert str(loader) == f"{type(loader).__name__}(pid={os.getpid()})"


def test_a_rank_without_seeds_makes_no_mini_batches() -> None:
    loader = make_loader(input_nodes=torch.tensor([], dtype=torch.int64))
    assert len(loader) == 0
    assert list(loader) == []


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("num_rpc_threads", "rpc_timeout"):
        with pytest.raises(ValueError, match=f"{name} must be more than 0"):
            make_loader(**{name: 0})
    with pytest.raises(TypeError, match="DistNeighborLoader has no argument 'colour'"):
        make_loader(colour=1)
    with pytest.raises(ValueError, match="input_time needs time_attr"):
        make_loader(input_time=torch.arange(60))
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    graph = LocalGraphStore.from_data(torch.arange(1), torch.tensor([[0], [1]]), 2)
    graph.num_partitions, graph.node_pb = 2, torch.tensor([0, 1])
    data, two = (LocalFeatureStore.from_data(torch.arange(2)), graph), DistContext(0, 0, 2, 2, "test")
    for address, name in ((None, "master_addr"), ("127.0.0.1", "master_port")):
        with pytest.raises(ValueError, match=f"{name} is missing: where rank 0 listens; give it, or set"):
            DistNeighborLoader(data, [2], address, None, two)


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
