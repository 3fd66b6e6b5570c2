"""Number of CPU cores that this process may use."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from graphfeed.storage.memory import control_groups

ROOT = Path("/")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quotas(root: Path = ROOT) -> Iterator[float]:
    """Yield the CPU limits of the control groups of this process, in cores."""
    for group, version in control_groups("cpu", root):
        with suppress(OSError, ValueError):  # the file does not exist, or contains "max", which means no limit
            if version == 1:
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            else:
                quota, period = (group / "cpu.max").read_text().split()
            if int(quota) > 0:
                yield int(quota) / int(period)
