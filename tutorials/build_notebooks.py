"""Executes the tutorials, which are edited as Python scripts, and writes them as notebooks with outputs.

`make notebooks` writes all of them, and `make notebooks ONLY=03` those whose names begin with 03.
"""

import base64
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

TUTORIALS = Path(__file__).resolve().parent
TEXTS = sorted(TUTORIALS.glob("[0-9]*.py"))


def read_text(path: Path) -> NotebookNode:
    """Return the script of a tutorial as a notebook without outputs."""
    # With Jupytext's other Python formats, the line that installs the package would remain a comment.
    notebook: NotebookNode = jupytext.read(path, fmt="py:percent")
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{path.stem}-{number}"
        if "remove-cell" in cell.metadata.get("tags", ()):  # the site omits it, Jupyter collapses it
            cell.metadata["jupyter"] = {"outputs_hidden": True, "source_hidden": True}
    return notebook


def outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Yield all outputs of a notebook."""
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def execute(path: Path) -> NotebookNode:
    """Run a tutorial in a new kernel, in a folder with copies of its files, and return it with its outputs.

    The result is the same in each run unless the outputs of the tutorial itself differ.
    """
    notebook = read_text(path)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "tutorials")
        kept_out = shutil.ignore_patterns("*.ipynb", "*.py", "__pycache__", "scratch")
        shutil.copytree(TUTORIALS, folder, ignore=kept_out)
        names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        # Ignore the user's settings, and write no files to the user's folders.
        environment = dict.fromkeys(names, temporary)
        environment["PYTHONPATH"] = os.pathsep.join([str(TUTORIALS.parent), *filter(None, [os.getenv("PYTHONPATH")])])
        # PyG imports tqdm, which warns if widgets for its progress bars are not installed.
        environment["PYTHONWARNINGS"] = "ignore:IProgress not found"
        # Otherwise, the kernel would not draw into the notebook.
        environment["MPLBACKEND"] = ""
        client = NotebookClient(
            notebook,
            timeout=280,
            kernel_name="python3",
            coalesce_streams=True,
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        with mock.patch.dict(os.environ, environment):
            client.execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for node in (*notebook.cells, *outputs(notebook)):
        if "execution_count" in node:
            node.execution_count = None
    return notebook


def shrink(picture: str) -> str:
    """Reduce a base64-encoded PNG file to 128 colours, which takes a third of the bytes."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(128).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def tidy(notebook: NotebookNode) -> None:
    """Remove stderr output from a notebook and print it; compress its pictures."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # For example that kernels were compiled: only the author should see it.
            told = [output for output in cell.outputs if output.get("name") == "stderr"]
            print(*(output.text for output in told), sep="", end="", file=sys.stderr)
            cell.outputs = [output for output in cell.outputs if output not in told]
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = shrink(output.data["image/png"])


def keep_volatile(notebook: NotebookNode, before: NotebookNode) -> None:
    """Keep the previous outputs of cells that show times, unless the source of a cell has changed."""
    if [cell.source for cell in notebook.cells] == [cell.source for cell in before.cells]:
        for cell, old in zip(notebook.cells, before.cells, strict=True):
            if "volatile" in cell.metadata.get("tags", ()):
                cell.outputs = old.outputs


def main(*prefixes: str) -> None:
    """Write the notebooks whose names begin with one of the prefixes; without prefixes, all of them."""
    for path in TEXTS:
        if path.name.startswith(prefixes or ""):
            print(path.stem)
            notebook = execute(path)
            tidy(notebook)
            written = path.with_suffix(".ipynb")
            if written.exists():
                keep_volatile(notebook, nbformat.read(written, as_version=4))
            nbformat.write(notebook, written)


if __name__ == "__main__":
    main(*sys.argv[1:])
