"""Measurements of a run as JSON, from which the site's tables and pictures are generated."""

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.table import HUGE_PAGES, Table

VERSIONS = ("graphfeed", "torch", "numpy", "numba", "llvmlite")
PROCESSOR = Path("/proc/cpuinfo")


def record(tables: Iterable[str], command: str) -> dict[str, Any]:
    """Return the rows of tables and a description of the setup, without names of computers, users or folders.

    Args:
        tables: Output of the benchmark. Lines that don't belong to a table are left out.
        command: The command line.
    """
    return {
        "machine": describe_machine(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in VERSIONS},
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "rows": [row for table in tables if isinstance(table, Table) for row in describe_rows(table)],
    }


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record with one row per line, so that two records can be compared."""
    path.write_text(json.dumps(content, indent=1) + "\n")


def describe_machine() -> dict[str, Any]:
    """Return the parts of the setup other than the releases."""
    models = [line.partition(":")[2].strip() for line in lines_of(PROCESSOR) if line.startswith("model name")]
    pages = [word.strip("[]") for line in lines_of(HUGE_PAGES) for word in line.split() if word[0] == "["]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "huge pages": pages[0] if pages else "unknown",
    }


def describe_rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    rows = []
    for row in table.rows:
        first, third = row.times.quartiles
        goal = None if row.goal is None else {"bound": str(row.goal), "met": row.goal.met}
        numbers = {"median": row.times.median, "quartiles": [first, third], "ratio": row.ratio}
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
