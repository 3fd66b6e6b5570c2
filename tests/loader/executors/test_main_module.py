"""Worker processes of programs that are run in every way that there is."""

import multiprocessing
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jupytext
import pytest
from nbclient import NotebookClient

from graphfeed.loader.executors import main_module
from graphfeed.loader.executors.main_module import check_main_module, is_guarded, is_importable
from tests.scripts import REPOSITORY, run

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
def test_a_script_from_standard_input_is_told_to_become_a_file() -> None:
    done = run("-", stdin=GUARDED)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "RuntimeError: worker processes import the main script again, but this program was read from stdin; save it "
        "to a file and run that, or use threads: worker='thread'"
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", "module", "package", "command"])
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
def test_stages_of_a_notebook_are_found_by_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook: Any = jupytext.reads(f"# %%\n{STAGES}\n# %%\nrun()\n", fmt="py:percent")
    NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    assert "".join(output.get("text", "") for output in notebook.cells[1].outputs) == PRINTED


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"__file__": "/home/me/train.py"}, True),
        ({}, False),
        ({"__file__": "/usr/bin/ipython"}, False),
        ({"__spec__": SimpleNamespace(name="me.train")}, True),
        ({"__spec__": SimpleNamespace(name="me.__main__")}, False),
        ({"__spec__": SimpleNamespace(name="__main__"), "__file__": "app.zip/__main__.py"}, False),
    ],
    ids=["script", "notebook", "ipython", "module", "package", "zip"],
)
def test_a_main_module_is_importable_where_multiprocessing_imports_it(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], expected: bool
) -> None:
    main = ModuleType("__main__")
    vars(main).update(fields)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert is_importable() is expected


def test_a_worker_that_imports_the_main_module_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    check_main_module("forkserver")
    assert left == []
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(name="graphfeed-0"))
    check_main_module("forkserver")
    assert left == [main_module.NO_GUARD]
    monkeypatch.setattr(main_module.Imported, "done", True)
    check_main_module("forkserver")
    assert left == [main_module.NO_GUARD], "workers that work may have workers of their own"


def test_a_program_without_a_file_can_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__file__ = "<stdin>"
    monkeypatch.setitem(sys.modules, "__main__", main)
    check_main_module("fork")
    with pytest.raises(RuntimeError, match="was read from stdin"):
        check_main_module("spawn")


def test_what_workers_would_do_again_is_found_by_the_guard(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "from graphfeed.loader.executors.main_module import is_guarded\n"
        "def tell():\n    print(is_guarded())\n"
        "tell()\n"
        "if __name__ == '__main__':\n    tell()\n"
        "if tell:\n    tell()\n"
    )
    assert run(str(path)).stdout.split() == ["False", "True", "False"]


def test_a_call_of_no_script_is_guarded() -> None:
    assert is_guarded()
