import multiprocessing
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from graphfeed.ingest import TFRecordDataLoader, write_tfrecords
from graphfeed.ingest.gigl.entity_processes import Entity, SharedFile, read_entities
from tests.ingest.entities import edges, export, nodes, shared_files
from tests.scripts import run


def pids() -> dict[str, int]:
    return {process.name: process.pid or 0 for process in multiprocessing.active_children()}


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_tensor_of_a_file_is_shared_and_the_file_has_no_name(tmp_path: Path, on_disk: bool) -> None:
    file = SharedFile(tmp_path if on_disk else None)
    os.write(file.descriptor, torch.arange(6).numpy().tobytes())
    tensor = file.tensor((2, 3), torch.int64)
    del file
    assert tensor.is_shared()  # type: ignore[no-untyped-call]
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs a list of the open files")
def test_a_file_is_closed_with_its_last_tensor() -> None:
    before = len(shared_files())
    for _ in range(3):
        file = SharedFile(None)
        os.write(file.descriptor, torch.arange(6).numpy().tobytes())
        tensor = file.tensor((6,), torch.int64)
        del file
        assert tensor.tolist() == [*range(6)]
        del tensor
    assert len(shared_files()) <= before


def test_a_file_goes_to_processes_that_are_being_started_alone() -> None:
    file = SharedFile(None)
    assert pickle.loads(pickle.dumps(file)).descriptor != file.descriptor


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a file that keeps a process waiting")
def test_a_process_that_is_killed_is_named_and_the_others_are_stopped(tmp_path: Path) -> None:
    infos = {}
    for name, columns in (("node", nodes(3)), ("edge", edges(3))):
        infos[name] = export(tmp_path / name, columns, 1)
        (tmp_path / name / "00-of-01.tfrecord").unlink()
        os.mkfifo(tmp_path / name / "00-of-01.tfrecord")

    def kill() -> None:
        while not pids().keys() >= {"graphfeed-node", "graphfeed-edge"}:
            time.sleep(0.05)
        os.kill(pids()["graphfeed-node"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    entities = [Entity(name, {None: info}) for name, info in infos.items()]
    with pytest.raises(
        ValueError, match="loading failed for node\nnode: its process was killed by SIGKILL; the machine"
    ):
        read_entities(entities, TFRecordDataLoader(0, 1), None, at_once=True)
    killer.join()
    assert pids().keys().isdisjoint({"graphfeed-node", "graphfeed-edge"})


def test_a_daemon_is_told_that_it_cannot_start_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(multiprocessing.current_process())["_config"], "daemon", True)
    with pytest.raises(RuntimeError, match=r"a process that is a daemon, .* can't start processes"):
        read_entities([Entity("node", {})], TFRecordDataLoader(0, 1), None, at_once=True)


@pytest.mark.slow
def test_an_error_has_its_entity_and_traceback_and_ends_what_would_come_next(tmp_path: Path) -> None:
    info = export(tmp_path / "edges", edges(3), 1, feature_dim=7)
    never = Entity("node", {})
    with pytest.raises(ValueError, match=r"(?s)loading failed for edge\nedge: Traceback.*feature_dim must be") as error:
        read_entities([Entity("edge", {None: info}), never], TFRecordDataLoader(0, 1), None, at_once=False)
    assert "node" not in str(error.value)
    assert never.files == {}


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    write_tfrecords(tmp_path / "0-of-1.tfrecord", {"id": torch.arange(2)})
    script = tmp_path / "script.py"
    script.write_text(
        "import graphfeed as gf\n"
        "info = gf.SerializedTFRecordInfo('.', [], {}, 0, 'id')\n"
        "metadata = gf.SerializedGraphMetadata(info, info)\n"
        "gf.load_torch_tensors_from_tf_record(gf.TFRecordDataLoader(0, 1), metadata, False)\n"
    )
    done = run(str(script), cwd=tmp_path)
    assert "put its main part under `if __name__ == '__main__':`" in done.stderr
