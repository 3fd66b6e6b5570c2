"""Numba's settings, such as NUMBA_DISABLE_JIT=1 for stepping through kernels, change no mini-batch."""

import json
from pathlib import Path

import pytest

from tests.scripts import REPOSITORY, run
from tests.test_golden_bits import HELD, measure

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
    """Run a script with settings of Numba's; return what it prints."""
    done = run("-c", script, *arguments, cwd=REPOSITORY, seconds=280, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(pipelines: list[str], **settings: str) -> dict[str, str]:
    """Return the digests of pipelines under settings of Numba's."""
    script = "import json, sys\nfrom tests.test_golden_bits import measure\n"
    script += "print(json.dumps({name: measure(name) for name in json.loads(sys.argv[1])}))"
    found: dict[str, str] = json.loads(printed(script, json.dumps(pipelines), **settings))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pipelines", [PIPELINES[:1], pytest.param(PIPELINES[1:], marks=pytest.mark.thorough)])
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
    assert digests([name], GRAPHFEED_CACHE_DIR=str(tmp_path), **settings) == {name: measure(name)}
