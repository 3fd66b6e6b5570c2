from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from graphfeed.ops.rows import BLOCK_BYTES, SPAN_BYTES
from graphfeed.storage.features import disk_rates
from graphfeed.storage.features.disk_rates import FEWEST_BYTES, SINGLE_READS, SPANS, USUAL_GAP, measure_gap


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

    def read(start: int, size: int) -> None:
        nonlocal now
        now += single if size == BLOCK_BYTES else span
        reads.append((start, size))

    monkeypatch.setattr(disk_rates, "time", SimpleNamespace(perf_counter=lambda: now))
    with ThreadPoolExecutor(1) as pool:
        assert measure_gap(read, FEWEST_BYTES, pool) == gap
    assert len(reads) == SINGLE_READS + SPANS
    assert all(start % BLOCK_BYTES == 0 and start + size <= FEWEST_BYTES for start, size in reads)


def test_a_small_file_is_not_measured() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert measure_gap(lambda *_: 1 / 0, FEWEST_BYTES - 1, pool) == USUAL_GAP
