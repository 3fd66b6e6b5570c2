"""What type checkers say of the programs that the pages show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EDITOR = """
import graphfeed as gf
from torch import Tensor


class Doubled(gf.Transform, name="double"):
    times: int = 2

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return gf.MiniBatch(seeds=minibatch.seeds * self.times)


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
    print(minibatch.labels["synset"], minibatch.mine, hop.sampled_csc["a:b:c"].indices)
for data in gf.DataLoader(pipe.to_pyg_data()):
    reveal_type(data)
"""
WRONG = """
import graphfeed as gf

pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batches=2)
pipe.sample_neighbors(1)
"""


ON_DISK = """
import graphfeed as gf

dataset = gf.OnDiskDataset("folder").load()
pipe = gf.ItemSampler(dataset.tasks[0].train_set, batch_size=2)
pipe = pipe.sample_neighbor(dataset.graph, [1]).fetch_feature(dataset.feature, ["feat"])
"""


def run_checker(folder: Path, *command: str, cwd: Path) -> str:
    """Return what a type checker prints of the programs, which lie in a folder."""
    readme = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    programs = {"readme": "\n".join(readme), "editor": EDITOR, "on_disk": ON_DISK, "wrong": WRONG}
    programs |= {f"tutorial_{path.stem}": path.read_text() for path in (ROOT / "tutorials").glob("[0-9]*.py")}
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = (sys.executable, "-m", *command, *(str(folder / f"{name}.py") for name in programs))
    return subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.thorough
def test_mypy_takes_programs_and_finds_mistakes(tmp_path: Path) -> None:
    # Torch's own `backward` has no types, nor has PyG. The other settings and the cache are those of `make types`.
    untyped = [f"--disable-error-code={code}" for code in ("import-untyped", "no-untyped-call")]
    found = run_checker(tmp_path, "mypy", *untyped, cwd=ROOT)
    assert re.findall(r'Revealed type is "(.*)"', found) == ["graphfeed.datapipes.minibatch.MiniBatch", "Any"]
    errors = [line for line in found.splitlines() if "error:" in line]
    assert len(errors) == 2, found
    assert 'wrong.py:4: error: Unexpected keyword argument "batches"' in errors[0]
    assert 'wrong.py:5: error: "Datapipe[MiniBatch]" has no attribute "sample_neighbors"' in errors[1]


@pytest.mark.thorough
def test_pyright_takes_programs_and_finds_mistakes(tmp_path: Path) -> None:
    # Pyright with a Node.js that pip installs.
    pytest.importorskip("basedpyright")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    found = run_checker(tmp_path, "basedpyright", "--pythonpath", sys.executable, cwd=tmp_path)
    assert re.findall(r'Type of "(\w+)" is "(.*)"', found) == [("minibatch", "MiniBatch"), ("data", "Any")]
    errors = [line for line in found.splitlines() if " - error: " in line]
    assert {Path(line.partition(":")[0].strip()).name for line in errors} == {"wrong.py"}, found
    assert any('"sample_neighbors"' in line for line in errors)
