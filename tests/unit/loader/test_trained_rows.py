"""Rows that are trained are fetched by a stage of their own, which doesn't run ahead."""

from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import make_plan
from tests.kinds.pipelines import seeds
from tests.kinds.refusals import check_refused
from tests.unit.loader.test_rules import PROCESSES, THREADS, AtHome, Work, names, streams


def store(staleness: int = 0) -> gf.BasicFeatureStore:
    constant = gf.TorchBasedFeature(torch.arange(8.0).reshape(4, 2))
    trained = gf.TrainableFeature(4, 2, "sgd", seed=0, staleness=staleness)
    return gf.BasicFeatureStore({("node", None, "x"): trained, ("node", None, "feat"): constant})


def fetched(pipe: Any, keys: Any = ("x",), **options: Any) -> Any:
    return pipe.fetch_feature(store(), list(keys), **options)


PLANS: list[tuple[gf.Datapipe, str, str]] = [
    (fetched(Work(seeds())), "ItemSampler ByIndex Work InWorkers FeatureFetcher", ""),
    # Other features are fetched ahead, as ever.
    (
        fetched(Work(seeds()), ["x", "feat"]),
        "ItemSampler ByIndex Work FeatureFetcher InWorkers TrainedFetcher",
        "ItemSampler ByIndex Work InWorkers FeatureFetcher InThreads TrainedFetcher",
    ),
    # Stages that follow wait, too, and those of the main process that come before run ahead.
    (Work(fetched(Work(seeds()))), "ItemSampler ByIndex Work InWorkers FeatureFetcher Work", ""),
    (fetched(AtHome(Work(seeds()))), "ItemSampler ByIndex Work InWorkers AtHome Prefetch FeatureFetcher", ""),
    (
        fetched(AtHome(seeds())).copy_to("meta"),
        "ItemSampler ByIndex AtHome Prefetch FeatureFetcher CopyTo",
        "",
    ),
    # A copy to a GPU has a stream of its own only if it comes before.
    (fetched(Work(seeds())).copy_to("cuda"), "ItemSampler ByIndex Work InWorkers FeatureFetcher CopyTo", ""),
    (
        fetched(Work(seeds()).copy_to("cuda")),
        "ItemSampler ByIndex Work InWorkers Pin CopyTo StreamPrefetch FeatureFetcher",
        "",
    ),
]
"""A pipeline, the stages of its plan with worker threads, and those with processes if they differ."""


def test_plans_have_these_stages() -> None:
    for pipe, with_threads, with_processes in PLANS:
        for options, expected in ((THREADS, with_threads), (PROCESSES, with_processes or with_threads)):
            planned = make_plan(pipe, options)
            assert names(planned.running) == expected.split(), options
            # With nothing to split, a rule changes nothing.
            assert ("fetch_trained_last" in planned.explain()) == ("TrainedFetcher" in expected)


def test_rows_in_files_are_read_ahead(tmp_path: Path) -> None:
    mapped = store()
    mapped["node", None, "x"] = table = gf.TrainableFeature(4, 2000, seed=0, path=tmp_path / "rows.npy")
    ahead: list[list[int]] = []
    read_ahead = table.read_ahead

    def watched(ids: torch.Tensor) -> None:
        ahead.append(ids.tolist())
        read_ahead(ids)

    table.read_ahead = watched  # type: ignore[method-assign]
    for keys, fetches in ((["x"], ""), (["x", "feat"], "FeatureFetcher")):
        pipe = Work(seeds()).fetch_feature(mapped, keys)
        last = "TrainedFetcher" if fetches else "FeatureFetcher"
        for options, expected in (
            (THREADS, f"ItemSampler ByIndex Work {fetches} ReadTrainedAhead InWorkers {last}"),
            (PROCESSES, f"ItemSampler ByIndex Work InWorkers {fetches} ReadTrainedAhead InThreads {last}"),
        ):
            assert names(make_plan(pipe, options).running) == expected.split()
    items = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=1)
    with gf.DataLoader(items.fetch_feature(mapped, ["x"]), num_workers=1, seed=0) as loader:
        for number, minibatch in enumerate(loader):
            assert ahead[: number + 1] == [[index] for index in range(number + 1)]
            minibatch.node_features["x"].sum().backward()
            table.step()
    assert len(ahead) == 4


def test_old_rows_are_fetched_beside_the_loop() -> None:
    for keys, last in ((["x"], "FeatureFetcher"), (["x", "feat"], "TrainedFetcher")):
        pipe = Work(Work(seeds()).fetch_feature(store(2), keys))
        planned = make_plan(pipe, THREADS)
        assert names(planned.running)[-3:] == [last, "FetchBeforeSteps", "Work"]
        assert "FetchBeforeSteps(staleness=2)" in planned.explain()
        assert "Rows that are trained, with a `staleness`, are fetched in a thread" in planned.explain()
        assert "FetchBeforeSteps" not in make_plan(pipe, THREADS.__class__()).explain()
    both = store(2)
    both["node", None, "feat"] = gf.TrainableFeature(4, 2)
    fetcher = Work(seeds()).fetch_feature(both, ["x", "feat"])
    assert "FetchBeforeSteps" not in make_plan(fetcher, THREADS).explain()


def old_rows(table: gf.TrainableFeature, count: int, num_workers: int, seen: Any = None) -> gf.DataLoader:
    own = gf.BasicFeatureStore({("node", None, "x"): table})
    items = gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)
    pipe = items if seen is None else items.transform(seen)
    return gf.DataLoader(pipe.fetch_feature(own, ["x"]), num_workers=num_workers, seed=0)


def train_one(table: gf.TrainableFeature, minibatch: Any) -> None:
    (minibatch.node_features["x"] * minibatch.seeds[:, None] + 1).square().sum().backward()
    table.step()


@pytest.mark.usefixtures("no_leaks")
def test_leaving_an_epoch_and_evaluating_change_no_old_rows() -> None:
    tables = []
    for num_workers in (0, 2):
        table = gf.TrainableFeature(20, 2, "adagrad", 0.5, seed=0, staleness=2)
        with old_rows(table, 20, num_workers) as loader:
            for minibatch in loader:
                if minibatch.key.index == 7:
                    table.zero_grad()
                    continue
                if minibatch.key.index == 12:
                    break
                train_one(table, minibatch)
            with torch.no_grad():
                for minibatch in loader:
                    rows = minibatch.node_features["x"]
                    assert not rows.requires_grad
                    assert torch.equal(rows, table.read(minibatch.seeds))
            table.zero_grad()
            table.zero_grad()  # without an effect
            for minibatch in loader:
                train_one(table, minibatch)
            table.update(torch.ones(3, 2), torch.tensor([0, 1, 19]))
            for minibatch in loader:
                train_one(table, minibatch)
        tables.append(table.read())
        assert table.num_steps == 11 + 20 + 20
    assert torch.equal(*tables)


def by_turns(minibatch: Any) -> Any:
    """Replace the seeds by few ones of a type, which has many of them in a row, and then few."""
    kind = "a" if minibatch.key.index in (0, 1, 2, 4, 7, 8) else "b"
    minibatch.seeds = {kind: minibatch.seeds % 2}
    return minibatch


def test_old_rows_are_the_same_if_mini_batches_lack_a_type() -> None:
    found = []
    for num_workers in (0, 2):
        tables = {kind: gf.TrainableFeature(20, 2, "sgd", 0.5, seed=0, staleness=2) for kind in "ab"}
        store = gf.BasicFeatureStore({("node", kind, "x"): table for kind, table in tables.items()})
        items = gf.ItemSampler(gf.ItemSet(20, names="seeds"), batch_size=1).transform(by_turns)
        seen: list[torch.Tensor] = []
        with gf.DataLoader(items.fetch_feature(store, {"a": ["x"], "b": ["x"]}), num_workers=num_workers) as loader:
            for minibatch in loader:
                (((kind, _), rows),) = minibatch.node_features.items()
                seen.append(rows.detach().clone())
                (rows + 1).square().sum().backward()
                tables[kind].step()
        found.append(torch.cat(seen))
    assert torch.equal(*found)


def test_old_rows_are_the_same_for_two_loaders_by_turns_and_another_grad_mode() -> None:
    found = []
    for num_workers in (0, 2):
        table = gf.TrainableFeature(4, 2, "sgd", 0.01, seed=0, staleness=2)
        seen = []
        with old_rows(table, 4, num_workers) as one, old_rows(table, 4, num_workers) as other:
            for number, minibatches in enumerate([iter(one), iter(other)] * 4):
                with torch.set_grad_enabled(number not in (0, 5)):
                    minibatch = next(minibatches)
                seen.append(minibatch.node_features["x"].detach().clone())
                if number not in (0, 5):
                    train_one(table, minibatch)
                assert minibatch.node_features["x"].requires_grad == (number not in (0, 5))
        found.append(torch.cat([*seen, table.read()]))
    assert torch.equal(*found)


def test_another_table_in_the_store_has_its_own_staleness() -> None:
    found = []
    for num_workers in (0, 2):
        tables = [gf.TrainableFeature(1, 2, "sgd", 0.1, seed=0, staleness=staleness) for staleness in (3, 1, 0, 3)]
        own = gf.BasicFeatureStore({("node", None, "x"): tables[0]})
        items = gf.ItemSampler(gf.ItemSet(torch.zeros(9, dtype=torch.int64), names="seeds"), batch_size=1)
        with gf.DataLoader(items.fetch_feature(own, ["x"]), num_workers=num_workers, seed=0) as loader:
            for table in tables:
                own["node", None, "x"] = table
                for minibatch in loader:
                    minibatch.node_features["x"].square().sum().backward()
                    table.step()
        found.append(torch.cat([table.read() for table in tables]))
    assert torch.equal(*found)
    assert len({*found[0][:, 0].tolist()}) == 3


def test_an_epoch_goes_on_with_rows_that_were_loaded_or_updated(tmp_path: Path) -> None:
    found = []
    for num_workers in (0, 2):
        table = gf.TrainableFeature(1, 2, "sgd", 0.1, seed=0, staleness=2)
        own = gf.BasicFeatureStore({("node", None, "x"): table})
        items = gf.ItemSampler(gf.ItemSet(torch.zeros(20, dtype=torch.int64), names="seeds"), batch_size=1)
        with gf.DataLoader(items.fetch_feature(own, ["x"]), num_workers=num_workers, seed=0) as loader:
            for minibatch in loader:
                minibatch.node_features["x"].square().sum().backward()
                table.step()
                if minibatch.key.index == 4:
                    table.save(tmp_path / str(num_workers))
                elif minibatch.key.index == 9:
                    table.load(tmp_path / str(num_workers))
                elif minibatch.key.index == 15:
                    table.update(torch.ones(1, 2))
        found.append(table.read())
    assert torch.equal(*found)


def test_old_rows_are_read_once() -> None:
    table = gf.TrainableFeature(6, 2, staleness=2)
    reads, read = [], table.read

    def watched(ids: torch.Tensor | None = None) -> torch.Tensor:
        reads.append(ids)
        return read(ids)

    table.read = watched  # type: ignore[method-assign]
    with old_rows(table, 6, num_workers=2) as loader:
        for minibatch in loader:
            train_one(table, minibatch)
    assert len(reads) == 6


def test_only_the_first_of_two_stages_fetches_before_steps() -> None:
    found = []
    for num_workers in (0, 2):
        tables = [gf.TrainableFeature(20, 2, "sgd", 0.5, seed=seed, staleness=2) for seed in range(2)]
        first, second = [gf.BasicFeatureStore({("node", None, "x"): own}) for own in tables]
        pipe = Renamed(seeds().fetch_feature(first, ["x"])).fetch_feature(second, ["x"])
        with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
            for minibatch in loader:
                (minibatch.node_features["x"] * vars(minibatch)["first"]).sum().backward()
                for table in tables:
                    table.step()
        found.append(torch.cat([table.read() for table in tables]))
    assert torch.equal(*found)


class Renamed(gf.Transform):
    """Puts the rows aside."""

    def __call__(self, minibatch: Any) -> Any:
        minibatch.first = minibatch.node_features["x"]
        return minibatch


def test_errors_before_old_rows_are_raised_in_place_of_their_mini_batch() -> None:
    def failing(minibatch: Any) -> Any:
        if minibatch.key.index == 3:
            raise ValueError("too much")
        return minibatch

    for num_workers in (0, 2):
        table = gf.TrainableFeature(6, 2, seed=0, staleness=2)
        with old_rows(table, 6, num_workers, failing) as loader:
            minibatches = iter(loader)
            for _ in range(3):
                train_one(table, next(minibatches))
            with pytest.raises(ValueError, match="too much"):
                next(minibatches)
        other = gf.TrainableFeature(6, 2, seed=0, staleness=2)
        with old_rows(other, 6, num_workers) as loader:
            minibatches = iter(loader)
            next(minibatches)
            with pytest.raises(RuntimeError, match=r"step\(\) didn't follow"):
                next(minibatches)
        smaller = gf.TrainableFeature(5, 2, seed=0, staleness=2)
        with old_rows(smaller, 6, num_workers) as loader:
            minibatches = iter(loader)
            for _ in range(5):
                train_one(smaller, next(minibatches))
            with pytest.raises(IndexError, match=r"0 \.\. 4, but holds 5") as caught:
                next(minibatches)
            assert "in FeatureFetcher, stage 2, mini-batch 5 of epoch 0" in str(caught.value.__notes__)


def test_on_a_gpu_only_other_features_are_fetched_ahead() -> None:
    pipe = fetched(seeds().copy_to("cuda"), ["x", "feat"])
    assert streams(pipe) == {"feature": ["ItemSampler", "Pin", "CopyTo", "FeatureFetcher"]}
    assert names(make_plan(pipe, THREADS).running)[-2:] == ["StreamPrefetch", "TrainedFetcher"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_features_of_both_kinds_are_in_one_dict(num_workers: int) -> None:
    both = store()
    for key in ("x", "feat"):
        both["edge", None, key] = both["node", None, key]
    items = gf.ItemSet((torch.arange(2), torch.arange(2)), names=("seeds", "seed_edge_ids"))
    pipe: Any = gf.ItemSampler(items, batch_size=2)
    pipe = pipe.fetch_feature(both, ["x", "feat"], seed_edge_feature_keys=["feat", "x"])
    with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
        (minibatch,) = loader
    # In the order of the arguments, as in the pipeline as written.
    assert [[*minibatch.node_features], [*minibatch.seed_edge_features]] == [["x", "feat"], ["feat", "x"]]
    for found in (minibatch.node_features, minibatch.seed_edge_features):
        assert {name: rows.requires_grad for name, rows in found.items()} == {"x": True, "feat": False}
        assert torch.equal(found["x"].detach(), both["node", None, "x"].read(torch.arange(2)))
        assert torch.equal(found["feat"], torch.tensor([[0.0, 1.0], [2.0, 3.0]]))


class Joined(gf.FeatureFetcher):
    """Uses the rows of both features."""

    def __call__(self, minibatch: Any) -> Any:
        result = super().__call__(minibatch)
        result.node_features = {"both": torch.cat([*(result.node_features or {}).values()], 1)}
        return result


def test_a_subclass_fetches_all_rows_at_once() -> None:
    pipe = Joined(seeds(), store(), ["x", "feat"])
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        found = next(iter(loader)).node_features
    assert found["both"].shape[1] == 4
    assert found["both"].requires_grad


def test_workers_and_several_ranks_are_refused() -> None:
    moved = fetched(seeds()).changed(runs_in=gf.Placement.WORKER)
    check_refused(
        [
            (lambda: gf.DataLoader(moved, num_workers=2), ValueError, "workers run ahead, .* TrainableFeature"),
            (lambda: fetched(seeds(), cooperative=True), ValueError, "can't fetch rows that are trained"),
        ]
    )
