"""Tasks that each write files of an unfinished folder, on any executor; what is finished is not done again."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any, TypeAlias

from graphfeed.ops.process import as_they_end, in_one_step, wait_until_done
from graphfeed.storage.datasets.array_files import write_text
from graphfeed.storage.datasets.folder_writing import SCRATCH

FileTask: TypeAlias = Callable[[Path], Any]
"""Writes files to an empty folder, synced to the disk, and returns plain values, as JSON can hold."""
TASK_SECONDS = 7 * 24 * 3600.0
"""How long a task may take in a pool of this library's, which gives up on a worker then."""
LEAST_TASKS = 16
"""Into how many tasks to split work for an executor at least, which doesn't say how many workers it has."""
END_SECONDS = 60.0
"""How long to wait, after a failure, for tasks that have begun."""


def run_tasks(
    folder: Path,
    tasks: Mapping[str, FileTask],
    executor: Executor | None = None,
    progress: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """Run tasks whose files go to a folder, which `new_folder` yields, and return the result of each.

    A task writes to a folder of its own; its files are moved to their places when it has finished, and then its result
    is noted. So a task may be lost in the middle, and may run twice, even at the same time: its files are a function of
    what it was given. A task whose result is noted does not run again. All of them see `folder` under the same path.
    Where one raises, others that have not begun are cancelled; a lost worker is a `BrokenExecutor`.

    Args:
        tasks: The tasks by name: a name for a file, which no other task of the folder has.
        executor: Any executor, which pickles the tasks unless it runs them in threads. None for here and now, one after
            the other.
        progress: Is called with the result of each task.
    """
    results = {}
    run = begin_run(folder / SCRATCH)
    names: dict[Future[Any], str] = {}
    try:
        for name, task in tasks.items():
            if executor is None:
                results[name] = run_task(folder, run, name, task)
                if progress is not None:
                    progress(results[name])
            else:
                names[executor.submit(run_task, folder, run, name, task)] = name
        for future in as_they_end(names):
            results[names[future]] = future.result()
            if progress is not None:
                progress(future.result())
    except BaseException as error:
        # Those that have not begun are cancelled.
        end = time.monotonic() + END_SECONDS
        for future in [future for future in names if not in_one_step(future.cancel)]:
            wait_until_done(future, max(0.0, end - time.monotonic()))
        if isinstance(error, BrokenExecutor):
            error.add_note("a worker was lost, perhaps for lack of memory; the executor takes no tasks any more")
        raise
    finally:
        # Whoever still writes fails without its folder, rather than change what the next run makes.
        shutil.rmtree(run, ignore_errors=True)
    # In the order of the tasks, whichever ended first.
    return {name: results[name] for name in tasks}


def begin_run(scratch: Path) -> Path:
    """Return a new folder for the files of unfinished tasks, and remove those of runs before."""
    scratch.mkdir(exist_ok=True)
    # Workers may still be at tasks of an earlier run, perhaps with other inputs. Without their folder, they fail.
    for left in scratch.glob("run-*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=scratch))


def run_task(folder: Path, run: Path, name: str, task: FileTask) -> Any:
    """Run a task unless its result is noted, and return the result."""
    noted = folder / SCRATCH / f"{name}.done"
    if noted.exists():
        return json.loads(noted.read_text(encoding="utf-8"))
    aside = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=run))
    try:
        result = task(aside)
        # Sorted, a folder comes before what is in it.
        for path in sorted(aside.rglob("*")):
            target = folder / path.relative_to(aside)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                path.replace(target)
        # Last, so that a noted result means that all files are in their places.
        write_text(aside / noted.name, json.dumps(result))
        os.replace(aside / noted.name, noted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return result
