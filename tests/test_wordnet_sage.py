import re

import pytest
import torch

import graphfeed as gf
from examples import wordnet_sage
from tests import scripts

LAST_LINE = r"test accuracy: with edges (\d\.\d\d), without edges (\d\.\d\d), majority class (\d\.\d\d)"


def make_tiny_wordnet() -> gf.Dataset:
    """Return 40 synsets of two classes, told apart by their words."""
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
        metadata={"num_classes": 2, "edge_types": tuple(edges)},
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
    assert last.groups() == ("1.00", "1.00", "0.50")


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
    run = scripts.run("-m", *torchrun, "-m", "tests.distributed.tiny_demo")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) for line in lines), run.stdout
    assert lines[0].partition("digest")[2] != lines[1].partition("digest")[2]
