"""Files with flipped bits, cut ends and changed bytes give clear errors, and end no process."""

import os
import re
from pathlib import Path

import pytest

from tests.ingest.damage import CHEAP, KINDS, attack, in_memory
from tests.scripts import run

MUTATIONS = int(os.environ.get("GRAPHFEED_MUTATIONS", "30"))
"""How often the files of whole data sets are damaged: 1,000 of each kind take a minute."""
CHEAP_MUTATIONS = 50
"""How often a single file is damaged; in thorough runs, this many times as often."""


def attack_apart(kinds: list[str], first: int, count: int, folder: Path, seconds: float) -> dict[str, dict[str, int]]:
    """Damage files of each kind in a separate process; return the counts of the results by kind."""
    given = [",".join(kinds), str(first), str(count), str(folder)]
    done = run("-m", "tests.ingest.damage", *given, seconds=seconds)
    last = re.findall(r"^\w.* \d+$", done.stdout, re.MULTILINE)[-1:]
    assert done.returncode == 0, f"{last}: {done.returncode} {done.stderr[-2000:]}"
    found: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
    for kind, times, name in re.findall(r"^= (.*?): (\d+) (.*)$", done.stdout, re.MULTILINE):
        found[kind][name] = int(times)
    return found


def check(kind: str, found: dict[str, int], count: int) -> None:
    """Raise unless most damage is detected, and all of it if there are checksums."""
    assert sum(found.values()) == count
    assert [name for name in found if name.startswith("poor error")] == []
    assert found.get("error", 0) >= count // 10
    if "tfrecord" in kind:
        # A file that ends between two records is valid.
        assert found.get("other", 0) <= count // 50


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.since_torch("2.6")) if kind == "read pt" else kind for kind in CHEAP]
)
def test_damaged_files_are_errors(kind: str, tmp_path: Path) -> None:
    with in_memory(tmp_path) as folder:
        check(kind, attack(kind, 0, CHEAP_MUTATIONS, folder), CHEAP_MUTATIONS)


@pytest.mark.slow
@pytest.mark.thorough
def test_thousands_of_damaged_files_are_errors(tmp_path: Path) -> None:
    times = CHEAP_MUTATIONS * MUTATIONS
    for kind, found in attack_apart(CHEAP, CHEAP_MUTATIONS, times, tmp_path, 100 + 10 * MUTATIONS).items():
        check(kind, found, times)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, pytest.param(MUTATIONS, marks=pytest.mark.thorough)])
def test_data_sets_of_damaged_files_are_errors(tmp_path: Path, count: int) -> None:
    for kind, found in attack_apart(KINDS, 0, count, tmp_path, 100 + 10 * count).items():
        check(kind, found, count)


PROGRAM = """
import random, resource, sys, tempfile
from pathlib import Path
import torch
from graphfeed.ingest import FixedLenFeature, read_tfrecords, write_tfrecords
from tests.ingest.damage import damaged

seed, mutations = int(sys.argv[1]), int(sys.argv[2])
folder = Path(tempfile.mkdtemp(dir=sys.argv[3]))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)  # a length that is believed takes more
rows = 12
torch.manual_seed(seed)
columns = {
    "id": torch.randint(-(2**40), 2**40, (rows,)), "pair": torch.randint(0, 300, (rows, 2)),
    "w": torch.rand(rows, 3), "long": torch.rand(rows, 40), "name": torch.randint(0, 255, (rows, 5)).byte(),
}
specs = {
    "id": FixedLenFeature([], "int64", 5), "name": FixedLenFeature([], "string"), "w": FixedLenFeature([3], "float"),
}
chance, path = random.Random(seed), folder / "damaged"


def same(found, rows):
    # Without a record, the length of strings is unknown.
    return all(torch.equal(found[name], columns[name][:rows]) if rows else not len(found[name]) for name in found)


refused = kept = 0
for number, compression in enumerate([None, "gzip"]):
    file = folder / f"whole-{number}"
    write_tfrecords(file, columns, compression)
    whole = file.read_bytes()
    for count in range(mutations // 2):
        data = damaged(whole, chance)
        path.write_bytes(data)
        verify = bool(count % 3)
        try:
            found = read_tfrecords(path, specs if count % 2 else None, verify=verify)
        except ValueError as error:
            assert str(path) in str(error), error
            refused += 1
            continue
        if not verify:
            continue
        # Nothing is lost but whole records at the end of a plain file, which may be as long as it likes.
        read = len(next(iter(found.values()))) if found else 0
        assert same(found, read), (count, data)
        # An empty file doesn't show that it was compressed.
        assert read == rows or compression is None or not data, (count, data)
        kept += 1
print(refused, kept)
"""


@pytest.mark.parametrize(
    ("seed", "mutations"), [(0, 200), pytest.param(1, 10_000, marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_damaged_files_are_refused(tmp_path: Path, seed: int, mutations: int) -> None:
    with in_memory(tmp_path) as folder:
        done = run("-c", PROGRAM, str(seed), str(mutations), str(folder), seconds=100 + mutations / 50)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, _ = map(int, done.stdout.split())
    assert refused > 0.7 * mutations


@pytest.mark.slow
@pytest.mark.thorough
def test_kernels_in_plain_python_find_no_index_beyond_an_array(tmp_path: Path) -> None:
    """Without a compiler, an index beyond the end raises an IndexError, which the program doesn't catch."""
    done = run("-c", PROGRAM, "2", "200", str(tmp_path), NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr[-3000:]
