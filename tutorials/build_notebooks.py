"""Executes the tutorials, which people edit as text, and writes them as notebooks with their outputs.

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
    """Return the text of a tutorial as a notebook without outputs."""
    # In Jupytext's other formats for Python, the line that installs the package would remain a comment.
    notebook: NotebookNode = jupytext.read(path, fmt="py:percent")
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{path.stem}-{number}"
        if "remove-cell" in cell.metadata.get("tags", ()):  # of which the site makes nothing, and Jupyter a bar
            cell.metadata["jupyter"] = {"outputs_hidden": True, "source_hidden": True}
    return notebook


def outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Yield all outputs of a notebook."""
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def execute(path: Path) -> NotebookNode:
    """Run a tutorial in a kernel of its own, beside copies of its files, and return it with its outputs.

    Nothing of the result differs from run to run unless the tutorial's own outputs do.
    """
    notebook = read_text(path)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "tutorials")
        kept_out = shutil.ignore_patterns("*.ipynb", "*.py", "__pycache__", "scratch")
        shutil.copytree(TUTORIALS, folder, ignore=kept_out)
        names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        # Without the user's settings, and without files in the user's folders.
        environment = dict.fromkeys(names, temporary)
        environment["PYTHONPATH"] = os.pathsep.join([str(TUTORIALS.parent), *filter(None, [os.getenv("PYTHONPATH")])])
        # PyG imports tqdm, which would rather draw its bars with widgets.
        environment["PYTHONWARNINGS"] = "ignore:IProgress not found"
        # Else the kernel would not draw into the notebook.
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
    """Return a picture, which is base64 of a PNG file, with 128 colours: a third of the bytes."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(128).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def tidy(notebook: NotebookNode) -> None:
    """Take out of a notebook what no reader needs."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # Such as that kernels were compiled, which the author should see.
            told = [output for output in cell.outputs if output.get("name") == "stderr"]
            print(*(output.text for output in told), sep="", end="", file=sys.stderr)
            cell.outputs = [output for output in cell.outputs if output not in told]
    for output in outputs(notebook):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = shrink(output.data["image/png"])


def keep_volatile(notebook: NotebookNode, before: NotebookNode) -> None:
    """Let cells that show times keep what they showed before, unless the text has changed."""
    if [cell.source for cell in notebook.cells] == [cell.source for cell in before.cells]:
        for cell, old in zip(notebook.cells, before.cells, strict=True):
            if "volatile" in cell.metadata.get("tags", ()):
                cell.outputs = old.outputs


def main(*prefixes: str) -> None:
    """Write the notebooks whose names begin so."""
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
