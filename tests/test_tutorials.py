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


def test_notebooks_are_up_to_date() -> None:
    """Else `make notebooks` makes them so."""
    for text in TEXTS:
        nbformat.validate(notebook := stored(text))
        assert [{**cell, "outputs": [], "execution_count": None} for cell in notebook.cells] == [
            {**cell, "outputs": [], "execution_count": None} for cell in read_text(text).cells
        ], text.stem


def test_notebooks_read_well_on_a_page() -> None:
    for text in TEXTS:
        notebook = stored(text)
        words = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        levels = [len(marks) for marks in re.findall(r"^(#+) ", words, re.MULTILINE)]
        assert notebook.cells[0].source.startswith("# "), text.stem
        assert levels.count(1) == 1, text.stem
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), text.stem
        assert "remove-cell" in notebook.cells[1].metadata.tags, text.stem
        assert [link for link in links_of(words) if not (TUTORIALS / link.partition("#")[0]).exists()] == [], text.stem


def test_notebooks_are_small_and_say_nothing_of_the_machine_that_they_were_made_on() -> None:
    for text in TEXTS:
        notebook = stored(text)
        assert text.with_suffix(".ipynb").stat().st_size <= 300_000, text.stem
        assert [len(picture) for picture in pictures(notebook) if len(picture) * 3 / 4 > 40_000] == [], text.stem
        assert re.findall(r"(?:/(?:home|root|tmp|usr|work|Users)/|\w:\\).*", printed(notebook)) == [], text.stem
        assert Counter(output.get("name") for output in outputs(notebook))["stderr"] == 0, text.stem


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
