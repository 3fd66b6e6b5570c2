"""Memory limits of this process, including those set by containers and batch systems."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from graphfeed.ops.process import current_limits

ROOT = Path("/")
GROUPS = "sys/fs/cgroup"
"""Mount point of control groups, relative to the root."""
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
"""Files with the limit and the usage of a control group, and the field with the page cache's share of the usage."""


def memory_limit(root: Path = ROOT) -> float:
    """Return the memory that this process may use in total, in bytes; infinite if unknown. The system is in `root`."""
    try:
        total: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        total = math.inf
    return min([current_limits().memory_bytes, total, *(limit for limit, _ in group_limits(root))])


def check_nodes_fit(name: str, num_nodes: int) -> None:
    """Raise a ValueError if an `indptr` array of `num_nodes` int64 values exceeds this process's memory limit."""
    # Reading the limit from system files is not worth it below 8 GiB.
    if num_nodes >= 1 << 30 and 8 * num_nodes > (limit := memory_limit()):
        raise ValueError(
            f"{name} is {num_nodes}: with 8 bytes for each node that takes {num_nodes / 2**27:,.0f} GiB, and this "
            f"process may use {limit / 2**30:,.0f}; check the number, and number nodes from 0 without gaps"
        )


def available_memory(root: Path = ROOT) -> float:
    """Return the memory that this process may still allocate, in bytes; infinite if unknown."""
    try:
        lines = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        free = 1024.0 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError):
        free = math.inf
    return min([current_limits().memory_bytes, free, *(left for _, left in group_limits(root))])


def ranks_of_machine() -> int:
    """Return the number of ranks on this machine, as set by torchrun; 1 without a launcher."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def group_limits(root: Path) -> Iterator[tuple[int, int]]:
    for group, version in control_groups("memory", root):
        yield from limit_of(group, VERSION_1 if version == 1 else VERSION_2)


def control_groups(controller: str, root: Path = ROOT) -> Iterator[tuple[Path, int]]:
    """Yield the folders and versions of the control groups of this process that may set limits for a controller."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return  # not Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        version, folder = (1, f"{GROUPS}/{controller}") if controllers else (2, GROUPS)
        parts = [part for part in path.split("/") if part]
        # The limits of all ancestors apply to a group. In a container, the path may begin above the folder.
        for end in range(len(parts) + 1):
            yield root.joinpath(folder, *parts[:end]), version


def limit_of(group: Path, names: tuple[str, str, str]) -> Iterator[tuple[int, int]]:
    try:
        limit, used = (int((group / name).read_text()) for name in names[:2])
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return  # "max" means no limit
    # The page cache counts as used, but is freed on demand.
    yield limit, max(limit - used + int(stat.get(names[2], 0)), 0)
