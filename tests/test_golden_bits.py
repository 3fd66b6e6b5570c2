"""The bits of mini-batches are held in golden_bits.json: a release changes them only with a reason in CHANGELOG.md.

After such a change, `python -m tests.test_golden_bits --write` writes the file anew. The changelog then needs an entry
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
from tests.golden_pipelines import ALL

ROOT = Path(__file__).resolve().parents[1]
HELD = ROOT / "tests" / "golden_bits.json"
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
        assert value is None
        yield b"None"


def digest(minibatches: Iterable[gf.MiniBatch]) -> str:
    """Return a hash of the tensors of mini-batches; names of classes and private attributes do not matter."""
    total = hashlib.sha256()
    for minibatch in minibatches:
        for part in parts([[getattr(minibatch, name) for name in FIELDS], minibatch.sampled_subgraphs]):
            total.update(part)
    return total.hexdigest()[:16]


def measure(name: str) -> str:
    """Return the digest of two epochs of a pipeline."""
    with gf.DataLoader(ALL[name](), num_workers=2, seed=11) as loader:
        return digest(minibatch for _ in range(2) for minibatch in loader)


NARROW = [name for name in ALL if name.endswith(", int32")]
"""What compiles kernels for ids of 32 bits."""


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


if __name__ == "__main__" and "--write" in sys.argv:
    HELD.write_text(json.dumps({name: measure(name) for name in ALL}, indent=2) + "\n")
