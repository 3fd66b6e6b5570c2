"""Worker processes of programs that are run, and interrupted, in all possible ways."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jupytext
import pytest
from nbclient import NotebookClient

from tests.stand_ins.at_work import wait_for_end
from tests.stand_ins.scripts import REPOSITORY, run

STAGES = """
import graphfeed as gf

class AddOne(gf.Transform):
    amount: int = 1

    def __call__(self, minibatch):
        return gf.MiniBatch(seeds=minibatch.seeds + self.amount)

class Twice(gf.Transform):
    def __init__(self, datapipe, times):
        super().__init__(datapipe)
        self.times = times

    def __call__(self, minibatch):
        return gf.MiniBatch(seeds=minibatch.seeds * self.times)

def run():
    pipe = AddOne(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2))
    with gf.DataLoader(Twice(pipe, 2), num_workers=1, worker="process") as loader:
        print([minibatch.seeds.tolist() for minibatch in loader])
"""
GUARDED = STAGES + "\nif __name__ == '__main__':\n    run()\n"
PRINTED = "[[2, 4], [6, 8]]\n"


@pytest.mark.slow
def test_a_script_without_the_guard_is_told_so_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(STAGES + "\nrun()\n")
    done = run(str(path))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "Traceback (most recent call last):",
        "RuntimeError: worker processes import the main script again, and this one would start workers there too; "
        "put its main part under `if __name__ == '__main__':`",
    ]
    assert len(lines) < 40


@pytest.mark.slow
@pytest.mark.thorough
def test_a_script_from_standard_input_is_told_to_become_a_file() -> None:
    done = run("-", stdin=GUARDED)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: worker processes import the main script again, but this program was read from stdin; save it "
        "to a file and run that, or use threads: worker='thread'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["script", "module", *(pytest.param(how, marks=pytest.mark.thorough) for how in ("package", "command"))]
)
def test_stages_of_the_main_module_are_found_by_workers(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    for name in ("__init__.py", "__main__.py", "module.py"):
        (folder / name).write_text("" if name == "__init__.py" else GUARDED)
    arguments = {
        "script": [str(folder / "module.py")],
        "module": ["-m", "program.module"],
        "package": ["-m", "program"],
        "command": ["-c", GUARDED],
    }
    done = run(*arguments[how], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (PRINTED, "")


@pytest.mark.slow
@pytest.mark.thorough
def test_stages_of_a_notebook_are_found_by_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook: Any = jupytext.reads(f"# %%\n{STAGES}\n# %%\nrun()\n", fmt="py:percent")
    NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    assert "".join(output.get("text", "") for output in notebook.cells[1].outputs) == PRINTED


NOTE = """
import multiprocessing
import sys
from pathlib import Path

is_worker = multiprocessing.current_process().name.startswith("graphfeed-")
who = "worker" if is_worker else "main" if sys.argv[0].endswith("program.py") else "server"
with open(Path({folder!r}, "notes"), "a") as file:
    file.write(f"{name} {{who}}\\n")
"""
FAILS = "if who == 'server':\n    raise RuntimeError('not here')\n"


@pytest.mark.slow
def test_the_fork_server_imports_installed_packages_of_the_script_and_not_its_own_modules(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    modules = {"heavy": (installed, ""), "deep": (installed, ""), "fails": (installed, FAILS)}
    modules["own"] = (tmp_path, "from deep import where\n")
    for name, (folder, more) in modules.items():
        text = NOTE.format(folder=str(tmp_path), name=name) + "def where():\n    pass\n" + more
        (folder / f"{name}.py").write_text(text)
    (tmp_path / "program.py").write_text("import heavy\nimport fails\nimport own\n" + GUARDED)
    done = run(str(tmp_path / "program.py"), cwd=tmp_path, PYTHONPATH=f"{installed}{os.pathsep}{REPOSITORY}")
    assert (done.stdout, done.stderr) == (PRINTED, "")
    notes = (tmp_path / "notes").read_text().splitlines()
    everywhere = ["fails main", "fails server", "fails worker"]
    assert sorted(notes) == [
        "deep main",
        "deep server",
        *everywhere,
        "heavy main",
        "heavy server",
        "own main",
        "own worker",
    ]


WARM_UP = """
import threading
from graphfeed.loader.executors import preload
assert preload.import_ahead() == 2
assert threading.active_count() == 1
"""


@pytest.mark.slow
def test_what_workers_are_forked_from_runs_a_pipeline_and_leaves_no_thread_that_a_fork_would_miss() -> None:
    done = run("-c", WARM_UP)
    said = [line for line in done.stderr.splitlines() if not line.startswith("graphfeed is compiling its kernels")]
    assert (done.returncode, said) == (0, [])


WAITING = """
import sys
from graphfeed.loader.executors import process_executor

if __name__ == "__mp_main__":
    import slow

if __name__ == "__main__":
    if sys.argv[1] == "forkserver":
        process_executor.PRELOAD.insert(0, "slow")
    process_executor.ProcessExecutor(1, timeout=60, start_method=sys.argv[1]).submit(abs, 1).result()
"""
SLOW = """
import time
print("what starts imports this", flush=True)
time.sleep(2)
"""
HELD = """
import signal
from graphfeed.loader.executors.process_executor import ProcessExecutor

def is_held():
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

if __name__ == "__mp_main__":
    print("while a worker starts:", is_held(), flush=True)

if __name__ == "__main__":
    print("while it works:", ProcessExecutor(1, timeout=60).submit(is_held).result())
"""
OTHERS = """
import multiprocessing, time
from graphfeed.loader.executors.process_executor import make_context

def work():
    print("a process of one's own works", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    process = make_context("forkserver").Process(target=work)
    process.start()
    process.join()
    print(process.exitcode)
"""


@contextmanager
def started(folder: Path, text: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run a program and yield it, when it has printed a line, with that line."""
    path = folder / "program.py"
    path.write_text(text)
    (folder / "slow.py").write_text(SLOW)
    with subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{os.getcwd()}:{folder}"},
    ) as program:
        assert program.stdout is not None
        yield program, program.stdout.readline()


def interrupt(tmp_path: Path, text: str, *arguments: str) -> str:
    """Run a program, interrupt it and its processes when it has printed a line, and return its errors."""
    with started(tmp_path, text, *arguments) as (program, line):
        assert line
        os.killpg(program.pid, signal.SIGINT)
        return program.communicate(timeout=60)[1]


ENDING = """
import os, signal, sys, time
from graphfeed.loader.executors.process_executor import ProcessExecutor

def rest():
    time.sleep(60)

if __name__ == "__main__":
    executor = ProcessExecutor(2, timeout=60)
    futures = [executor.submit(abs, 1), executor.submit(rest)]
    futures[0].result()
    print(*executor.pids(), flush=True)
    {end}
"""
MORE_ENDS = {"exit": "sys.exit(0)", "exception": "raise ValueError", "no clean-up": "os._exit(0)"}
ENDS = {"killed": "os.kill(os.getpid(), signal.SIGKILL)", "interrupted": "time.sleep(60)"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        *(pytest.param(end, id=name, marks=pytest.mark.thorough) for name, end in MORE_ENDS.items()),
        *(pytest.param(end, id=name) for name, end in ENDS.items()),
    ],
)
def test_workers_end_with_the_program(tmp_path: Path, end: str) -> None:
    with started(tmp_path, ENDING.replace("{end}", end)) as (program, line):
        pids = [int(word) for word in line.split()]
        if end.startswith("time"):
            os.killpg(program.pid, signal.SIGINT)
        _, printed = program.communicate(timeout=60)
    assert len(pids) == 2
    assert not wait_for_end(pids)
    assert "resource_tracker" not in printed
    assert "graphfeed-" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.thorough)])
def test_workers_that_start_print_no_traceback_when_the_program_is_interrupted(tmp_path: Path, method: str) -> None:
    errors = interrupt(tmp_path, WAITING, method)
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
@pytest.mark.thorough
def test_other_processes_of_the_fork_server_are_interrupted_as_ever(tmp_path: Path) -> None:
    errors = interrupt(tmp_path, OTHERS)
    assert "in work" in errors


@pytest.mark.slow
@pytest.mark.thorough
def test_interrupts_are_held_back_until_a_worker_ignores_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HELD)
    done = run(str(tmp_path / "program.py"))
    assert done.stdout.splitlines() == ["while a worker starts: True", "while it works: False"]


LEFT_OPEN = """
import sys, threading, time
import graphfeed as gf
from graphfeed.loader.stages.prefetch import Prefetch

working = threading.Event()

def note(minibatch):
    if minibatch.key.index == 1:
        working.set()
        time.sleep(0.3)
        print("done", flush=True)
    return minibatch

running = iter(Prefetch(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=1).transform(note)))
next(running)
working.wait(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        *(pytest.param(*end, marks=pytest.mark.thorough) for end in [("", 0), ("raise ValueError", 1)]),
    ],
)
def test_a_program_that_leaves_a_loop_open_waits_for_the_thread_that_works_ahead(end: str, code: int) -> None:
    ended = run("-c", LEFT_OPEN + end)
    assert (ended.returncode, ended.stdout) == (code, "done\n")
    assert "abandoned" not in ended.stderr
