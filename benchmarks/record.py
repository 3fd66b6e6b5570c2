"""Measurements of a run as JSON, from which the site's figures, tables and pictures are generated."""

import datetime
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.table import HUGE_PAGES, Table

VERSIONS = ("graphfeed", "torch", "numpy", "numba", "llvmlite")
PROCESSOR, USED = Path("/proc/cpuinfo"), Path("/proc/stat")
HISTORY = "history.jsonl"
"""File next to the records, with a line for each record that was ever written."""
MOST_LOAD = 1.5
"""Maximum load before a run."""
MOST_OTHERS = 0.5
"""Maximum number of cores that other programs keep busy during a run."""
LEAST_SAMPLES = 5
SETTLING_SECONDS = 180
"""Maximum wait until the load of earlier programs has decayed."""


class Watch:
    """Load before a run, and the cores that other programs use during the run.

    Args:
        settle: Whether to wait first until the load is low, and to raise a `RuntimeError` if it stays high.
    """

    def __init__(self, *, settle: bool) -> None:
        end = time.monotonic() + SETTLING_SECONDS
        while settle and os.getloadavg()[0] > MOST_LOAD and time.monotonic() < end:
            time.sleep(5)
        self.load = round(os.getloadavg()[0], 1)
        if settle and self.load > MOST_LOAD:
            raise RuntimeError(f"a record needs an idle machine, but its load is {self.load}: stop other programs")
        self.start, self.busy = time.monotonic(), others_seconds()

    def others(self) -> float:
        """Return the mean number of cores that other programs have used since the start."""
        return max(round((others_seconds() - self.busy) / (time.monotonic() - self.start), 1), 0.0)


def others_seconds() -> float:
    """Return the time that our cores have spent in programs, except for this one and its children that have ended.

    The system's own time is left out, because it writes and evicts pages for this program.
    """
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    used = [[int(word) for word in words[1:3]] for words in map(str.split, lines_of(USED)) if words[0] in cores]
    own = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(map(sum, used)) / os.sysconf("SC_CLK_TCK") - own


def record(tables: Iterable[str], command: str, watch: Watch) -> dict[str, Any]:
    """Return the rows of tables and a description of the setup, without names of computers, users or folders.

    Args:
        tables: Output of the benchmark. Lines that don't belong to a table are left out.
        command: The command line.
        watch: Observed the machine during the run.
    """
    return {
        "machine": {**describe_machine(), "load": watch.load, "others": watch.others()},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in VERSIONS},
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "rows": [row for table in tables if isinstance(table, Table) for row in describe_rows(table)],
    }


def shortcomings(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a record says too little to be shown."""
    if content["machine"]["load"] > MOST_LOAD:
        yield f"the load before the run is {content['machine']['load']}, more than {MOST_LOAD}"
    if (content["machine"]["others"] or 0) > MOST_OTHERS:
        yield f"other programs used {content['machine']['others']} cores during the run, more than {MOST_OTHERS}"
    for row in content["rows"]:
        if row["samples"] is not None and row["samples"] < LEAST_SAMPLES:
            yield f"{row['samples']} samples of {row['what']!r} in {row['table']!r}, fewer than {LEAST_SAMPLES}"


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record, and append its medians to the history of its folder."""
    path.write_text(json.dumps(content, indent=1) + "\n")
    with (path.parent / HISTORY).open("a") as file:
        file.write(json.dumps(medians(path.stem, content)) + "\n")


def medians(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the history keeps of a record: the machine, and of each table's rows the median, unit and ratio."""
    tables: dict[str, dict[str, Any]] = {}
    for row in content["rows"]:
        numbers = [value and float(f"{value:.4g}") for value in (row["median"], row["ratio"])]
        tables.setdefault(row["table"], {})[row["what"]] = [numbers[0], row["unit"], numbers[1]]
    return {"record": name, **{key: content[key] for key in ("date", "commit", "machine")}, "tables": tables}


def describe_machine() -> dict[str, Any]:
    """Return the parts of the setup other than the releases."""
    models = [line.partition(":")[2].strip() for line in lines_of(PROCESSOR) if line.startswith("model name")]
    pages = [word.strip("[]") for line in lines_of(HUGE_PAGES) for word in line.split() if word[0] == "["]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "huge pages": pages[0] if pages else "unknown",
    }


def describe_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    rows = []
    for row in table.rows:
        first, third = row.times.quartiles
        goal = None if row.goal is None else {"bound": str(row.goal), "met": row.goal.met}
        samples = None if row.counted else len(row.times.values)
        numbers = {"median": row.times.median, "quartiles": [first, third], "samples": samples, "ratio": row.ratio}
        rows.append({"table": table.heading, "what": row.what, "unit": row.unit, **numbers, "goal": goal})
    return rows


def commit() -> str | None:
    """Return the last commit that changed the package; None outside a checkout, or if files differ from it."""
    root = Path(__file__).resolve().parents[1]
    asked = (
        ["git", "log", "-1", "--format=%h", "--abbrev=10", "graphfeed"],
        ["git", "status", "--porcelain", "graphfeed"],
    )
    try:
        head, changed = (subprocess.check_output(ask, cwd=root, text=True, stderr=subprocess.DEVNULL) for ask in asked)
    except (OSError, subprocess.CalledProcessError):
        return None
    return None if changed.strip() else head.strip()


def lines_of(path: Path) -> list[str]:
    """Return the lines of a system file, or no lines if it doesn't exist."""
    return path.read_text().splitlines() if path.exists() else []
