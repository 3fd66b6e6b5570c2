"""Files that threads read: in their order, a few at a time."""

import threading
from pathlib import Path

import pytest
import torch

from graphfeed.ingest import read_tfrecords, write_tfrecords
from graphfeed.ingest import tfrecord_reader as reader
from graphfeed.ingest.file_threads import own_cores, read_in_threads, threads_for
from graphfeed.loader.executors.process_executor import available_cores

PATHS = [Path(str(number)) for number in range(40)]


def shards(folder: Path, count: int) -> list[Path]:
    """Write files of four records each, every third one of none."""
    files = [folder / f"{number:02}.tfrecord" for number in range(count)]
    for number, file in enumerate(files):
        ids = torch.arange(number * 4, number * 4 + 4 * (number % 3 > 0))
        write_tfrecords(file, {"id": ids, "pair": torch.stack([ids, -ids], 1)})
    return files


def test_results_come_in_order_and_few_files_are_read_ahead() -> None:
    gate, begun = threading.Event(), []

    def read(path: Path) -> str:
        begun.append(path)
        assert gate.wait(30)
        return str(path)

    found = read_in_threads(PATHS, read, threads=3)
    threading.Timer(0.2, gate.set).start()
    assert next(found) == "0"
    assert len(begun) <= 4
    assert list(found) == [str(path) for path in PATHS[1:]]


def test_the_first_of_several_failures_is_the_one_in_order_and_no_thread_stays() -> None:
    late = threading.Event()

    def read(path: Path) -> str:
        if path.name == "5":
            late.set()
            raise ValueError("5")
        if path.name == "4":
            assert late.wait(30)
            raise ValueError("4")
        return path.name

    found = read_in_threads(PATHS, read, threads=3)
    assert [next(found) for _ in range(4)] == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="4"):
        next(found)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("graphfeed-read")]


def test_threads_read_what_takes_little_memory_beside_the_result(tmp_path: Path) -> None:
    sizes = {"even": [10] * 32, "few": [10] * 10, "one large": [10] * 32 + [100], "empty": [0] * 32}
    found = {}
    for name, own in sizes.items():
        files = [tmp_path / f"{name} {number}" for number in range(len(own))]
        for file, size in zip(files, own, strict=True):
            file.write_bytes(bytes(size))
        found[name] = threads_for(files, most=8)
    assert found == {"even": 3, "few": 1, "one large": 1, "empty": 1}
    assert threads_for([*files[:1], tmp_path / "x.gz"], most=8) == threads_for([], most=8) == 1


def test_cores_are_shared_with_other_processes_and_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert own_cores() == available_cores()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(available_cores()))
    assert own_cores() == own_cores(processes=100) == 1


@pytest.mark.parametrize("threads", [2, 5])
def test_rows_are_the_same_with_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    files = shards(tmp_path, 12)
    alone = read_tfrecords(files)
    monkeypatch.setattr(reader, "threads_for", lambda *_: threads)
    monkeypatch.setattr(reader, "BATCH_ROWS", 3)
    assert torch.equal(alone["id"], torch.tensor([k for k in range(48) if k // 4 % 3]))
    for name, values in read_tfrecords(files).items():
        assert torch.equal(values, alone[name])
    for number in (7, 4):
        files[number].write_bytes(files[number].read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"04\.tfrecord: record 3, at byte \d+: the file ends inside of it"):
        read_tfrecords(files)
    with pytest.raises(FileNotFoundError):
        read_tfrecords([*files, tmp_path / "none"])
