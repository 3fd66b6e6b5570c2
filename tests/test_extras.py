"""What pip takes for the extras with CUDA, beside the torch that they are for."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TORCH_OF_CUDA_12, TORCH_OF_CUDA_13 = "torch==2.9.1", "torch==2.14.1"


def requirements(extra: str) -> list[str]:
    """Return what an extra requires, with what other extras that it names require."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found: list[str] = []
    for requirement in extras[extra]:
        own = re.fullmatch(r"graphfeed\[(\w+)\]", requirement)
        found += requirements(own[1]) if own else [requirement]
    return found


@pytest.fixture(scope="module")
def latest_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a pip that reads what wheels require without downloading them; skip without an index of packages."""
    folder = tmp_path_factory.mktemp("pip")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=0", "--target", str(folder), "pip>=25.3"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("there is no index of packages")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("extra", "torch", "fits"),
    [
        ("cuda13", TORCH_OF_CUDA_13, True),
        ("cuda12", TORCH_OF_CUDA_12, True),
        ("cuda12", TORCH_OF_CUDA_13, False),
    ],
)
def test_pip_finds_what_fits_torch_or_names_the_conflict(
    latest_pip: Path, tmp_path: Path, extra: str, torch: str, fits: bool
) -> None:
    assert requirements("cuda") == requirements("cuda13")
    report = tmp_path / "report.json"
    options = ["--dry-run", "--ignore-installed", "--use-feature=fast-deps", f"--report={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, torch, *requirements(extra)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(latest_pip)},
    )
    assert (done.returncode == 0) == fits, done.stderr
    if not fits:
        assert "conflicting dependencies" in done.stderr
        return
    found = {
        part["metadata"]["name"]: part["metadata"]["version"] for part in json.loads(report.read_text())["install"]
    }
    (compiler,) = (name for name in found if name.startswith("nvidia-cuda-nvrtc"))
    cuda = "12" if torch == TORCH_OF_CUDA_12 else "13"
    assert found[compiler].startswith(cuda)
    assert found[f"cupy-cuda{cuda}x"] >= "14"
