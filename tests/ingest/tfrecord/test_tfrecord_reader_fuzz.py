"""Files with wrong bytes: an error that names the file, never a crash, a hang, or rows that were not written."""

from pathlib import Path

import pytest

from tests.ingest.damage import in_memory
from tests.scripts import run

MUTATIONS = 1000

PROGRAM = """
import random, resource, sys, tempfile
from pathlib import Path
import torch
from graphfeed.ingest import FixedLenFeature, read_tfrecords, write_tfrecords
from tests.ingest.damaged import damaged

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
    # Without a record nobody can tell how long texts are.
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
        # Of an empty file nobody can tell that it was compressed.
        assert read == rows or compression is None or not data, (count, data)
        kept += 1
print(refused, kept)
"""


@pytest.mark.parametrize(
    ("seed", "mutations"), [(0, MUTATIONS), pytest.param(1, 10 * MUTATIONS, marks=pytest.mark.slow)]
)
def test_damaged_files_are_refused(tmp_path: Path, seed: int, mutations: int) -> None:
    with in_memory(tmp_path) as folder:
        done = run("-c", PROGRAM, str(seed), str(mutations), str(folder), seconds=100 + mutations / 50)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, _ = map(int, done.stdout.split())
    assert refused > 0.7 * mutations


@pytest.mark.slow
def test_kernels_in_plain_python_find_no_index_beyond_an_array(tmp_path: Path) -> None:
    """Without a compiler, an index beyond the end raises an error of its own, which the program doesn't catch."""
    done = run("-c", PROGRAM, "2", "200", str(tmp_path), NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr[-3000:]
