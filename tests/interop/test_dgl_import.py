"""DGL's GraphBolt is tied to one release of torch; what else DGL has is not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "dgl==2.1.0"
PROGRAM = """
import graphfeed.interop.dgl
import dgl
import dgl.graphbolt as gb
import dgl.nn
import torch

theirs = dgl.graph((torch.tensor([1, 2, 3, 0]), torch.tensor([0, 0, 0, 1])))
theirs.ndata["time"] = torch.arange(4)
graph = gb.from_dglgraph(theirs, is_homogeneous=True)
assert graph.node_attributes["time"].tolist() == [0, 1, 2, 3]
items = gb.ItemSet(torch.arange(4), names="seeds")
minibatch = next(iter(gb.ItemSampler(items, batch_size=2).sample_neighbor(graph, [2, 2])))
inner, outer = dgl.nn.SAGEConv(3, 4, "mean"), dgl.nn.SAGEConv(4, 2, "mean")
first, second = minibatch.blocks
scores = outer(second, inner(first, torch.rand(len(minibatch.input_nodes), 3)))
scores.sum().backward()
print(gb.__name__, tuple(scores.shape), inner.fc_neigh.weight.grad is not None)
"""

IN_FORKS = """
import os, sys, graphfeed
for program in sys.argv[1:]:
    if os.fork() == 0:
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
"""Runs each program in a process that has imported graphfeed, and neither DGL nor what stands for it."""


def run(program: str, folder: Path, *arguments: str) -> str:
    """Return what a program prints that imports from a folder."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "DGLBACKEND": "pytorch"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what programs print beside a package that imports its GraphBolt as DGL does, which fails."""
    folder = tmp_path_factory.mktemp("dgl")
    (folder / "dgl" / "graphbolt").mkdir(parents=True)
    (folder / "dgl" / "__init__.py").write_text("from . import graphbolt\nNID = EID = '_ID'\n")
    (folder / "dgl" / "graphbolt" / "__init__.py").write_text("import torchdata.datapipes\n")
    programs = [
        "import graphfeed.interop.dgl, dgl, dgl.graphbolt as gb; print(gb.__name__, dgl.NID)",
        "print(graphfeed.MiniBatch(sampled_subgraphs=[]).blocks, 'dgl' in sys.modules)",
        "sys.modules['torchdata.datapipes'] = sys; import dgl, graphfeed.interop.dgl; print(dgl.graphbolt.__name__)",
    ]
    return run(IN_FORKS, folder, *programs).splitlines()


def test_dgl_imports_beside_any_torch_after_graphfeed(printed: list[str]) -> None:
    assert printed[0] == "graphfeed _ID"


def test_blocks_import_a_dgl_that_nobody_has_imported(printed: list[str]) -> None:
    assert printed[1] == "[] True"


def test_a_dgl_that_is_imported_keeps_its_graphbolt(printed: list[str]) -> None:
    assert printed[2] == "dgl.graphbolt"


@pytest.mark.slow
def test_models_of_a_published_dgl_train_on_blocks(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path)]
    for packages in (["--no-deps", WHEEL], ["pandas", "pydantic"]):  # what else it needs is among our own
        done = subprocess.run([*install, *packages], capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"{packages[-1]} can't be installed here")
    assert run(PROGRAM, tmp_path) == "graphfeed (2, 2) True"
