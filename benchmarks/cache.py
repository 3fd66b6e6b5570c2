"""A feature on disk behind a cache of an eighth of its size, read by power-law ids: what each policy misses."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import graphfeed as gf
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times
from graphfeed.ops import POLICIES

ROW_NUMBERS = 128
"""float32 numbers in a row: 512 bytes."""
ROW_BYTES = 4 * ROW_NUMBERS
CACHE_SHARE = 8
EXPONENT = 0.9
"""The row of rank `r` is asked for in proportion to `r ** -EXPONENT`."""
SCATTER = 2_654_435_761
"""A prime that no number of rows here is a multiple of."""
BLOCK_ROWS = 1 << 16
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Run:
    """What one policy did."""

    rows_per_second: Times
    """Of the second half of the mini-batches; the first half fills the cache."""
    miss_rate: float
    resident_bytes: int


def report(scale: Scale) -> Iterator[str]:
    """Yield one table."""
    size = scale.cached_rows * ROW_BYTES
    scale.cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(scale.cache).free
    if free < 1.2 * size:
        yield f"cache: the file takes {size / 1e9:.1f} GB, but {scale.cache} has {free / 1e9:.1f} GB left\n"
        return
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        path = Path(folder) / "feat.npy"
        store_rows(path, scale.cached_rows)
        measure(path, "lru", replace(scale, cached_batches=2, cached_batch_rows=1_000))
        before = resident_bytes()
        runs = {policy: measure(path, policy, scale) for policy in ("lru", *(own for own in POLICIES if own != "lru"))}
    title = (
        f"cache: {scale.cached_batches} mini-batches of {scale.cached_batch_rows} power-law ids from a file of "
        f"{size / 1e6:.0f} MB through a cache of {size / CACHE_SHARE / 1e6:.0f} MB; ratio to LRU; "
        f"memory beyond the {before / 1e6:.0f} MB of the interpreter with its libraries"
    )
    yield render(title, [row for policy, run in runs.items() for row in rows_of(policy, run, runs["lru"], before)])


def rows_of(policy: str, run: Run, lru: Run, before: int) -> list[Row]:
    """Return the lines of one policy."""
    misses = run.miss_rate / lru.miss_rate
    claim = Goal(misses, 1.0) if policy in ("sieve", "s3-fifo") else None
    speed = run.rows_per_second
    resident = (run.resident_bytes - before) / 1e6
    return [
        Row(f"{policy}: rows missed", "%", Times([100 * run.miss_rate]), misses, claim),
        Row(f"{policy}: rows read", "k/s", speed.times(1e-3), speed.over(lru.rows_per_second)),
        Row(f"{policy}: resident memory", "MB", Times([resident])),
    ]


def measure(path: Path, policy: str, scale: Scale) -> Run:
    """Read all mini-batches through a new cache, the file's pages out of the system's memory at first."""
    forget_pages(path)
    feature = gf.cpu_cached_feature(gf.DiskBasedFeature(path), scale.cached_rows * ROW_BYTES // CACHE_SHARE, policy)
    rates = []
    for number in range(scale.cached_batches):
        ids = draw_ids(scale.cached_rows, scale.cached_batch_rows, number)
        start = time.perf_counter()
        rows = feature.read(ids)
        rates.append(len(ids) / (time.perf_counter() - start))
        if not torch.equal(rows[:, :2].contiguous().view(torch.int64)[:, 0], ids):
            raise AssertionError(f"{policy}: mini-batch {number} has rows of other ids")
    return Run(Times(rates[len(rates) // 2 :]), feature.miss_rate, resident_bytes())


def draw_ids(num_rows: int, count: int, seed: int) -> torch.Tensor:
    """Draw ids whose popularity falls with a power of their rank, each once; the popular ones lie scattered."""
    power = 1 - EXPONENT
    uniform = np.random.default_rng(seed).random(count)
    ranks = ((((num_rows + 1) ** power - 1) * uniform + 1) ** (1 / power)).astype(np.int64) - 1
    scattered = np.minimum(ranks, num_rows - 1) * SCATTER % num_rows
    _, first = np.unique(scattered, return_index=True)
    return torch.from_numpy(scattered[np.sort(first)])


def store_rows(path: Path, num_rows: int) -> None:
    """Write rows that begin with their id."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (num_rows, ROW_NUMBERS)}
        )
        block = np.random.default_rng(0).integers(1 << 40, size=(BLOCK_ROWS, ROW_NUMBERS // 2))
        for start in range(0, num_rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, num_rows - start)
            block[:count, 0] = np.arange(start, start + count)
            file.write(block[:count].data)
        file.flush()
        os.fsync(file.fileno())


def forget_pages(path: Path) -> None:
    """Ask the system to drop what it holds of a file, so that the first reads come from the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_bytes() -> int:
    """Return what this process holds of the machine's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
