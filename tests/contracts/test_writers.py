"""Writers that are stopped leave what was there, say why, and leave no temporary files after the next start.

A limit on the size of files stops them in the middle of a write: it stands for a full disk, and its signal for a kill
or for Ctrl+C.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Partitioner, write_partition
from graphfeed.ingest import EdgeTable, Spec, build_dataset, write_tfrecords
from graphfeed.pyg import ClusterData, GraphSAINTNodeSampler
from graphfeed.storage import preprocess_ondisk_dataset
from tests.kinds import on_disk
from tests.kinds import partitioned_graphs as graphs
from tests.kinds.pyg_data import plain_data
from tests.stand_ins.forked import in_child

resource = pytest.importorskip("resource", reason="Windows has no limits of files")

IDS, PARTS = np.arange(3000), torch.arange(100) % 2


class Writer(NamedTuple):
    """A function that writes into a folder."""

    write: Callable[[Path], object]
    replaces: bool = False
    """Whether it replaces what it has written before."""
    prepare: Callable[[Path], object] = lambda folder: None
    ends: tuple[str, ...] = ("full", "killed", "interrupted")


def save_trace(folder: Path) -> None:
    loader = gf.DataLoader(gf.ItemSampler(gf.ItemSet(200, names="seeds"), batch_size=1), 0, seed=0)
    with loader.profile() as profile:
        list(loader)
    profile.to_chrome_trace(folder / "out.json")


def save_norms(folder: Path) -> None:
    GraphSAINTNodeSampler(plain_data(), 8, num_steps=2, sample_coverage=1, save_dir=str(folder), num_workers=0)


def save_partition(folder: Path) -> None:
    write_partition(folder / "out", graphs.plain(), PARTS, 2, graphs.codes_of(graphs.plain()))


def save_tables(folder: Path) -> None:
    edges = EdgeTable({"source": IDS, "destination": IDS[::-1]}, features={"x": "source"})
    build_dataset(Spec({"e": edges}), folder / "out")


WRITERS = {
    "a graph": Writer(lambda folder: graphs.plain().save(folder / "out"), replaces=True),
    "records": Writer(lambda folder: write_tfrecords(folder / "out", {"id": IDS}), replaces=True),
    "compressed records": Writer(lambda folder: write_tfrecords(folder / "out", {"id": IDS}, "gzip"), replaces=True),
    "a trace": Writer(save_trace, replaces=True),
    "clusters": Writer(lambda folder: ClusterData(plain_data(), 2, save_dir=str(folder), log=False)),
    "norms": Writer(save_norms),
    "a partition": Writer(save_partition),
    "a partition in PyG's layout": Writer(
        lambda folder: Partitioner(graphs.plain(), 2, folder / "out", method=PARTS).generate_partition(),
        ends=("full", "killed"),  # torch.save ends a process that is interrupted while it writes
    ),
    "a data set of tables": Writer(save_tables),
    "a processed data set": Writer(
        lambda folder: preprocess_ondisk_dataset(folder, force_preprocess=True),
        replaces=True,
        prepare=lambda folder: on_disk.write(folder, on_disk.untyped(folder)),
    ),
}


def interrupt(*_: object) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    raise KeyboardInterrupt


ENDS: dict[str, tuple[Any, str]] = {
    "full": (signal.SIG_IGN, "OSError: [Errno 27] "),
    "killed": (signal.SIG_DFL, f"ended with {-signal.SIGXFSZ}"),
    "interrupted": (interrupt, "KeyboardInterrupt"),
}
"""Handlers of the signal that a file is too large, and how the process then ends."""


def stopped(write: Callable[[Path], object], folder: Path, most: int, at_signal: Any) -> str:
    """Write in another process whose files may have `most` bytes; return its end."""

    def run() -> None:
        signal.signal(signal.SIGXFSZ, at_signal)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        write(folder)

    return in_child(run)


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, except locks."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.endswith("lock")}


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_that_is_stopped_leaves_what_was_there_and_the_next_one_removes_the_rest(
    tmp_path: Path, name: str
) -> None:
    write, replaces, prepare, ends = WRITERS[name]
    for folder in (whole := tmp_path / "whole", start := tmp_path / "start"):
        folder.mkdir()
        prepare(folder)
    before = files(start)
    write(whole)
    sizes = {file: len(content) for file, content in files(whole).items()}
    largest = max(size for file, size in sizes.items() if file not in before)
    for end in ends:
        at_signal, said = ENDS[end]
        for most in (64, largest * 7 // 8)[end != "full" :]:
            folder = tmp_path / f"{end} {most}"
            folder.mkdir()
            prepare(folder)
            for written in (before, *[None] * replaces):
                there = files(folder)
                told = stopped(write, folder, most, at_signal)
                assert told.startswith(said), (end, most)
                assert end != "full" or str(folder) in told
                left = files(folder)
                assert {file: left.get(file) for file in there} == there
                unfinished = {file for file in left.keys() - there.keys() if file.endswith(".part")}
                assert end == "killed" or left.keys() - (unfinished if end == "interrupted" else set()) == there.keys()
                assert written is None or not sizes.keys() - there.keys() & left.keys()
                write(folder)
                assert files(folder).keys() == sizes.keys()
