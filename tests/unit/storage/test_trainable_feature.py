"""A table that is trained: its errors, its checkpoints, and what reads it."""

import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed import TrainableFeature
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

IDS = torch.tensor([3, 1, 3])


def table(**options: Any) -> TrainableFeature:
    return TrainableFeature(**{"num_rows": 6, "dim": 2, "optimizer": "adam", "lr": 0.5, "seed": 3, **options})


def train(feature: TrainableFeature, ids: torch.Tensor = IDS) -> None:
    feature.fetch(ids).square().sum().backward()  # type: ignore[no-untyped-call]
    feature.step()


def batches(feature: gf.Feature) -> gf.Datapipe:
    store = gf.BasicFeatureStore({("node", None, "x"): feature})
    pipe = gf.ItemSampler(gf.ItemSet(torch.tensor([0, 5, 2, 3]), names="seeds"), batch_size=2)
    return pipe.fetch_feature(store, ["x"])


def test_it_reads_like_any_feature_and_fetches_leaves() -> None:
    feature = table()
    assert (feature.count(), feature.size(), feature.dtype) == (6, (2,), torch.float32)
    assert_same(feature.read(IDS), feature.read()[IDS])
    assert not feature.read(IDS).requires_grad
    rows = feature.fetch(IDS.int())
    assert rows.is_leaf
    assert rows.requires_grad
    assert_same(rows.detach(), feature.read(IDS))
    with torch.no_grad():
        assert not table().fetch(IDS).requires_grad
    assert repr(feature) == "TrainableFeature(float32[6, 2], adam, lr=0.5, 0 steps)"
    assert feature.is_trained
    assert not gf.TorchBasedFeature(torch.ones(1, 1)).is_trained
    feature.update(torch.ones(2, 2), torch.tensor([0, 5]))
    assert feature.read(torch.tensor([5])).tolist() == [[1.0, 1.0]]
    feature.update(torch.zeros(6, 2))
    assert not feature.read().any()


def test_first_rows_depend_on_the_seed_alone() -> None:
    assert_same(table().read(), table(optimizer="sgd", num_rows=9).read()[:6])
    assert not torch.equal(table().read(), table(seed=4).read())
    assert table(init=0.0).read().abs().max() == 0
    assert 0 < table(dim=16).read().abs().max() <= 0.25
    gf.seed(1)
    first = table(seed=None).read()
    assert not torch.equal(first, table(seed=None).read())
    gf.seed(1)
    assert_same(table(seed=None).read(), first)
    gf.seed(None)


def test_each_mini_batch_has_one_step() -> None:
    feature = table()
    before = feature.read().clone()
    two = iter(batches(feature).with_seed(0))
    next(two)
    with pytest.raises(RuntimeError, match=r"the mini-batch before were fetched, and step\(\) didn't follow") as caught:
        next(two)
    assert "stage 2, mini-batch 1 of epoch 0" in str(caught.value.__notes__)
    check_refused(
        [
            (feature.step, RuntimeError, r"no gradients; call backward\(\)"),
            (feature.state_dict, RuntimeError, r"call step\(\) or zero_grad\(\) first"),
        ]
    )
    feature.zero_grad()
    check_refused([(feature.step, RuntimeError, r"no rows were fetched since the last step\(\)")])
    assert_same(feature.read(), before)
    for number, minibatch in enumerate(batches(feature).with_seed(0)):
        minibatch.node_features["x"].sum().backward()
        feature.step()
        after = feature.read().clone()
        check_refused([(feature.step, RuntimeError, "no rows were fetched since")])
        assert_same(feature.read(), after)
        assert feature.num_steps == number + 1
    with torch.no_grad():
        assert len(list(batches(feature))) == 2
    # Mini-batches without keys, too.
    stage: Any = batches(feature)
    stage(gf.MiniBatch(seeds=IDS))
    check_refused([(lambda: stage(gf.MiniBatch(seeds=IDS)), RuntimeError, "didn't follow")])


def test_a_buffer_behind_the_fetch_would_have_old_rows() -> None:
    with pytest.raises(RuntimeError, match="don't buffer mini-batches after this stage"):
        list(batches(table()).buffer(2))


def test_several_fetches_of_a_mini_batch_are_added_up() -> None:
    one, other = table(), table()
    train(one, torch.tensor([0, 1, 0, 4]))
    parts = [other.fetch(torch.tensor(ids, dtype=kind)) for ids, kind in (([0, 1], torch.int32), ([0, 4], torch.int64))]
    other.fetch(torch.tensor([5]))  # not used
    torch.cat(parts).square().sum().backward()  # type: ignore[no-untyped-call]
    other.step()
    assert_same(other.read(), one.read())


@pytest.mark.parametrize("keys", [("a", None, "a"), (None, "a"), (None, "a", None)])
def test_fetches_without_a_key_belong_to_any_mini_batch(keys: Any) -> None:
    feature = table(optimizer="sgd", lr=1.0, init=0.0)
    for key in keys:
        feature.fetch(torch.tensor([1]), key).sum().backward()  # type: ignore[no-untyped-call]
    check_refused([(lambda: feature.fetch(IDS, "b"), RuntimeError, "step\\(\\) didn't follow")])
    feature.step()
    assert feature.read()[1].tolist() == [-len(keys)] * 2
    feature.fetch(IDS, "b")


def test_ids_of_the_caller_may_change_before_the_step() -> None:
    one, other, ids = table(), table(), IDS.clone()
    train(one)
    rows = other.fetch(ids)
    ids.zero_()
    rows.square().sum().backward()  # type: ignore[no-untyped-call]
    other.step()
    assert_same(other.read(), one.read())


def test_the_learning_rate_may_change_and_gradients_may_be_sparse() -> None:
    feature = table(optimizer="sgd")
    before = feature.read().clone()
    feature.lr = 0.25
    rows = feature.fetch(torch.tensor([2, 4]))
    torch.nn.functional.embedding(torch.tensor([1]), rows, sparse=True).sum().backward()  # type: ignore[no-untyped-call]
    feature.step()
    assert (before - feature.read()).tolist() == [[0, 0]] * 4 + [[0.25, 0.25], [0, 0]]


def test_a_checkpoint_is_complete_or_an_error(tmp_path: Path) -> None:
    feature, folder = table(), tmp_path / "new" / "checkpoint"
    train(feature)
    feature.lr = 0.125
    feature.save(folder, {"epoch": 1})
    assert sorted(map(str, folder.iterdir())) == [str(folder / "manifest.json"), str(folder / "part_0")]
    assert sorted(path.name for path in (folder / "part_0").iterdir()) == ["rows.0.npy", "state.0.npy"]
    assert_same(torch.from_numpy(np.load(folder / "part_0" / "rows.0.npy")), feature.read())
    other = table(seed=8)
    assert other.load(folder) == {"epoch": 1}
    assert (other.lr, other.num_steps) == (0.125, 1)
    train(feature)
    train(other)
    assert_same(other.state_dict(), feature.state_dict())
    feature.save(folder)
    assert sorted(path.name for path in (folder / "part_0").iterdir()) == ["rows.1.npy", "state.1.npy"]
    assert table().load(folder) is None

    broken = table(seed=8)
    before = broken.read().clone()
    for name, error, words in (
        ("part_0/state.1.npy", FileNotFoundError, "state.1.npy is missing"),
        ("manifest.json", FileNotFoundError, "no complete checkpoint: manifest.json is missing"),
    ):
        (folder / name).rename(tmp_path / "moved")
        check_refused([(lambda: broken.load(folder), error, words)])
        (tmp_path / "moved").rename(folder / name)
    check_refused([(lambda: broken.load(tmp_path / "none"), FileNotFoundError, "has no complete checkpoint")])
    os.truncate(folder / "part_0" / "rows.1.npy", 140)
    check_refused([(lambda: broken.load(folder), ValueError, "rows.1.npy is damaged")])
    for text in ("{", "[]", json.dumps({"version": 2})):
        (folder / "manifest.json").write_text(text)
        check_refused([(lambda: broken.load(folder), ValueError, "damaged, or of another release")])
    assert_same(broken.read(), before)
    # Saving again needs no old checkpoint.
    feature.save(folder)
    broken.load(folder)
    assert_same(broken.state_dict(), feature.state_dict())


def test_a_manifest_that_was_changed_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    feature, folder = table(), tmp_path / "checkpoint"
    feature.save(folder)
    good = json.loads((folder / "manifest.json").read_text())
    options = good["options"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"parts": 2}, "its number, parts, tables or options are not"),
        ({"parts": "1"}, "its number, parts, tables or options are not"),
        ({"tables": ["../rows", "state"]}, "its number, parts, tables or options are not"),
        ({"tables": ["rows", "state", "ids"]}, r"ids.0.npy is missing"),
        ({"number": "0"}, "its number, parts, tables or options are not"),
        ({"options": ["loader"]}, "its number, parts, tables or options"),
        (
            {"options": {key: own for key, own in options.items() if key != "loader"}},
            "its number, parts, tables or options",
        ),
        ({"options": options | {"betas": [0.5]}}, "betas of the state must be two numbers"),
        ({"options": options | {"betas": "ab"}}, "betas of the state must be two numbers"),
        ({"options": options | {"betas": [0.5, "b"]}}, "betas must be at least 0 and below 1"),
        ({"options": options | {"lr": "a"}}, "lr must be at least 0 and below inf, but is 'a'"),
        ({"options": options | {"num_steps": -1}}, "num_steps of the state must be an integer of 0 or more, but is -1"),
        (
            {"options": options | {"num_steps": "3"}},
            "num_steps of the state must be an integer of 0 or more, but is '3'",
        ),
    ]
    other = table(seed=8)
    train(other)
    before = {key: own.clone() if isinstance(own, torch.Tensor) else own for key, own in other.state_dict().items()}
    for change, words in cases:
        (folder / "manifest.json").write_text(json.dumps(good | change))
        kind = FileNotFoundError if "missing" in words else ValueError
        check_refused([(lambda: other.load(folder), kind, words)])
    assert_same(other.state_dict(), before)
    feature.save(folder)
    other.load(folder)


def test_what_a_checkpoint_can_not_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    feature = table()
    check_refused([(lambda: feature.save(tmp_path / "new", {"rng": torch.ones(1)}), TypeError, "JSON")])
    assert not (tmp_path / "new").exists()
    feature.lr = torch.tensor(0.5)  # type: ignore[assignment]
    feature.save(tmp_path / "new")
    other = table()
    other.load(tmp_path / "new")
    assert other.lr == 0.5


def test_a_learning_rate_that_is_out_of_range_is_refused_when_it_is_set() -> None:
    feature = table()
    before = feature.read().clone()
    feature.fetch(IDS).sum().backward()  # type: ignore[no-untyped-call]
    for wrong in (float("nan"), -1.0, float("inf"), None, "a"):
        check_refused([(lambda wrong=wrong: setattr(feature, "lr", wrong), ValueError, "lr must be at least 0")])  # type: ignore[misc]
    assert feature.lr == 0.5
    feature.lr = 0.0
    feature.step()
    assert_same(feature.read(), before)


def fail(_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_each_table_has_a_folder_of_its_own(tmp_path: Path) -> None:
    users, items = table(), table(seed=8)
    users.save(tmp_path / "a")
    check_refused([(lambda: items.save(tmp_path / "b" / ".." / "a"), ValueError, "the checkpoint of another table")])
    users.save(tmp_path / "a")
    # A cell of a notebook that runs again has a new table.
    del users
    items.save(tmp_path / "a")


@pytest.mark.parametrize("good", range(3))
def test_a_full_disk_leaves_the_checkpoint_before(good: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feature = table()
    feature.save(tmp_path)
    train(feature)
    syncs = iter([lambda _: None] * good + [fail])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: next(syncs)(file))
        with pytest.raises(OSError, match="No space left on device; it takes up to"):
            feature.save(tmp_path)
    other = table(seed=1)
    other.load(tmp_path)
    assert_same(other.state_dict(), table().state_dict())
    if hasattr(os, "posix_fallocate"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", lambda *_: fail(_))
            with pytest.raises(OSError, match=r"No space left on device; it takes up to 48 bytes, .*rows\.npy"):
                table(path=tmp_path / "rows.npy")
        assert not (tmp_path / "rows.npy").exists()
    (tmp_path / "rows.state.npy").touch()
    check_refused([(lambda: table(path=tmp_path / "rows.npy"), FileExistsError, "rows.state.npy exists")])
    assert not (tmp_path / "rows.npy").exists()


def test_the_state_of_another_table_is_refused() -> None:
    feature = table()
    state = feature.state_dict()
    check_refused(
        [
            (lambda: table(optimizer="sgd").load_state_dict(state), ValueError, "optimizer of the state is adam"),
            (lambda: table(num_rows=7).load_state_dict(state), ValueError, r"float32\[6, 2\], but this table has"),
            (lambda: table(dtype=torch.float64).load_state_dict(state), ValueError, r"has float64\[6, 2\]"),
            (lambda: feature.load_state_dict({"rows": state["rows"]}), ValueError, r"lacks \['betas', 'eps'"),
            (
                lambda: feature.load_state_dict({**state, "earlier": torch.zeros(1, 2)}),
                ValueError,
                r"lacks \['earlier_rows'\]",
            ),
            (lambda: feature.load_state_dict(cast("Any", [])), TypeError, "state_dict must be a dict"),
        ]
    )


def test_a_table_in_files_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    feature = table(path=path)
    train(feature)
    other = table()
    train(other)
    assert_same(feature.state_dict(), other.state_dict())
    assert_same(torch.from_numpy(np.load(path)), other.read())
    assert np.load(tmp_path / "rows.state.npy").shape == (6, 6)
    check_refused([(lambda: table(path=path), FileExistsError, "rows.npy exists; delete it")])
    before = feature.state_dict()["rows"].clone()
    for ids in (IDS, IDS.int(), IDS[:0]):
        feature.read_ahead(ids)
        other.read_ahead(ids)  # does nothing in memory
    for own in (feature, other):
        check_refused([(lambda own=own: own.read_ahead(torch.tensor([6])), IndexError, "0 .. 5")])  # type: ignore[misc]
    assert_same(feature.read(), before)
    wide = table(dim=2500, optimizer="sgd", path=tmp_path / "wide.npy")
    wide.read_ahead(IDS)


def test_wrong_arguments_and_uses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = table()
    check_refused(
        [
            (lambda: table(optimizer="adamw"), ValueError, "optimizer must be"),
            (lambda: table(combine="max"), ValueError, "combine must be"),
            (lambda: table(dtype=torch.float16), ValueError, r"dtype must be one of \[torch.float32, torch.float64\]"),
            (lambda: table(betas=(0.9, 1.0)), ValueError, "below 1, but is"),
            (lambda: table(lr=float("nan")), ValueError, "lr must be at least 0 and below inf, but is nan"),
            (lambda: table(eps=-1.0), ValueError, "eps must be at least 0"),
            (lambda: table(init=float("inf")), ValueError, "init must be a finite number"),
            (lambda: table(journal=True), ValueError, "path is None; give a path"),
            (lambda: table(staleness=-1), ValueError, "staleness must be 0 or more"),
            (lambda: table(num_rows=-1), ValueError, "num_rows must be 0 or more"),
            (lambda: table(dim=0), ValueError, "dim must be 1 or more"),
            (lambda: table(num_rows=1 << 62), ValueError, "num_rows must be 281474976710656 or less"),
            (lambda: table(num_rows=1 << 40, dim=1 << 40), ValueError, "dim must be 256 or less"),
            (lambda: feature.fetch(torch.tensor([6])), IndexError, "0 .. 5, but holds 6"),
            (lambda: pickle.dumps(feature), TypeError, r"can't be pickled .* save\(\) it"),
            (
                lambda: gf.cpu_cached_feature(feature, 100),
                TypeError,
                "can't be cached or partitioned, because each step",
            ),
            (lambda: gf.gpu_cached_feature(feature, 100, "cpu"), TypeError, "can't be cached"),
            (lambda: feature.update(torch.ones(5, 2)), ValueError, "same length"),
            (lambda: feature.to("cuda"), NotImplementedError, r"in CPU memory, .* put copy_to\(\) after"),
            (feature.pin_memory_, NotImplementedError, "not on 'pinned'"),
        ]
    )
    assert feature.to("cpu") is feature
    feature.fetch(IDS).sum().backward()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    check_refused([(feature.step, NotImplementedError, "trained by one process, but there are several ranks")])


def test_an_empty_table_and_an_empty_mini_batch_can_be_trained() -> None:
    empty = table(num_rows=0)
    train(empty, torch.empty(0, dtype=torch.int64))
    feature = table()
    before = feature.read().clone()
    train(feature, torch.empty(0, dtype=torch.int64))
    assert_same(feature.read(), before)
    assert feature.num_steps == 1
