from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.rows import BLOCK_BYTES, SPAN_BYTES
from graphfeed.storage.features import disk_rates
from graphfeed.storage.features.disk_rates import (
    FEWEST_BYTES,
    READS_AT_ONCE,
    SPANS,
    USUAL_GAP,
    count_spans,
    measure_gap,
)


@pytest.mark.parametrize(
    ("single", "span", "gap"),
    [
        (1.0, 8.0, SPAN_BYTES // 8),
        (1.0, 1e6, BLOCK_BYTES),  # one read after the other is no faster than anywhere
        (5.0, 1.0, SPAN_BYTES),
    ],
)
def test_a_gap_takes_as_long_as_another_read(
    monkeypatch: pytest.MonkeyPatch, single: float, span: float, gap: int
) -> None:
    now, reads = 0.0, []

    def read(ids: torch.Tensor) -> None:
        nonlocal now
        now += span if len(ids) == SPAN_BYTES // 4 else single * len(ids)
        reads.append(ids)

    monkeypatch.setattr(disk_rates, "time", SimpleNamespace(perf_counter=lambda: now))
    with ThreadPoolExecutor(1) as pool:
        assert measure_gap(read, FEWEST_BYTES // 4, 4, pool) == gap
    assert len(reads) == 2 * (READS_AT_ONCE + SPANS)
    assert all(ids[0] >= 0 and ids[-1] < FEWEST_BYTES // 4 and (ids.diff() >= 0).all() for ids in reads)


def test_the_slower_of_two_attempts_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 5.0, 5.0, 7.0])
    monkeypatch.setattr(disk_rates, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    with ThreadPoolExecutor(1) as pool:
        assert disk_rates.time_reads(len, [np.arange(3)], pool) == 2


@given(ids=st.lists(st.integers(0, 60), min_size=1).map(sorted), row_bytes=st.integers(1, 9), gap=st.integers(0, 40))
def test_spans_are_those_of_rows_near_to_each_other(ids: list[int], row_bytes: int, gap: int) -> None:
    spans = [[ids[0], ids[0]]]
    for row in ids[1:]:
        if (row - spans[-1][1] - 1) * row_bytes <= gap:
            spans[-1][1] = row
        else:
            spans.append([row, row])
    size = sum((last + 1 - first) * row_bytes for first, last in spans)
    assert count_spans(torch.tensor(ids), row_bytes, gap) == (len(spans), size)


def test_long_spans_take_several_reads_and_no_rows_none() -> None:
    assert count_spans(torch.arange(5 << 10), 1024, 0) == (5, 5 << 20)
    assert count_spans(torch.tensor([4]), 3 << 20, 0) == (1, 3 << 20)
    assert count_spans(torch.tensor([], dtype=torch.int64), 8, 0) == (0, 0)


def test_a_small_file_is_not_measured() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert measure_gap(lambda _: 1 / 0, FEWEST_BYTES - 1, 1, pool) == USUAL_GAP


def test_long_rows_are_not_measured_however_few() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert measure_gap(lambda _: 1 / 0, 1, 2 * FEWEST_BYTES, pool) == USUAL_GAP
