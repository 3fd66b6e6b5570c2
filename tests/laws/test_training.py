"""The same table, bit for bit, for any executor, number of workers and point at which a training resumes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import to_type_dict
from tests.kinds import pipelines
from tests.kinds.digests import assert_same

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd"},
    "row-wise Adagrad": {"optimizer": "adagrad", "combine": "mean"},
    "Adagrad": {"optimizer": "adagrad", "rowwise": False},
    "Adam": {"optimizer": "adam", "dtype": torch.float64},
}
EPOCHS = 2
Tables = dict[str, gf.TrainableFeature]


def make_tables(optimizer: str, folder: Path | None = None, staleness: int = 0) -> Tables:
    """Return tables for the nodes of a type and for edges, in memory or in files; the second one is twice as stale."""
    counts = {"user": 200, "row": 900}
    return {
        name: gf.TrainableFeature(
            count,
            5,
            lr=0.1,
            seed=number,
            path=folder and folder / f"{name}.npy",
            staleness=staleness * (number + 1),
            **OPTIMIZERS[optimizer],
        )
        for number, (name, count) in enumerate(counts.items())
    }


def pipe_of(tables: Tables) -> gf.Datapipe:
    """Return a pipeline of a typed graph: users are trained, and items have features; so have edges of both kinds."""
    edges = {
        "user:likes:item": pipelines.random_edges(200, 60, 900, 2),
        "item:liked_by:user": pipelines.random_edges(60, 200, 900, 3),
    }
    graph = gf.from_coo(edges, {"user": 200, "item": 60})
    store = gf.BasicFeatureStore(
        {
            ("node", "user", "x"): tables["user"],
            ("node", "item", "x"): gf.TorchBasedFeature(torch.arange(300.0).reshape(60, 5) / 300),
            ("edge", "user:likes:item", "row"): tables["row"],
            ("edge", "user:likes:item", "id"): gf.TorchBasedFeature(torch.arange(900)[:, None]),
        }
    )
    items = gf.HeteroItemSet({"user": gf.ItemSet(torch.arange(200), names="seeds")})
    pipe = gf.ItemSampler(items, batch_size=30, shuffle=True).sample_neighbor(graph, [3, 3])
    pipe = pipe.fetch_feature(store, {"user": ["x"], "item": ["x"]}, {"user:likes:item": ["row", "id"]})
    return pipe.transform(add_noise)


def add_noise(minibatch: Any) -> Any:
    """Draw after the fetch."""
    minibatch.noise = torch.rand(5)
    return minibatch


def train(loader: Any, tables: Tables) -> Iterator[None]:
    """Train for an epoch, and yield after each step."""
    for minibatch in loader:
        loss = torch.zeros((), dtype=tables["user"].dtype)
        for (kind, _), rows in minibatch.node_features.items():
            wanted = to_type_dict(minibatch.node_ids())[kind] / 200
            loss = loss + ((rows * minibatch.noise).sum(1) - wanted).square().sum()
        for layer in minibatch.edge_features:
            loss = loss + (layer["user:likes:item", "row"] - 0.5).square().sum()
            assert not layer["user:likes:item", "id"].requires_grad
        loss.backward()  # type: ignore[no-untyped-call]
        for table in tables.values():
            table.step()
        yield


def rows_of(tables: Tables) -> list[torch.Tensor]:
    return [values for table in tables.values() for values in (table.read(), table.state_dict()["state"])]


def trained(optimizer: str, folder: Path | None = None, staleness: int = 0, **options: Any) -> list[torch.Tensor]:
    """Return the tables after two epochs through a loader."""
    tables = make_tables(optimizer, folder, staleness)
    with gf.DataLoader(pipe_of(tables), seed=7, **options) as loader:
        for _ in range(EPOCHS):
            for _ in train(loader, tables):
                pass
    return rows_of(tables)


@cache
def expected(optimizer: str, staleness: int = 0) -> list[torch.Tensor]:
    """Return the tables after two epochs without a loader."""
    tables = make_tables(optimizer, None, staleness)
    for epoch in range(EPOCHS):
        for _ in train(pipe_of(tables).with_seed(7, epoch), tables):
            pass
    return rows_of(tables)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_number_of_threads_trains_the_same_table_in_memory_and_in_files(optimizer: str, tmp_path: Path) -> None:
    for num_workers in (0, 1, 3):
        assert_same(trained(optimizer, num_workers=num_workers), expected(optimizer))
    assert_same(trained(optimizer, tmp_path, num_workers=2), expected(optimizer))


@pytest.mark.parametrize("staleness", [1, 3])
@pytest.mark.usefixtures("no_leaks")
def test_any_number_of_threads_trains_the_same_table_with_old_rows(staleness: int, tmp_path: Path) -> None:
    assert any(not torch.equal(*pair) for pair in zip(expected("Adam", staleness), expected("Adam"), strict=True))
    for num_workers in (0, 1, 3):
        assert_same(trained("Adam", None, staleness, num_workers=num_workers), expected("Adam", staleness))
    assert_same(trained("Adam", tmp_path, staleness, num_workers=2), expected("Adam", staleness))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("staleness", [0, 1, 4, 30])
def test_old_rows_are_those_after_earlier_steps(staleness: int, optimizer: str) -> None:
    def backward(rows: torch.Tensor, number: int) -> None:
        (rows * torch.linspace(-1, number, 5, dtype=rows.dtype)).square().sum().backward()  # type: ignore[no-untyped-call]

    table, plain = make_tables(optimizer, None, staleness)["user"], make_tables(optimizer)["user"]
    store = gf.BasicFeatureStore({("node", None, "x"): table})
    items = gf.ItemSet(torch.arange(200), names="seeds")
    pipe = gf.ItemSampler(items, batch_size=30, shuffle=True).fetch_feature(store, ["x"])
    history = [plain.read().clone()]
    with gf.DataLoader(pipe, num_workers=2, seed=7) as loader:
        for number, minibatch in enumerate(minibatch for _ in range(3) for minibatch in loader):
            ids, rows = minibatch.seeds, minibatch.node_features["x"]
            old = history[max(len(history) - 1 - staleness, 0)][ids].requires_grad_()
            assert_same(rows.detach(), old.detach())
            backward(rows, number)
            backward(old, number)
            table.step()
            plain.fetch(ids).grad = old.grad
            plain.step()
            history.append(plain.read().clone())
            assert_same(table.read(), history[-1])
    assert len(history) == 22


@pytest.mark.slow
@pytest.mark.usefixtures("fork_server", "no_leaks")
@pytest.mark.parametrize("staleness", [0, 2])
def test_worker_processes_train_the_same_table(staleness: int) -> None:
    found = trained("Adagrad", None, staleness, num_workers=2, worker="process")
    assert_same(found, expected("Adagrad", staleness))


def test_executors_of_users_train_the_same_table() -> None:
    with ThreadPoolExecutor(2) as executor:
        assert_same(trained("Adam", num_workers=2, executor=executor), expected("Adam"))


@pytest.mark.parametrize(("optimizer", "staleness"), [*((optimizer, 0) for optimizer in OPTIMIZERS), ("Adam", 2)])
@pytest.mark.parametrize("steps", [1, 5, 9])
def test_a_training_resumes_at_any_mini_batch(optimizer: str, staleness: int, steps: int, tmp_path: Path) -> None:
    tables = make_tables(optimizer, None, staleness)
    with gf.DataLoader(pipe_of(tables), num_workers=2, seed=7) as loader:
        stepping = chain.from_iterable(train(loader, tables) for _ in range(EPOCHS))
        for _ in islice(stepping, steps):
            pass
        tables["row"].save(tmp_path / "row")
        tables["user"].save(tmp_path / "user", loader.state_dict())
    others = make_tables(optimizer, tmp_path, staleness)
    with gf.DataLoader(pipe_of(others), num_workers=0, seed=7) as loader:
        others["row"].load(tmp_path / "row")
        state = others["user"].load(tmp_path / "user")
        assert state is not None
        loader.load_state_dict(state)
        for _ in range(state["epoch"], EPOCHS):
            for _ in train(loader, others):
                pass
    assert_same(rows_of(others), expected(optimizer, staleness))
    assert [table.num_steps for table in others.values()] == [EPOCHS * len(loader)] * 2
