"""Every tutorial runs from top to bottom in a kernel of its own, and its notebook is what its text makes of it."""

import itertools
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.pages import links_of
from tutorials.build_notebooks import TEXTS, TUTORIALS, execute, outputs, read_text

each = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)


def stored(text: Path) -> NotebookNode:
    """Return the notebook beside a text."""
    notebook: NotebookNode = nbformat.read(text.with_suffix(".ipynb"), as_version=4)
    return notebook


def pictures(notebook: NotebookNode) -> list[str]:
    """Return the pictures of a notebook, as base64."""
    return [output.data["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]


def printed(notebook: NotebookNode) -> str:
    """Return the texts of all outputs, but for messages such as that kernels are compiled."""
    shown = [output for output in outputs(notebook) if output.get("name") != "stderr"]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in shown)


def exact(notebook: NotebookNode) -> dict[str, str]:
    """Return the outputs, as text, of the cells that say that these are the same in each run."""
    return {
        cell.id: printed(NotebookNode(cells=[cell]))
        for cell in notebook.cells
        if "exact" in cell.metadata.get("tags", ())
    }


def test_each_notebook_has_a_text() -> None:
    assert sorted(TUTORIALS.glob("*.ipynb")) == [text.with_suffix(".ipynb") for text in TEXTS]


@each
def test_a_notebook_is_up_to_date(text: Path) -> None:
    """Else `make notebooks` makes it so."""
    nbformat.validate(notebook := stored(text))
    assert [{**cell, "outputs": [], "execution_count": None} for cell in notebook.cells] == [
        {**cell, "outputs": [], "execution_count": None} for cell in read_text(text).cells
    ]


@each
def test_a_notebook_reads_well_on_a_page(text: Path) -> None:
    notebook = stored(text)
    words = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    levels = [len(marks) for marks in re.findall(r"^(#+) ", words, re.MULTILINE)]
    assert notebook.cells[0].source.startswith("# ")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert "remove-cell" in notebook.cells[1].metadata.tags
    assert [link for link in links_of(words) if not (TUTORIALS / link.partition("#")[0]).exists()] == []


@each
def test_a_notebook_is_small_and_says_nothing_of_the_machine_that_it_was_made_on(text: Path) -> None:
    notebook = stored(text)
    assert text.with_suffix(".ipynb").stat().st_size <= 300_000
    assert [len(picture) for picture in pictures(notebook) if len(picture) * 3 / 4 > 40_000] == []
    assert re.findall(r"(?:/(?:home|root|tmp|usr|work|Users)/|\w:\\).*", printed(notebook)) == []
    assert Counter(output.get("name") for output in outputs(notebook))["stderr"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [TEXTS[0], *(pytest.param(text, marks=pytest.mark.thorough) for text in TEXTS[1:])],
    ids=lambda text: text.stem,
)
def test_a_tutorial_runs_and_shows_what_its_notebook_shows(text: Path) -> None:
    notebook = execute(text)
    assert len(pictures(notebook)) == len(pictures(stored(text))) > 0
    assert exact(notebook) == exact(stored(text))
    # It is told there, too, that kernels are compiled.
    told = [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
    assert [line for line in told if "Warning" in line] == []
