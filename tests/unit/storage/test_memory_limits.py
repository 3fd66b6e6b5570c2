"""Memory limits of a process."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from graphfeed.storage.memory import available_memory, memory_limit

Write = Callable[[dict[str, str]], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes the files of a system."""

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


def group(folder: str, limit: str, used: int, cache: int = 0) -> dict[str, str]:
    """Return the files of a control group of version 2."""
    files = {"memory.max": limit, "memory.current": f"{used}\n", "memory.stat": f"anon 3\ninactive_file {cache}\n"}
    return {f"sys/fs/cgroup/{folder}{name}": text for name, text in files.items()}


def test_it_is_some() -> None:
    assert 1 << 20 < available_memory() <= memory_limit() < math.inf


def test_it_is_boundless_where_the_system_does_not_tell(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({})
    assert available_memory(tmp_path) == math.inf
    monkeypatch.delattr("os.sysconf")
    assert memory_limit(tmp_path) == math.inf


def test_without_control_groups_it_is_what_the_machine_has_free(tmp_path: Path, write: Write) -> None:
    write({"proc/meminfo": "MemTotal: 900 kB\nMemAvailable: 800 kB\n", "proc/self/cgroup": "0::/\n"})
    assert available_memory(tmp_path) == 800 * 1024


def test_the_limit_of_the_own_group_and_of_each_above_counts(tmp_path: Path, write: Write) -> None:
    write({"proc/meminfo": "MemAvailable: 800 kB\n", "proc/self/cgroup": "0::/job/step/task\n"})
    write(group("job/step/", "4000\n", 3000, cache=500))
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (4000, 1500)
    write(group("job/", "3500\n", 3300))
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (3500, 200)
    write(group("job/step/task/", "max\n", 9000))
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (3500, 200)
    write(group("other/", "10\n", 0))
    assert memory_limit(tmp_path) == 3500
    write(group("job/step/task/", "3400", 3600))
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (3400, 0)


def test_in_a_container_the_path_may_begin_above_the_folder(tmp_path: Path, write: Write) -> None:
    write({"proc/self/cgroup": "0::/docker/0123\n", **group("", "5000\n", 1000)})
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (5000, 4000)


def test_version_1_has_other_files(tmp_path: Path, write: Write) -> None:
    own = "sys/fs/cgroup/memory/slurm/job"
    write({"proc/self/cgroup": "9:name=systemd:/\n5:cpu,memory:/slurm/job\n0::/\n"})
    write({f"{own}/memory.limit_in_bytes": "6000\n", f"{own}/memory.usage_in_bytes": "2500\n"})
    write({f"{own}/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n"})
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (6000, 3800)
