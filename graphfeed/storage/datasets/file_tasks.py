"""Tasks that write files of an unfinished folder, on any executor. Finished tasks are not repeated."""

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
"""Writes files to an empty folder, synced to the disk, and returns plain values that JSON supports."""
TASK_SECONDS = 7 * 24 * 3600.0
"""Time limit of a task in this library's pools, which then give up on the worker."""
LEAST_TASKS = 16
"""Minimum number of tasks for an executor, whose number of workers is unknown."""
END_SECONDS = 60.0
"""Time to wait, after a failure, for started tasks."""


def run_tasks(
    folder: Path,
    tasks: Mapping[str, FileTask],
    executor: Executor | None = None,
    progress: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """Run tasks whose files go to a folder, which `new_folder` yields, and return the result of each.

    A task writes to a separate folder. When it has finished, its files are moved to the target folder, and its result
    is recorded. So a task may be interrupted, and may run twice, even concurrently: its files are a function of its
    arguments. A task with a recorded result does not run again. All tasks see `folder` under the same path. If one
    fails, others that have not started are cancelled; a lost worker is a `BrokenExecutor`.

    Args:
        tasks: The tasks by name. A name must be a file name that no other task of the folder has.
        executor: Any executor; it pickles the tasks unless it runs them in threads. None runs them in this thread, in
            order.
        progress: Called with the result of each task.
    """
    results = {}
    run = new_run_folder(folder / SCRATCH)
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
        # Cancel tasks that have not started.
        end = time.monotonic() + END_SECONDS
        for future in [future for future in names if not in_one_step(future.cancel)]:
            wait_until_done(future, max(0.0, end - time.monotonic()))
        if isinstance(error, BrokenExecutor):
            error.add_note("a worker was lost, perhaps for lack of memory; the executor accepts no more tasks")
        raise
    finally:
        # Tasks that still write fail without their folder, instead of changing the files of the next run.
        shutil.rmtree(run, ignore_errors=True)
    # In the order of the tasks, not in that of completion.
    return {name: results[name] for name in tasks}


def new_run_folder(scratch: Path) -> Path:
    """Return a new folder for the files of unfinished tasks, and remove those of earlier runs."""
    scratch.mkdir(exist_ok=True)
    # Workers may still run tasks of an earlier run, perhaps with other inputs. Without their folder, they fail.
    for left in scratch.glob("run-*"):
        shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=scratch))


def run_task(folder: Path, run: Path, name: str, task: FileTask) -> Any:
    """Run a task unless its result is recorded, and return the result."""
    noted = folder / SCRATCH / f"{name}.done"
    if noted.exists():
        return json.loads(noted.read_text(encoding="utf-8"))
    aside = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=run))
    try:
        result = task(aside)
        # Sorted, so that a folder comes before its contents.
        for path in sorted(aside.rglob("*")):
            target = folder / path.relative_to(aside)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                path.replace(target)
        # Last, so that a recorded result implies that all files are in place.
        write_text(aside / noted.name, json.dumps(result))
        os.replace(aside / noted.name, noted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return result
