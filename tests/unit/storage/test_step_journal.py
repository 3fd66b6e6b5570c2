"""A table with a journal is that of the last complete step, wherever its process is killed."""

import errno
import importlib
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed import TrainableFeature
from graphfeed.storage.features.trained_files import new_table
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

ROWS, DIM, STEPS = 50, 3, 4
OPTIMIZERS = ("sgd", "adagrad", "adam")


def table(path: Path | None, optimizer: Any = "adam", **options: Any) -> TrainableFeature:
    given = {"lr": 0.2, "seed": 3, "path": path, "journal": path is not None, **options}
    return TrainableFeature(ROWS, DIM, optimizer, **given)


def step(feature: TrainableFeature, number: int) -> None:
    ids = torch.arange(7) * (number + 3) % 20
    feature.lr = 0.2 / (number + 1)
    feature.fetch(ids).square().sum().backward()  # type: ignore[no-untyped-call]
    feature.step()


def expected(optimizer: str, steps: int) -> dict[str, Any]:
    feature = table(None, optimizer)
    for number in range(steps):
        step(feature, number)
    return without_rate(feature)


def without_rate(feature: TrainableFeature) -> dict[str, Any]:
    """Return the state of a table, without the learning rate, which is set before a step."""
    return {name: value for name, value in feature.state_dict().items() if name != "lr"}


POINTS = (
    ("before the journal", "step_journal.write_all", 1, False),
    ("in the middle of the journal", "step_journal.write_all", 2, False),
    ("before the step", "trainable_feature.train_rows", 0, False),
    ("in the middle of the step", "trainable_feature.train_rows", 0, True),
)
"""Where a process is killed: a function, how many of its calls in the step come before, and if half of it is done."""


def be_killed(path: Path, optimizer: str, place: str, call: int, half: bool) -> None:
    """Train, and end in the last step by SIGKILL."""
    feature = table(path, optimizer)
    for number in range(STEPS - 1):
        step(feature, number)
    module_name, name = place.split(".")
    module, calls = importlib.import_module(f"graphfeed.storage.features.{module_name}"), []
    function = getattr(module, name)

    def watched(*arguments: Any) -> Any:
        calls.append(name)
        if len(calls) > call:
            if half:
                rows, state, ids, gradients, rule = arguments
                function(rows, state, ids[:3], gradients[:3], rule)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    setattr(module, name, watched)
    step(feature, STEPS - 1)


KILLED = """
import os, sys
from pathlib import Path
from tests.unit.storage.test_step_journal import OPTIMIZERS, POINTS, be_killed

for number, (_, *point) in enumerate(POINTS):
    for optimizer in OPTIMIZERS:
        if not (child := os.fork()):
            be_killed(Path(sys.argv[1], f"{optimizer}_{number}.npy"), optimizer, *point)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_killed_process_leaves_the_table_of_the_last_complete_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * len(POINTS) * len(OPTIMIZERS)
    for (number, (_, _, _, half)), optimizer in product(enumerate(POINTS), OPTIMIZERS):
        path, before = tmp_path / f"{optimizer}_{number}.npy", expected(optimizer, STEPS - 1)
        assert np.array_equal(np.load(path), before["rows"].numpy()) != half
        # The next process continues, and so does one after that.
        feature = table(path, optimizer, seed=8)
        assert_same(without_rate(feature), before)
        step(feature, STEPS - 1)
        del feature
        assert_same(without_rate(table(path, optimizer)), expected(optimizer, STEPS))
        assert np.array_equal(np.load(path), expected(optimizer, STEPS)["rows"].numpy())


AT_ANY_TIME = """
import sys
from itertools import product
from pathlib import Path
from tests.unit.storage.test_step_journal import step, table

feature = table(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(10**9):
    step(feature, number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [1, 4, 7, 11, 16, 50])
def test_a_process_may_be_killed_at_any_time(milliseconds: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with subprocess.Popen([sys.executable, "-c", AT_ANY_TIME, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(milliseconds / 1000)
        process.kill()
    feature = table(path)
    assert_same(without_rate(feature), expected("adam", feature.num_steps))


def fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_before_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feature = table(tmp_path / "rows.npy")
    step(feature, 0)
    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.storage.features.step_journal.write_all", fail)
        check_refused([(lambda: step(feature, 1), OSError, "No space left")])
        check_refused([(lambda: feature.update(torch.ones(ROWS, DIM)), OSError, "No space left")])
    assert_same(without_rate(feature), expected("adam", 1))
    assert_same(without_rate(table(tmp_path / "rows.npy")), expected("adam", 1))


def test_wrong_steps_and_updates_leave_the_journal_usable(tmp_path: Path) -> None:
    feature = table(tmp_path / "rows.npy")
    step(feature, 0)
    check_refused(
        [
            (lambda: feature.update(torch.ones(2, DIM), torch.tensor([1, ROWS])), IndexError, "0 .. 49"),
            (lambda: feature.update(torch.ones(1, DIM + 1), torch.tensor([1])), ValueError, "must have shape"),
        ]
    )
    assert_same(without_rate(table(tmp_path / "rows.npy")), expected("adam", 1))
    feature.update(torch.ones(2, DIM), torch.tensor([1, 4]))
    assert table(tmp_path / "rows.npy").read(torch.tensor([1, 4])).tolist() == [[1.0] * DIM] * 2
    other = table(None)
    other.load_state_dict(feature.state_dict())
    feature.save(tmp_path / "checkpoint")
    step(feature, 1)
    feature.load(tmp_path / "checkpoint")
    assert_same(table(tmp_path / "rows.npy").state_dict(), other.state_dict())


def test_files_of_another_table_and_damaged_ones_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    feature = table(path)
    step(feature, 0)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert sorted(files) == ["rows.journal", "rows.npy", "rows.state.npy"]
    check_refused(
        [
            (lambda: table(path, journal=False), FileExistsError, "rows.npy exists; delete it"),
            (lambda: table(path, "sgd"), ValueError, "optimizer of the state is adam, but this table has sgd"),
            (
                lambda: table(path, "adagrad"),
                ValueError,
                r"rows.state.npy has float32\[50, 8\], but this table float32",
            ),
            (lambda: table(path, dtype=torch.float64), ValueError, r"rows.npy has float32\[50, 3\], but this table"),
        ]
    )
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files
    journal, good = tmp_path / "rows.journal", files["rows.journal"]
    for content, words in (
        (b"", "Expecting value"),
        (b"[]".ljust(512), ""),
        (good.replace(b'"to_restore": 0', b'"to_restore": 99'), "it is too short"),
        (good.replace(b'"to_restore": 0', b'"to_restore": -2'), "negative dimension"),
        (good.replace(b'"to_restore": 0', b'"to_restore": -1'), "replaced the table; delete the files of the table"),
    ):
        journal.write_bytes(content)
        check_refused([(lambda: table(path), ValueError, f"rows.journal can't be used: .*{words}")])
    journal.write_bytes(good)
    assert_same(without_rate(table(path)), expected("adam", 1))
    (tmp_path / "rows.state.npy").unlink()
    check_refused([(lambda: table(path), FileNotFoundError, "rows.state.npy is missing")])
    (tmp_path / "rows.state.npy").write_bytes(files["rows.state.npy"])
    path.unlink()
    check_refused([(lambda: table(path), FileExistsError, "rows.state.npy exists")])
    path.write_bytes(files["rows.npy"])
    journal.unlink()
    check_refused([(lambda: table(path), FileExistsError, "rows.npy exists")])


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_two_processes_do_not_train_one_table(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with subprocess.Popen([sys.executable, "-c", AT_ANY_TIME, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        check_refused([(lambda: table(path), RuntimeError, "rows.journal is that of a table of another process")])
        process.kill()
    first = table(path).num_steps
    step(table(path), 0)
    assert table(path).num_steps == first + 1


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_two_processes_that_create_a_table_at_once_leave_the_files_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ended = tmp_path / "rows.npy", list[int]()

    def create_meanwhile(*given: Any) -> Any:
        if not ended:
            command = [sys.executable, "-c", AT_ANY_TIME, str(path)]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
                try:
                    ended.append(other.wait(30))
                finally:
                    other.kill()
        return new_table(*given)

    monkeypatch.setattr("graphfeed.storage.features.trainable_feature.new_table", create_meanwhile)
    feature = table(path)
    assert ended == [1]
    step(feature, 0)
    assert_same(without_rate(table(path)), expected("adam", 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    feature, (ended, end), (began, begin) = table(path), os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        os.write(begin, b"x")
        os.read(ended, 1)
        os._exit(0)
    try:
        os.read(began, 1)
        step(feature, 0)
        del feature
        assert table(path).num_steps == 1
    finally:
        os.write(end, b"x")
        os.waitpid(child, 0)
        for descriptor in (ended, end, began, begin):
            os.close(descriptor)


def test_after_ctrl_c_a_table_can_be_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.storage.features.trainable_feature.draw_table", interrupt)
        with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps the last error
            table(tmp_path / "rows.npy")
    assert not [*tmp_path.iterdir()]
    step(table(tmp_path / "rows.npy"), 0)
    assert_same(without_rate(table(tmp_path / "rows.npy")), expected("adam", 1))
    assert kept.traceback


def test_a_table_can_load_its_own_state(tmp_path: Path) -> None:
    feature = table(tmp_path / "rows.npy")
    step(feature, 0)
    feature.load_state_dict(feature.state_dict())
    assert_same(without_rate(feature), expected("adam", 1))
    assert_same(without_rate(table(tmp_path / "rows.npy")), expected("adam", 1))


def test_a_table_without_rows_needs_no_journal(tmp_path: Path) -> None:
    for _ in range(2):
        TrainableFeature(0, DIM, path=tmp_path / "rows.npy", journal=True)
    assert not [*tmp_path.iterdir()]
