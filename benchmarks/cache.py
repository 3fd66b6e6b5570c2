"""Misses and memory of a cache, an eighth of the size of a feature on disk, for power-law ids."""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import graphfeed as gf
from benchmarks.memory import Memory, in_new_process, memory, memory_after
from benchmarks.scale import Scale, lacks_room
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

ROW_NUMBERS = 128
"""Number of float32 values per row: 512 bytes."""
ROW_BYTES = 4 * ROW_NUMBERS
CACHE_SHARE = 8
EXPONENT = 0.9
"""The row of rank `r` is requested in proportion to `r ** -EXPONENT`."""
SCATTER = 2_654_435_761
"""A prime that divides none of the numbers of rows here."""
BLOCK_ROWS = 1 << 16
MEMORY_GOAL = 1.3
"""Limit of the memory beyond imports and kernels, in sizes of the cache, for caches of about 1 GB or more."""
LEAST_BYTES = 990_000_000


class AlwaysOnDisk(gf.DiskBasedFeature):
    """A feature whose cache stays in use even if the system has the file in memory."""

    def is_in_page_cache(self) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True)
class Run:
    """Measurements of a cache."""

    rows_per_second: Times
    """Measured in the second half of the mini-batches; the first half fills the cache."""
    miss_rate: float
    loaded: Memory
    """Memory when all kernels were loaded, but no row."""
    memory: Memory
    """Memory at the end."""
    cache_bytes: int
    batch_bytes: int
    """Bytes of the rows of the largest mini-batch."""


def report(scale: Scale) -> Iterator[str]:
    """Yield one table."""
    size = scale.cached_rows * ROW_BYTES
    if lack := lacks_room(scale.cache, "cache", size):
        yield lack
        return
    with tempfile.TemporaryDirectory(dir=scale.cache) as folder:
        path = Path(folder) / "feat.npy"
        store_rows(path, scale.cached_rows)
        # This compiles the kernels, so that the processes below only load them.
        measure(path, replace(scale, cached_batches=2, cached_batch_rows=1_000))
        run = in_new_process(measure, path, scale)
    title = (
        f"cache: {scale.cached_batches} mini-batches of {scale.cached_batch_rows} power-law ids from a file of "
        f"{size / 1e6:.0f} MB through a cache of {size / CACHE_SHARE / 1e6:.0f} MB; ratio of memory to the "
        "cache's size"
    )
    yield render(title, [*parts_of(run), *rows_of(run)])


def parts_of(run: Run) -> list[Row]:
    """Return the memory of a process, part by part: its size before graphfeed, and the share of each step."""
    torch_alone, imported = memory_after("import torch"), memory_after("import graphfeed")
    loaded, end, most = run.loaded, run.memory, max(1, run.cache_bytes)
    parts = {
        "interpreter and torch": torch_alone.whole,
        "graphfeed, imported": imported.whole - torch_alone.whole,
        "LLVM, all kernels": loaded.whole - imported.whole,
        "the full cache": run.cache_bytes,
        "the largest mini-batch": run.batch_bytes,
        "the rest: ids, buffers": end.whole - loaded.whole - run.cache_bytes - run.batch_bytes,
        "before any row, mapped files": loaded.file,
        "before any row, its own": loaded.anonymous,
        "in the end, mapped files": end.file,
        "in the end, its own": end.anonymous,
    }
    return [Row(f"memory: {name}", "MB", Times([size / 1e6]), size / most) for name, size in parts.items()]


def rows_of(run: Run) -> list[Row]:
    """Return the rows read and the memory needed."""
    whole, beyond, most = run.memory.whole, run.memory.whole - run.loaded.whole, max(1, run.cache_bytes)
    bound = Goal(beyond / most, MEMORY_GOAL) if most > LEAST_BYTES else None
    return [
        Row("rows missed", "%", Times([100 * run.miss_rate])),
        Row("rows read", "k/s", run.rows_per_second.times(1e-3)),
        Row("memory, whole process", "MB", Times([whole / 1e6]), whole / most),
        Row("memory beyond the kernels", "MB", Times([beyond / 1e6]), beyond / most, bound),
    ]


def measure(path: Path, scale: Scale) -> Run:
    """Read all mini-batches through a new cache, after the pages of the file were dropped from memory."""
    gf.cpu_cached_feature(gf.DiskBasedFeature(path), 1 << 20).read(torch.arange(1_000))
    loaded = memory()
    forget_pages(path)
    feature = gf.cpu_cached_feature(AlwaysOnDisk(path), scale.cached_rows * ROW_BYTES // CACHE_SHARE)
    rates, largest = [], 0
    for number in range(scale.cached_batches):
        ids = draw_ids(scale.cached_rows, scale.cached_batch_rows, number)
        start = time.perf_counter()
        rows = feature.read(ids)
        rates.append(len(ids) / (time.perf_counter() - start))
        if not torch.equal(rows[:, :2].contiguous().view(torch.int64)[:, 0], ids):
            raise AssertionError(f"mini-batch {number} has rows of other ids")
        largest = max(largest, rows.nbytes)
        del rows
    late = Times(rates[len(rates) // 2 :])
    return Run(late, feature.miss_rate, loaded, memory(), feature.cache_size_in_bytes, largest)


def draw_ids(num_rows: int, count: int, seed: int) -> torch.Tensor:
    """Draw ids by a power law of their rank, without duplicates. Popular ids are spread over the file."""
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
    """Ask the system to drop the cached pages of a file, so that the first reads come from the disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
