"""What CONTRIBUTING.md shows is put where it says, and its tests pass beside the package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))

ADD_TO_PACKAGES = '''"""Let the packages have the modules of this folder, too."""

from importlib import import_module
from pathlib import Path

import tests.conftest  # noqa: F401 (the settings of Hypothesis)

HERE = Path(__file__).parent
for folder in {path.parent for path in (HERE / "graphfeed").rglob("*.py")}:
    import_module(".".join(folder.relative_to(HERE).parts)).__path__.append(str(folder))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's files, each under its name."""
    folder = tmp_path_factory.mktemp("contribution")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a Python program prints, or fail with it."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_new_and_each_has_its_test() -> None:
    assert [name for name in FILES if (ROOT / name).exists()] == []
    own = {Path(name).stem for name in FILES if name.startswith("graphfeed/")}
    assert {f"test_{name}" for name in own} <= {Path(name).stem for name in FILES}


@pytest.mark.slow
def test_the_examples_pass_their_tests(folder: Path) -> None:
    (folder / "conftest.py").write_text(ADD_TO_PACKAGES)
    options = ["--doctest-modules", "--import-mode=importlib", "-p", "no:cacheprovider", f"-c{ROOT / 'pyproject.toml'}"]
    printed = run("pytest", "-q", *options, f"--rootdir={folder}", folder, cwd=ROOT)
    assert re.search(r"^4 passed", printed, re.MULTILINE), printed


def test_the_examples_keep_the_style(folder: Path) -> None:
    ours = 'lint.isort.known-first-party = ["graphfeed"]'
    settings = ("--config", ROOT / "pyproject.toml", "--config", ours, "--no-cache", ".")
    run("ruff", "check", *settings, cwd=folder)
    run("ruff", "format", "--check", *settings, cwd=folder)
