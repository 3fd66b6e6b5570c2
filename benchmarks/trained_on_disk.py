"""A table that is trained and four times as large as the memory for it, relative to the disk's rate."""

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from mmap import mmap
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import torch

import graphfeed as gf
from benchmarks.larger_than_memory import DEPTH, PAGE, PARTS, PROCESS_BYTES, memory_group, read_rate
from benchmarks.scale import Scale, lacks_room
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

ROWS, DIM, FACTOR = 8_000_000, 128, 4
"""Rows of 512 bytes: 4 GB, and the memory for them is a quarter."""
BATCH, MINIBATCHES = 4096, 300
WORKERS = 4
CHUNK = 1 << 16
"""Number of rows that are compared at once."""
GOAL = 0.6
STALENESS, TRAINING_SECONDS = 2, 0.1


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of rows per second, beside those of a disk whose random pages are read and written."""
    rows = int(ROWS * scale.out_of_core)
    size = 4 * DIM * rows
    if lack := lacks_room(scale.cache, "trained_on_disk", 3 * size):
        yield lack
        return
    with tempfile.TemporaryDirectory(dir=scale.cache) as name:
        path = Path(name, "rows.npy")
        with memory_group(PROCESS_BYTES + size // FACTOR) as group:
            on_disk, digest = run(rows, path, group)
            beside = {
                staleness: run(rows, Path(name, f"rows_{staleness}.npy"), group, staleness, TRAINING_SECONDS)[0]
                for staleness in (0, STALENESS)
            }
        reads = Times([read_rate(path, PAGE, part) / 1e3 for part in range(PARTS)])
        disk = Times([pages_per_second(path, part) / 1e3 for part in range(PARTS)])
    in_memory, other = run(rows, None, None)
    if digest != other:
        raise AssertionError("the table in a file differs from the one in memory")
    bound = "" if group else "; unbounded memory, as no control group can be made"
    share = on_disk.median / disk.median
    yield render(
        f"trained_on_disk: {size / 1e9:.3g} GB of rows, {FACTOR} times the memory{bound}; {batch_of(rows)} random rows "
        "per mini-batch, row-wise Adagrad; ratio to the disk",
        [
            Row(f"disk: random pages of {PAGE >> 10} KiB, read and written, {DEPTH} at a time", "k/s", disk, 1.0),
            Row("disk: the same, only read", "k/s", reads, reads.median / disk.median),
            Row("TrainableFeature(path=): rows", "k/s", on_disk, share, Goal(share, GOAL, at_least=True)),
            Row("in memory, with the same result: rows", "k/s", in_memory, in_memory.median / disk.median),
        ],
    )
    gain = beside[STALENESS].median / beside[0].median
    yield render(
        f"trained_on_disk: the same, with {TRAINING_SECONDS * 1e3:g} ms per mini-batch, in which a GPU trains a model "
        "(a pause); ratio to staleness=0",
        [
            Row("staleness=0: rows", "k/s", beside[0], 1.0),
            Row(f"staleness={STALENESS}: rows", "k/s", beside[STALENESS], gain, Goal(gain, 1.15, at_least=True)),
        ],
    )


def batch_of(rows: int) -> int:
    return min(BATCH, rows // PARTS // 3)


def run(rows: int, path: Path | None, group: Path | None, staleness: int = 0, pause: float = 0.0) -> tuple[Times, str]:
    """Train in a separate process; return the thousands of rows per second in some parts, and a digest of the table."""
    here, there = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=train, args=(there, rows, path, group, staleness, pause))
    process.start()
    there.close()
    try:
        with here:
            times, digest = here.recv()
    finally:
        process.join()
    # The first third fills the memory.
    begin, last = len(times) // 3, len(times) - 1
    bounds = [begin + (last - begin) * part // PARTS for part in range(PARTS + 1)]
    rates = [batch_of(rows) * (high - low) / (times[high] - times[low]) / 1e3 for low, high in pairwise(bounds)]
    return Times(rates), digest


def train(out: Connection, rows: int, path: Path | None, group: Path | None, staleness: int, pause: float) -> None:
    """Send the time of each step, and a digest of the table after all of them."""
    if group is not None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    table = gf.TrainableFeature(rows, DIM, "adagrad", 0.1, seed=0, path=path, staleness=staleness)
    store = gf.BasicFeatureStore({("node", None, "x"): table})
    items = gf.ItemSampler(gf.ItemSet(rows, names="seeds"), batch_of(rows), shuffle=True, drop_last=True)
    gradients, times = torch.rand(batch_of(rows), DIM, generator=torch.Generator().manual_seed(0)), []
    with gf.DataLoader(items.fetch_feature(store, ["x"]), num_workers=WORKERS, seed=0) as loader:
        for minibatch in islice(loader, MINIBATCHES):
            minibatch.node_features["x"].grad = gradients
            time.sleep(pause)
            table.step()
            times.append(time.perf_counter())
    digest = hashlib.sha256()
    for first in range(0, rows, CHUNK):
        digest.update(table.read(torch.arange(first, min(first + CHUNK, rows))).numpy().data)
    out.send((times, digest.hexdigest()))


def pages_per_second(path: Path, part: int, seconds: float = 2.0) -> float:
    """Return how many random pages `DEPTH` threads read and write per second, past the page cache."""
    count = path.stat().st_size // PAGE
    descriptor, end = os.open(path, os.O_RDWR | getattr(os, "O_DIRECT", 0)), time.perf_counter() + seconds

    def work(thread: int) -> int:
        chance, page, done = Random(DEPTH * part + thread), mmap(-1, PAGE), 0
        while time.perf_counter() < end:
            place = PAGE * chance.randrange(count)
            os.preadv(descriptor, [page], place)
            os.pwrite(descriptor, page, place)
            done += 1
        return done

    try:
        with ThreadPoolExecutor(DEPTH) as threads:
            return sum(threads.map(work, range(DEPTH))) / seconds
    finally:
        os.close(descriptor)
