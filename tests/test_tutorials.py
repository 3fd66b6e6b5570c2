"""Every tutorial runs from top to bottom, in a kernel of its own and without a display, and shows its pictures."""

import os
from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


@pytest.fixture
def fresh_jupyter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the user's settings out of the kernel, and its files out of the user's folders."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    # The kernel draws into the notebook unless this says otherwise.
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("GRAPHFEED_DATA", os.environ.get("GRAPHFEED_DATA", str(ROOT.parent / "shared" / "data")))
    # PyG imports tqdm, which would rather draw its bars with widgets.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_jupyter")
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    notebook = jupytext.read(path)
    client = NotebookClient(notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == sum(cell.source.count("plt.show()") for cell in cells) > 0
    # Matplotlib tells there, too, that it builds its cache of fonts.
    assert [output.text for output in outputs if output.get("name") == "stderr" and "Warning" in output.text] == []
