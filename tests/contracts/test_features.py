"""Every kind of feature returns the rows of an array, accepts new ones, pickles small, and reports invalid values."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graphfeed.storage import (
    CPUCachedFeature,
    DiskBasedFeature,
    Feature,
    GPUCachedFeature,
    TorchBasedFeature,
    cpu_cached_feature,
    gpu_cached_feature,
)  # fmt: skip
from tests.kinds.array_likes import AS
from tests.kinds.cache_models import OddRowsRemote, Staged
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.tensors import DTYPES

ROWS = torch.arange(400.0).reshape(100, 4)
METADATA = {"unit": "m"}
CACHE_BYTES = 1200
"""Less than all rows take."""
NEW = {
    "wider": torch.arange(1600.0).reshape(100, 16),
    "narrower": torch.arange(100.0)[:, None],
    "more dimensions": torch.arange(2400).reshape(100, 2, 3, 4),
    "another dtype": ROWS.double(),
    "as many bytes": ROWS.int(),
    "more rows": torch.arange(800.0).reshape(200, 4),
    "the same kind": ROWS + 1,
}


class Own(Feature):
    """Implements only the required methods."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        return self.rows if ids is None else self.rows[ids.long()]

    def size(self) -> torch.Size:
        return self.rows.shape[1:]

    def count(self) -> int:
        return len(self.rows)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        if ids is None:
            self.rows = value
        else:
            self.rows[ids.long()] = value


def in_memory(rows: torch.Tensor, folder: Path) -> TorchBasedFeature:
    return TorchBasedFeature(rows.clone(), METADATA)


def in_a_file(rows: torch.Tensor, folder: Path) -> DiskBasedFeature:
    path = folder / "feat.npy"
    path.unlink(missing_ok=True)
    np.save(path, rows.numpy())
    return DiskBasedFeature(path, METADATA, num_threads=2)


def with_policy(policy: str, rows: torch.Tensor, folder: Path) -> Feature:
    return cpu_cached_feature(in_memory(rows, folder), CACHE_BYTES, policy)


Make = Callable[[torch.Tensor, Path], Feature]
KINDS: dict[str, Make] = {
    "memory": in_memory,
    "file": in_a_file,
    "user's own": lambda rows, folder: cpu_cached_feature(Own(rows.clone()), CACHE_BYTES),
    "several stages": lambda rows, folder: cpu_cached_feature(Staged(rows.clone()), CACHE_BYTES),
    "remote": lambda rows, folder: cpu_cached_feature(OddRowsRemote(rows.clone()), CACHE_BYTES),
    "file behind cache": lambda rows, folder: cpu_cached_feature(in_a_file(rows, folder), CACHE_BYTES),
    "gpu's cache": lambda rows, folder: gpu_cached_feature(in_memory(rows, folder), CACHE_BYTES, "cpu"),
    "file behind two caches": lambda rows, folder: gpu_cached_feature(
        cpu_cached_feature(in_a_file(rows, folder), CACHE_BYTES), 500, "cpu"
    ),
    "sieve": partial(with_policy, "sieve"),
}
"""The GPU's cache is on the CPU here, whose kernels are equivalent."""
each_kind = pytest.mark.parametrize("kind", KINDS)


def waited_for(feature: Feature, ids: torch.Tensor) -> torch.Tensor:
    """Read through all stages."""
    stages = list(feature.read_async(ids))
    assert len(stages) == feature.read_async_num_stages(torch.device("cpu"))
    rows = stages[-1].wait()
    assert stages[-1].wait() is rows, "they are read once"
    return rows


def check(feature: Feature, rows: torch.Tensor) -> None:
    """Read some rows twice in each way, then all rows, and check their properties."""
    ids = torch.tensor([7, 99, 7, 0])
    for _ in range(2):
        assert_same(feature.read(ids), rows[ids])
        assert_same(waited_for(feature, ids), rows[ids])
    assert_same(feature.read(), rows)
    assert (feature.count(), feature.size(), feature.dtype) == (len(rows), rows.shape[1:], rows.dtype)


@each_kind
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 60),
    shape=st.sampled_from([(4,), (1,), (2, 3), (0,), (67,)]),
    dtype=st.sampled_from(DTYPES),
    ids_dtype=st.sampled_from([torch.int32, torch.int64]),
    batches=st.lists(st.lists(st.integers(0, 10**6), max_size=100), max_size=6),
)
def test_rows_are_those_of_the_array_in_the_order_asked_for(
    kind: str,
    count: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    ids_dtype: torch.dtype,
    batches: list[list[int]],
    tmp_path: Path,
) -> None:
    assume(dtype != torch.bfloat16 or "file" not in kind)  # NumPy has none
    rows = (torch.arange(count * torch.Size(shape).numel()) % 119).to(dtype).reshape(count, *shape)
    feature = KINDS[kind](rows, tmp_path)
    assert (feature.count(), feature.size(), feature.dtype) == (count, torch.Size(shape), dtype)
    assert_same(feature.read(), rows)
    for batch in batches:
        ids = torch.tensor([number % count for number in batch if count], dtype=ids_dtype)
        assert_same(feature.read(ids), rows[ids.long()])
        assert_same(waited_for(feature, ids), rows[ids.long()])


def test_each_kind_tells_what_it_is_and_where_it_may_be_read(tmp_path: Path) -> None:
    for kind, make in KINDS.items():
        feature = make(ROWS, tmp_path)
        plain = kind in ("user's own", "several stages", "remote")
        assert feature.metadata() == ({} if plain else METADATA), kind
        assert feature.may_read_in_threads() == (kind in ("memory", "several stages", "remote", "sieve")), kind
        assert not feature.is_pinned(), kind


def test_a_feature_of_ones_own_needs_four_methods() -> None:
    own, ids = Own(ROWS.clone()), torch.tensor([7, 99, 7])
    assert_same(waited_for(own, ids), ROWS[ids])
    assert own.dtype is None
    assert own.metadata() == {}
    assert not own.may_read_in_threads()
    assert not own.is_pinned()


def test_ids_may_be_array_likes(tmp_path: Path) -> None:
    ids = torch.tensor([3, 0, 3])
    for kind, make in KINDS.items():
        feature = make(ROWS, tmp_path)
        for name, convert in AS.items():
            given: Any = convert(ids)
            assert torch.equal(feature.read(given), ROWS[ids]), (kind, name)
            assert torch.equal(waited_for(feature, given), ROWS[ids]), (kind, name)


def test_threads_may_read_it_at_once(tmp_path: Path) -> None:
    rows, start = torch.arange(2000.0).reshape(500, 4), threading.Barrier(4)

    def read(feature: Feature, seed: int) -> bool:
        draws = torch.Generator().manual_seed(seed)
        start.wait(60)
        parts = [(500 * torch.rand(200, generator=draws) ** 2).long() for _ in range(10)]
        pending = [[*feature.read_async(ids)][-1] for ids in parts]
        same = [torch.equal(feature.read(ids), rows[ids]) for ids in parts]
        return all(same + [torch.equal(own.wait(), rows[ids]) for own, ids in zip(pending, parts, strict=True)])

    with ThreadPoolExecutor(4) as pool:
        for kind, make in KINDS.items():
            assert all(pool.map(partial(read, make(rows, tmp_path)), range(4))), kind


def refusals(feature: Feature) -> list[Refusal]:
    """Return arguments that a feature of 100 rows of 4 numbers rejects."""
    one = torch.tensor([0])
    return [
        (lambda: feature.read(torch.tensor([0, 100])), IndexError, "index must be in 0 .. 99, but holds 100"),
        (lambda: feature.read(torch.tensor([-1])), IndexError, "index must be in 0 .. 99, but holds -1"),
        (lambda: waited_for(feature, torch.tensor([100])), IndexError, "index must be in 0 .. 99"),
        (lambda: feature.read(torch.tensor([0.5])), TypeError, "must be torch.int32 or torch.int64"),
        (lambda: feature.read(torch.tensor([[0]])), ValueError, "must have 1 dimension"),
        (lambda: feature.update(ROWS[:2], one), ValueError, "must have|same length"),
        (lambda: feature.update(ROWS[:1, :2], one), ValueError, "rows of value must"),
        (lambda: feature.update(ROWS[:1], torch.tensor([100])), IndexError, "must be in 0 .. 99|0 or more"),
        (lambda: feature.update(ROWS[:, 0]), ValueError, "must be greater than 1, but got 1 dimension"),
        (lambda: feature.update((ROWS * 1).requires_grad_()), ValueError, r"requires gradients, .*; pass its .detach"),
    ]


def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path) -> None:
    for kind, make in KINDS.items():
        feature = make(ROWS, tmp_path)
        all_rows, one_row = partial(feature.update, ROWS), partial(feature.update, ROWS[:1], torch.tensor([0]))
        table = refusals(feature)
        if kind == "file":
            table = [*table[:5], (all_rows, NotImplementedError, "only read; write the new rows to a")]
        elif "file" in kind:
            table[5] = table[7] = (one_row, NotImplementedError, "is only read")
        elif kind == "user's own":
            del table[5], table[6]  # the feature itself is queried, and accepts them
        check_refused(table)
        check(feature, ROWS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "file"])
def test_rows_are_replaced_one_by_one_or_all_by_others_of_any_shape_dtype_and_number(kind: str, tmp_path: Path) -> None:
    if "file" not in kind:
        feature, rows = KINDS[kind](ROWS, tmp_path), ROWS.clone()
        feature.read(torch.tensor([1, 5]))
        for value, ids in ((-1.0, [5, 6]), (-2.0, [6, 1])):
            feature.update(torch.full((2, 4), value), torch.tensor(ids))
            rows[ids] = value
            for _ in range(2):
                assert_same(feature.read(torch.tensor([1, 5, 6, 7])), rows[[1, 5, 6, 7]])
        check(feature, rows)
    for name, new in NEW.items():
        feature = KINDS[kind](ROWS, tmp_path)
        check(feature, ROWS)
        feature.update(new)
        if isinstance(feature, CPUCachedFeature | GPUCachedFeature) and name != "the same kind":
            assert feature.miss_rate == 0, name
        check(feature, new)
        if isinstance(feature, CPUCachedFeature | GPUCachedFeature):
            assert 0 < feature.miss_rate < 1, name
            assert feature.cache_size_in_bytes <= CACHE_BYTES, name
        feature.update(new[:1] * 0, torch.tensor([7]))
        assert feature.read(torch.tensor([7, 0, 7]))[[0, 2]].count_nonzero() == 0, name
        feature.update(ROWS)
        check(feature, ROWS)
    if "file" in kind:
        assert np.array_equal(np.load(tmp_path / "feat.npy"), ROWS), "the file is unchanged"
