"""Where the tests of the compiler keep machine code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphfeed.ops.cpu.compiler import folders
from graphfeed.ops.cpu.compiler.machine import processor
from graphfeed.ops.cpu.jit import INTERPRETED
from tests.stand_ins.scripts import without_kernels


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Skip tests of machine code where there is none."""
    if INTERPRETED:
        pytest.skip("kernels are plain Python")


@pytest.fixture
def unsaid() -> None:
    """Forget the messages about compilation in this process."""
    folders.warn_once.cache_clear()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsaid: None) -> Iterator[Path]:
    """Move the package and the user's home to new folders; return their parent folder."""
    for name in ("sources", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(folders, "SOURCES", tmp_path / "sources")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GRAPHFEED_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folders.folders.cache_clear()
    yield tmp_path
    folders.folders.cache_clear()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsaid: None) -> Iterator[Path]:
    """Store machine code in a new folder, for this process and its children; return the folder."""
    for name, value in without_kernels(tmp_path / "kept").items():
        monkeypatch.setenv(name, value)
    processor.cache_clear()
    folders.folders.cache_clear()
    _, folder = folders.folders()
    assert folder is not None
    yield folder
    processor.cache_clear()
    folders.folders.cache_clear()
