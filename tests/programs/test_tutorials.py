"""Notebooks and examples run, with the same output as the stored one."""

import itertools
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat import NotebookNode

import graphfeed as gf
from examples import wordnet_sage
from tests.kinds.pages import links_of
from tests.stand_ins import scripts
from tutorials.build_notebooks import TEXTS, TUTORIALS, execute, outputs, read_text


def stored(text: Path) -> NotebookNode:
    """Return the notebook next to a script."""
    notebook: NotebookNode = nbformat.read(text.with_suffix(".ipynb"), as_version=4)
    return notebook


def pictures(notebook: NotebookNode) -> list[str]:
    """Return the pictures of a notebook, as base64."""
    return [output.data["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]


def printed(notebook: NotebookNode) -> str:
    """Return the strings of all outputs, except messages such as those about compiled kernels."""
    shown = [output for output in outputs(notebook) if output.get("name") != "stderr"]
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in shown)


def exact(notebook: NotebookNode) -> dict[str, str]:
    """Return the outputs, as strings, of the cells that are tagged as exact."""
    return {
        cell.id: printed(NotebookNode(cells=[cell]))
        for cell in notebook.cells
        if "exact" in cell.metadata.get("tags", ())
    }


def test_each_notebook_has_a_text() -> None:
    assert sorted(TUTORIALS.glob("*.ipynb")) == [text.with_suffix(".ipynb") for text in TEXTS]


def test_notebooks_are_up_to_date() -> None:
    """Otherwise, run `make notebooks`."""
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


def test_pictures_say_what_they_show_and_what_is_only_for_tests_is_hidden() -> None:
    for text in TEXTS:
        for cell in stored(text).cells:
            if "plt.show()" in cell.source:
                assert "title" in cell.source, (text.stem, cell.source)
                assert "legend" in cell.source or " label=" not in cell.source, (text.stem, cell.source)
            hidden = cell.metadata.get("jupyter", {}).get("source_hidden", False)
            assert hidden == ("remove-cell" in cell.metadata.get("tags", ())), (text.stem, cell.source)


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
    # Compiled kernels are reported there, too.
    told = [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
    assert [line for line in told if "Warning" in line] == []


LAST_LINE = r"Of all test nodes, (\d+)% are correct with edges, (\d+)% without edges, and (\d+)% by always .*"


def make_tiny_wordnet() -> gf.Dataset:
    """Return 40 synsets of two classes with different words."""
    synsets = torch.arange(40)
    labels = synsets % 2
    edges = {
        "synset:hypernym:synset": (synsets[2:], synsets[:-2]),
        "synset:rev_hypernym:synset": (synsets[:-2], synsets[2:]),
        "word:names:synset": (synsets // 4, synsets),
        "synset:rev_names:word": (synsets, synsets // 4),
    }
    feat = torch.nn.functional.one_hot(labels, 8).to(torch.uint8)
    parts = [
        gf.HeteroItemSet({"synset": gf.ItemSet((ids, labels[ids]), names=("seeds", "labels"))})
        for ids in (synsets[:20], synsets[20:30], synsets[30:])
    ]
    return gf.Dataset(
        name="tiny",
        graph=gf.from_coo(edges, {"synset": 40, "word": 10}),
        feature=gf.BasicFeatureStore({("node", "synset", "feat"): gf.TorchBasedFeature(feat)}),
        train_set=parts[0],
        validation_set=parts[1],
        test_set=parts[2],
        all_nodes_set=gf.HeteroItemSet({"synset": gf.ItemSet(40, names="seeds")}),
        metadata={"num_classes": 2, "class_names": ("a", "b"), "edge_types": tuple(edges)},
    )


def test_both_nets_are_trained_and_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gf.datasets, "wordnet", make_tiny_wordnet)
    threads = torch.get_num_threads()
    try:
        wordnet_sage.main(["--epochs", "30", "--batch-size", "8"])
    finally:
        torch.set_num_threads(threads)
    last = re.fullmatch(LAST_LINE, capsys.readouterr().out.splitlines()[-1])
    assert last
    assert last.groups() == ("100", "100", "50")


def test_a_layer_adds_the_mean_of_each_relation() -> None:
    csc = gf.CSCFormatBase(torch.tensor([0, 2, 2]), torch.tensor([1, 2]))
    nothing = gf.CSCFormatBase(torch.zeros(3, dtype=torch.int64), torch.tensor([], dtype=torch.int64))
    edges = {"synset:hypernym:synset": csc, "word:names:synset": nothing}
    layer = wordnet_sage.SAGELayer(list(edges), 1, 1)
    for weights in layer.parameters():
        torch.nn.init.ones_(weights)
    h = {"synset": torch.tensor([[1.0], [2.0], [5.0]]), "word": torch.zeros(0, 1)}
    out = layer(gf.SampledSubgraph(edges, {"synset": torch.tensor([7, 8])}), h)
    # Own value, bias 1, and for the first column the mean of 2 and 5.
    assert out["synset"].tolist() == [[1 + 1 + 3.5], [2 + 1]]


LINE = re.compile(
    r"epoch \d: .* s; test accuracy \d\.\d\d; in 2 parts (3 mini-batches with digest \w{16}), in one process \1"
)


@pytest.mark.thorough
def test_two_processes_with_a_part_each_train_on_the_mini_batches_of_one() -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = scripts.run("-m", *torchrun, "-m", "tests.stand_ins.tiny_demo")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) for line in lines), run.stdout
    assert lines[0].partition("digest")[2] != lines[1].partition("digest")[2]
