"""Hashes of mini-batches are stored in golden_bits.json: a release changes them only with a reason in CHANGELOG.md.

After such a change, `python -m tests.laws.test_golden_bits --write` updates the file. The changelog then needs an entry
that begins with the new fingerprint of the file, which the failing test shows.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds.golden_pipelines import ALL
from tests.stand_ins.scripts import REPOSITORY, run, without_kernels

ROOT = Path(__file__).resolve().parents[2]
HELD = ROOT / "tests" / "laws" / "golden_bits.json"
FIELDS = ("seeds", "labels", "indexes", "timestamp", "compacted_seeds", "input_nodes", "node_features", "edge_features")
SUBGRAPH_FIELDS = ("original_row_node_ids", "original_column_node_ids", "original_edge_ids")


def parts(value: Any) -> Iterable[bytes]:
    """Yield dtypes, shapes and bytes of the tensors in a value, with the keys of dicts."""
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{list(value.shape)}".encode()
        yield value.contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from parts(value[key])
    elif isinstance(value, (list, tuple)):
        yield str(len(value)).encode()
        for part in value:
            yield from parts(part)
    elif isinstance(value, gf.CSCFormatBase):
        yield from parts([value.indptr, value.indices])
    elif isinstance(value, gf.SampledSubgraph):
        yield from parts([value.sampled_csc, *(getattr(value, name) for name in SUBGRAPH_FIELDS)])
    else:
        assert value is None or isinstance(value, (int, str))
        yield str(value).encode()


def content(minibatch: Any) -> Any:
    """Return the fields of a mini-batch, or of PyG's data."""
    if not isinstance(minibatch, gf.MiniBatch):
        return minibatch.to_dict()
    return [[getattr(minibatch, name) for name in FIELDS], minibatch.sampled_subgraphs]


def digest(minibatches: Iterable[Any]) -> str:
    """Return a hash of the tensors of mini-batches; names of classes and private attributes do not matter."""
    total = hashlib.sha256()
    for minibatch in minibatches:
        for part in parts(content(minibatch)):
            total.update(part)
    return total.hexdigest()[:16]


def measure(name: str, num_workers: int = 2) -> str:
    """Return the digest of two epochs of a pipeline."""
    made = ALL[name]()
    with made if isinstance(made, gf.DataLoader) else gf.DataLoader(made, num_workers=num_workers, seed=11) as loader:
        return digest(minibatch for _ in range(2) for minibatch in loader)


NARROW = [name for name in ALL if name.endswith(", int32")]
"""Pipelines that compile kernels for ids of 32 bits."""


@pytest.mark.parametrize("narrow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_mini_batches_have_the_bits_that_are_held(narrow: bool) -> None:
    held = json.loads(HELD.read_text())
    assert list(held) == list(ALL)
    names = [name for name in ALL if (name in NARROW) == narrow]
    assert {name: measure(name) for name in names} == {name: held[name] for name in names}


def test_the_changelog_has_a_reason_for_the_bits_that_are_held() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(r"^## Held mini-batches\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    assert section
    latest = re.search(r"^- `(\w+)`, \d+\.\d+\.\d+: \S", section[1], re.MULTILINE)
    assert latest
    assert latest[1] == hashlib.sha256(HELD.read_bytes()).hexdigest()[:12], "put an entry with the reason on top"


def test_a_digest_knows_every_bit_and_no_names() -> None:
    def batch(**changes: Any) -> gf.MiniBatch:
        csc = gf.CSCFormatBase(torch.tensor([0, 1]), changes.pop("indices", torch.tensor([0])))
        layer = gf.SampledSubgraph(csc, original_column_node_ids=torch.tensor([5]))
        return gf.MiniBatch(sampled_subgraphs=[layer], **{"seeds": torch.tensor([5]), **changes})

    assert digest([batch()]) == digest([batch(key=gf.Key(1, 2, 3))])
    others = [batch(indices=torch.tensor([1])), batch(seeds=torch.tensor([5], dtype=torch.int32)), batch(labels={})]
    assert len({digest([other]) for other in [batch(), *others]}) == 4
    assert digest([batch()]) != digest([batch(), batch()])


PIPELINES = [
    "uniform, int64",
    "replace, int32",
    "weighted, int64",
    "LABOR, int64",
    "not deduplicated",
    "in time by both",
    "in time, latest",
    "links, excluded",
    "typed, fan-outs by type",
    "typed, in subgraph",
    "features",
]
"""They call the kernels of all kinds of sampling."""
AROUND_HUBS = ["hubs, new nodes", "hubs, disjoint", "hubs, LABOR", "hubs in time, window of both, weighted"]
ROWS = """
import torch
from graphfeed import ops
state = ops.new_policy("s3-fifo", 4)
for first in range(9):
    print(ops.replace_keys(state, torch.arange(first, first + 3)).tolist())
sets = ops.new_sets(40)
print(ops.replace_in_sets(sets, torch.arange(60), request=0).tolist())
rows = torch.arange(30).view(10, 3)
print(ops.delete_rows(rows, torch.tensor([1, 4])).tolist())
with open(FILE, "rb") as file:
    out = torch.zeros(3, 3, dtype=torch.int64)
    ops.read_rows(file.fileno(), 0, torch.tensor([0, 2, 2]), out, torch.tensor([2, 0, 1]))
print(out.tolist(), ops.permute(0, 5, 5000, 1).tolist(), ops.isin(torch.arange(4), torch.tensor([2, -1])).tolist())
"""


def printed(script: str, *arguments: str, **settings: str) -> str:
    """Run a script with settings of Numba; return its output."""
    done = run("-c", script, *arguments, cwd=REPOSITORY, seconds=280, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(pipelines: list[str], **settings: str) -> dict[str, str]:
    """Return the digests of pipelines under settings of Numba."""
    script = "import json, sys\nfrom tests.laws.test_golden_bits import measure\n"
    script += "print(json.dumps({name: measure(name) for name in json.loads(sys.argv[1])}))"
    found: dict[str, str] = json.loads(printed(script, json.dumps(pipelines), **settings))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "pipelines",
    [PIPELINES[:1], *(pytest.param(own, marks=pytest.mark.thorough) for own in (PIPELINES[1:], AROUND_HUBS))],
    ids=["one", "others", "around hubs"],
)
def test_without_a_compiler_mini_batches_are_the_same(pipelines: list[str]) -> None:
    held = json.loads(HELD.read_text())
    assert digests(pipelines, NUMBA_DISABLE_JIT="1") == {name: held[name] for name in pipelines}


@pytest.mark.thorough
def test_without_a_compiler_rows_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(range(72)))
    script = ROWS.replace("FILE", repr(str(tmp_path / "rows")))
    assert printed(script, NUMBA_DISABLE_JIT="1") == printed(script)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [{"NUMBA_BOUNDSCHECK": "1"}, {"NUMBA_OPT": "0", "NUMBA_CPU_NAME": "generic"}],
    ids=["checked", "generic"],
)
def test_other_settings_change_no_mini_batch(settings: dict[str, str], tmp_path: Path) -> None:
    name = "uniform, int64"
    assert digests([name], **without_kernels(tmp_path), **settings) == {name: measure(name)}


if __name__ == "__main__" and "--write" in sys.argv:
    HELD.write_text(json.dumps({name: measure(name) for name in ALL}, indent=2) + "\n")
