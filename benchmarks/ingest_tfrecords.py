"""TFRecords into tensors: graphfeed, packages that need no TensorFlow, and the same bytes read and copied."""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.limits import Copy
from benchmarks.memory import in_new_process, memory
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Case, Times, in_turn, one_core
from graphfeed.ingest import read_tfrecords, write_tfrecords

TENSORFLOW = "TensorFlow"
TIMES_TENSORFLOW = 8
GOAL_MICROSECONDS = 0.2
"""Goal if TensorFlow is not installed. It needed 1.3 to 1.6 us for such a record."""
SCALING = 0.9
"""Goal for two processes, relative to the gain of two bare readers over one."""
PEAK = 1.2
KIND = {"src": "int", "dst": "int", "w": "float"}
OURS = "graphfeed"
FILES = 48
"""Number of files: the records of an export are in many files."""


def tables(scale: Scale) -> Iterator[str]:
    """Yield a table of one core, one of two processes, and a line about memory."""
    records = 1_000_000 if scale.processes else 5_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.tfrecord"
        ids = torch.randint(0, 1_000_000, (2, records))
        write_tfrecords(path, {"src": ids[0], "dst": ids[1], "w": torch.rand(records, 4)})
        size = path.stat().st_size
        title = f"ingest: {records:,} TFRecords of {size / records:.0f} bytes, two integers and four floats"
        yield render(f"{title}, one core; ratio to {OURS}", one_core_rows(path, records, scale.repeats))
        if scale.processes:
            yield render(f"{title}, two processes; ratio to one", two_processes(path, records, scale.repeats))
        files = [Path(folder) / f"{number}-of-{FILES}.tfrecord" for number in range(FILES)]
        for file, part in zip(files, ids.tensor_split(FILES, dim=1), strict=True):
            write_tfrecords(file, {"src": part[0], "dst": part[1], "w": torch.rand(part.shape[1], 4)})
        of_one, of_many = (in_new_process(measure_peak, own) for own in ([path], files))
        yield f"peak memory, in tensors: {of_one:.2f} of a file, {of_many:.2f} of {FILES} files (goal <= {PEAK})\n"


def one_core_rows(path: Path, records: int, repeats: int) -> list[Row]:
    """Return the time per record of each reader."""
    size = path.stat().st_size
    copy = Copy(size)
    cases: dict[str, Case] = {
        OURS: lambda _: read_tfrecords(path),
        f"{OURS}, verify=False": lambda _: read_tfrecords(path, verify=False),
        "reading the file": lambda _: path.read_bytes(),
        "memcpy of the file": lambda _: copy.run(),
    }
    # One of them: both register the same messages, so that a process can load only one.
    for name, make in {TENSORFLOW: by_tensorflow, "package tfrecord": by_tfrecord}.items():
        with suppress(ImportError):
            cases[name] = make(path)
            break
    with one_core():
        found = {name: times.times(1e6 / records) for name, times in in_turn(cases, repeats).items()}
    goal = Goal(found[OURS].median, GOAL_MICROSECONDS)
    if TENSORFLOW in found:
        goal = Goal(found[TENSORFLOW].over(found[OURS]), TIMES_TENSORFLOW, at_least=True)
    return [
        Row(name, "us / record", times, times.over(found[OURS]), goal if name == OURS else None)
        for name, times in found.items()
    ]


def by_tfrecord(path: Path) -> Case:
    """Return a function that reads a file with the package tfrecord."""
    reader: Callable[..., Any] = import_module("tfrecord").tfrecord_loader
    return lambda _: sum(1 for _ in reader(str(path), None, KIND))


def by_tensorflow(path: Path) -> Case:
    """Return a function that reads a file with TensorFlow into arrays, batch by batch."""
    tf = import_module("tensorflow")
    shapes = {"src": ([], tf.int64), "dst": ([], tf.int64), "w": ([4], tf.float32)}
    spec = {name: tf.io.FixedLenFeature(*own) for name, own in shapes.items()}

    def read_all(_: int) -> object:
        batches = tf.data.TFRecordDataset(str(path)).batch(10_000).map(lambda rows: tf.io.parse_example(rows, spec))
        parts = [{name: values.numpy() for name, values in batch.items()} for batch in batches]
        return {name: np.concatenate([part[name] for part in parts]) for name in spec}

    return read_all


def read(path: Path) -> int:
    """Read a file as a user would."""
    return len(read_tfrecords(path)["src"])


def read_bare(path: Path) -> int:
    """Read the bytes of a file, and copy them."""
    return len(bytearray(path.read_bytes()))


def two_processes(path: Path, records: int, repeats: int) -> list[Row]:
    """Return the rates of one process and of two processes with a file each."""
    rates: dict[str, list[Times]] = {}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, reader in ((OURS, read), ("bare readers", read_bare)):
            pool.map(reader, [path] * 4, chunksize=1)
            found: list[list[float]] = [[], []]
            for _ in range(repeats):
                for count, of_count in enumerate(found, 1):
                    start = time.perf_counter()
                    pool.map(reader, [path] * count, chunksize=1)
                    of_count.append(count * records / (time.perf_counter() - start) / 1e6)
            rates[name] = [Times(values) for values in found]
    scaling = {name: two.over(one) for name, (one, two) in rates.items()}
    goal = Goal(scaling[OURS] / scaling["bare readers"], SCALING, at_least=True)
    rows = []
    for name, (one, two) in rates.items():
        rows.append(Row(f"{name}, one process", "M records / s", one))
        rows.append(Row(f"{name}, two processes", "M records / s", two, scaling[name], goal if name == OURS else None))
    return rows


def measure_peak(files: list[Path]) -> float:
    """Return the growth of memory while files are read, as a multiple of their tensors."""
    small = files[0].with_name("small")
    write_tfrecords(small, {"src": [0], "dst": [0], "w": torch.zeros(1, 4)})
    read_tfrecords(small)
    before = memory().whole
    found = read_tfrecords(files)
    grown = memory().whole - before
    return grown / sum(values.nbytes for values in found.values())
