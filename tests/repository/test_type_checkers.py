"""Programs of users in strict mode: mypy and pyright find no error in right ones, and each mistake in wrong ones."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.digests import assert_same

ROOT = Path(__file__).resolve().parents[2]
EDITOR = """
import graphfeed as gf
from torch import Tensor


class Doubled(gf.Transform, name="double"):
    times: int = 2

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return gf.MiniBatch(seeds=minibatch.seeds * self.times)


class Marked(gf.MiniBatch):
    marks: Tensor


def use(minibatch: Marked) -> int:
    return len(minibatch.marks)


class MySampler(gf.ItemSampler):
    def __init__(self, item_set: gf.ItemSet) -> None:
        super().__init__(item_set, 2, shuffle=True)


pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
pipe = pipe.sample_neighbor(gf.from_coo(([0], [1]), 4), [1]).transform()
pipe = Doubled(pipe, times=3)
print(len(pipe), len(MySampler(gf.ItemSet(4))))  # pyright: ignore[reportCallIssue]
for minibatch in gf.DataLoader(pipe):
    reveal_type(minibatch)
    hop = minibatch.sampled_subgraphs[0]
    print(minibatch.labels["synset"], hop.sampled_csc["a:b:c"].indices)
for data in gf.DataLoader(pipe.to_pyg_data()):
    reveal_type(data)
"""
READER = """# pyright: strict
import torch
from torch import Tensor

import graphfeed as gf


class Columns(gf.SubgraphSampler):
    graph: gf.SamplingGraph

    def sample_subgraphs(
        self, seeds: Tensor, seeds_timestamp: Tensor | None = None, seeds_pre_time_window: Tensor | None = None
    ) -> tuple[Tensor, list[gf.SampledSubgraph]]:
        hop = self.graph.in_subgraph(seeds)
        rows, csc, _ = gf.unique_and_compact_csc_formats(hop.sampled_csc, seeds)
        return rows, [gf.SampledSubgraph(csc, seeds, rows, hop.original_edge_ids)]


def read(minibatch: gf.MiniBatch) -> Tensor:
    x = minibatch.node_features["x"]
    for hop, weights in zip(minibatch.sampled_subgraphs, minibatch.edge_features, strict=True):
        columns = torch.arange(len(hop.sampled_csc.indptr) - 1)
        assert torch.equal(hop.original_row_node_ids[columns], hop.original_column_node_ids)
        assert hop.original_edge_ids.shape == hop.sampled_csc.indices.shape == weights["w"][:, 0].shape
        data = hop.to_pyg(x)
        x = data.x[0][: data.size[1]]
    assert torch.equal(minibatch.input_nodes[minibatch.compacted_seeds], minibatch.seeds)
    assert torch.equal(minibatch.seed_edge_features["w"][:, 0], minibatch.seed_edge_ids)
    assert minibatch.indexes is None and len(x) == int(minibatch.compacted_seeds.max()) + 1
    return minibatch.labels[minibatch.timestamp - minibatch.pre_time_window > 0]


def read_types(minibatch: gf.MiniBatch) -> dict[str, Tensor]:
    x = {kind: minibatch.node_features[kind, "x"] for kind in minibatch.input_nodes}
    for hop in minibatch.sampled_subgraphs:
        for edge_type, csc in hop.sampled_csc.items():
            assert csc.indices.shape == hop.original_edge_ids[edge_type].shape
        data = hop.to_pyg(x)
        x = {kind: data.x[0][kind][: len(ids)] for kind, ids in hop.original_column_node_ids.items()}
    assert all(len(x[kind]) == len(ids) for kind, ids in minibatch.seeds.items())
    return minibatch.labels
"""
READ = [
    *(f"minibatch.{field.name}" for field in fields(gf.MiniBatch)),
    *(f"hop.{field.name}" for field in fields(gf.SampledSubgraph)),
]
MISSPELT = (
    "import graphfeed as gf\n\n\ndef read(minibatch: gf.MiniBatch, hop: gf.SampledSubgraph) -> None:\n"
    + "".join(f"    {name}.shaep\n" for name in READ)
)
WRONG = """
import graphfeed as gf

pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batches=2)
pipe.sample_neighbors(1)
print(gf.MiniBatch().nod_features)
"""


ON_DISK = """
import graphfeed as gf

dataset = gf.OnDiskDataset("folder").load()
pipe = gf.ItemSampler(dataset.tasks[0].train_set, batch_size=2)
pipe = pipe.sample_neighbor(dataset.graph, [1]).fetch_feature(dataset.feature, ["feat"])
"""


def run_checker(folder: Path, *command: str, cwd: Path) -> str:
    """Return the output of a type checker for the programs in a folder."""
    readme = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    programs = {"readme": "\n".join(readme), "editor": EDITOR, "on_disk": ON_DISK}
    programs |= {"reader": READER, "wrong": WRONG, "misspelt": MISSPELT}
    programs |= {f"tutorial_{path.stem}": path.read_text() for path in (ROOT / "tutorials").glob("[0-9]*.py")}
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", *command, *(str(folder / f"{name}.py") for name in programs))
    return subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True).stdout


def lines_of(program: str, output: str) -> set[int]:
    """Return the lines of a program with errors."""
    return {int(line) for line in re.findall(rf"\b{program}\.py:(\d+):.* error: ", output)}


def test_the_program_that_reads_mini_batches_runs() -> None:
    names: dict[str, Any] = {"__name__": "reader"}
    exec(READER, names)
    edges, ids = torch.tensor([[1, 2, 3, 0], [0, 0, 1, 2]]), torch.arange(4)
    row = gf.TorchBasedFeature(ids[:, None])
    store = gf.BasicFeatureStore({("node", None, "x"): row, ("edge", None, "w"): row})
    items = {"seeds": edges.T, "seed_edge_ids": ids, "labels": ids, "timestamp": ids, "pre_time_window": ids // 2}
    pipe = gf.ItemSampler(gf.ItemSet(tuple(items.values()), names=tuple(items)), batch_size=4)
    pipe = names["Columns"](pipe, gf.from_coo(edges, num_nodes=4))
    (minibatch,) = pipe.fetch_feature(store, ["x"], ["w"], seed_edge_feature_keys=["w"])
    assert_same(names["read"](minibatch), ids[1:])
    seeds = gf.HeteroItemSet({"item": gf.ItemSet((ids, ids), names=("seeds", "labels"))})
    pipe = gf.ItemSampler(seeds, batch_size=4)
    pipe = pipe.sample_neighbor(gf.from_coo({"user:likes:item": edges}, {"user": 4, "item": 4}), [1, 1])
    store = gf.BasicFeatureStore({("node", kind, "x"): row for kind in ("user", "item")})
    (minibatch,) = pipe.fetch_feature(store, {"user": ["x"], "item": ["x"]})
    assert_same(names["read_types"](minibatch), {"item": ids})


@pytest.mark.thorough
def test_mypy_takes_programs_and_finds_mistakes(tmp_path: Path) -> None:
    # Torch's own `backward` has no types, nor has PyG. The other settings and the cache are those of `make types`.
    untyped = [f"--disable-error-code={code}" for code in ("import-untyped", "no-untyped-call")]
    found = run_checker(tmp_path, "mypy", *untyped, cwd=ROOT)
    assert re.findall(r'Revealed type is "(.*)"', found) == ["graphfeed.datapipes.minibatch.MiniBatch", "Any"]
    assert len(lines_of("misspelt", found)) == len(READ), found
    errors = [line for line in found.splitlines() if "error:" in line and "misspelt.py" not in line]
    assert len(errors) == 3, found
    assert 'wrong.py:4: error: Unexpected keyword argument "batches"' in errors[0]
    assert 'wrong.py:5: error: "Datapipe[MiniBatch]" has no attribute "sample_neighbors"' in errors[1]
    assert 'wrong.py:6: error: "MiniBatch" has no attribute "nod_features"; maybe "node_features' in errors[2]


@pytest.mark.thorough
def test_pyright_takes_programs_and_finds_mistakes(tmp_path: Path) -> None:
    # Pyright, with a Node.js that pip installs.
    pytest.importorskip("basedpyright")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    found = run_checker(tmp_path, "basedpyright", "--pythonpath", sys.executable, cwd=tmp_path)
    assert re.findall(r'Type of "(\w+)" is "(.*)"', found) == [("minibatch", "MiniBatch"), ("data", "Any")]
    errors = [line for line in found.splitlines() if " - error: " in line]
    assert {Path(line.partition(":")[0].strip()).name for line in errors} == {"misspelt.py", "wrong.py"}, found
    assert len(lines_of("misspelt", found)) == len(READ), found
    assert all(any(name in line for line in errors) for name in ('"sample_neighbors"', '"nod_features"'))
