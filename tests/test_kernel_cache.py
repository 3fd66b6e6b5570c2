"""Machine code on disk is used again, and no longer once any part of the kernels has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import graphfeed

SCRIPT = """
import torch
from graphfeed.ops import permute
from graphfeed.ops.cpu import permute as module
print(permute(0, 3, 5000, key=1).tolist(), sum(module.permute.stats.cache_hits.values()))
"""


def run(folder: Path) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    places, _, hits = result.stdout.strip().rpartition(" ")
    return places, hits


def test_a_changed_part_makes_kernels_compile_anew(tmp_path: Path) -> None:
    package = tmp_path / "graphfeed"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(graphfeed.__file__).parent, package, ignore=ignored)
    first, hits = run(tmp_path)
    assert hits == "0"
    assert run(tmp_path) == (first, "1")
    part = package / "ops" / "cpu" / "random.py"
    part.write_text(part.read_text().replace("np.uint64(31)", "np.uint64(30)"))
    changed, hits = run(tmp_path)
    assert hits == "0"
    assert changed != first
