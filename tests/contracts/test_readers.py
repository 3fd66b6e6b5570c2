"""Readers of files from outside: what strangers, broken disks and lost files can do to them."""

import io
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.kinds.readers import FORMATS, READERS
from tests.stand_ins.scripts import run

SUFFIXES = {".npy", ".npz", ".pt", ".pkl", ".yaml"}
"""Formats of files in which a stranger can put an object."""


class Touches:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


class WithStorage:
    """Pickles as a tensor whose storage is the given content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        return torch.storage._load_from_bytes, (self.content,)


def save_by_torch(file: io.BytesIO, value: Any, **options: Any) -> None:
    torch.save(value, file, **options)


def saved(write: Callable[..., Any], *values: Any, **options: Any) -> bytes:
    """Return the content of a file that a function of NumPy or torch writes."""
    content = io.BytesIO()
    write(content, *values, **options)
    return content.getvalue()


def contents(path: Path, marker: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files in the format of a file, and in similar formats, with an object that creates the marker."""
    evil = Touches(marker)
    if path.suffix == ".yaml":
        call = f"!!python/object/apply:os.mkdir ['{marker}']"
        yield "a call", f"{call}\n".encode()
        yield "a call as a value", path.read_bytes() + f"\nmore: {call}\n".encode()
        yield "a call as a key", path.read_bytes() + f"\n? {call}\n: 1\n".encode()
        return
    yield "a pickle", pickle.dumps(evil, protocol=2)  # torch warns of other protocols
    objects, fields = np.array([evil] * 4, dtype=object), np.zeros(4, dtype=[("a", "i8"), ("b", object)])
    fields["b"] = objects
    if path.suffix in {".npy", ".npz"}:
        names = np.load(path).files if path.suffix == ".npz" else ["a"]
        for name, array in (("objects", objects), ("structures", fields)):
            yield f"an array of {name}", saved(np.save, array)
            yield f"an archive of {name}", saved(np.savez, **dict.fromkeys(names, array))
    elif path.suffix == ".pt":
        values: dict[str, Any] = {"an object": evil, "a dict": {"a": evil}, "an array": objects}
        for name, value in values.items():
            yield name, saved(save_by_torch, value)
        yield "an object in the old format", saved(save_by_torch, evil, _use_new_zipfile_serialization=False)
    else:
        parts = {"an object": pickle.dumps(evil), "a storage": pickle.dumps(WithStorage(saved(save_by_torch, evil)))}
        for name, content in parts.items():
            yield name, content
            yield f"{name} after a tensor", pickle.dumps(torch.zeros(2)) + content


NO_OBJECTS = {"load_graph of save", "read_tfrecords", *(name for name in FORMATS if not name.endswith(".npz"))}
"""Readers of files that can't contain objects."""
SLOW = [
    name for name in READERS if name.startswith(("build", "a guess", "OnDisk", "inspect_d", "open", "Cluster", "Graph"))
]
"""Readers that take more than some milliseconds."""
MADE_ANEW = {"ClusterData", "GraphSAINTNodeSampler"}
"""Readers that write a missing file again."""
OPTIONAL = {"feats.pkl", "weights.pt"}
TEXTS = {".csv", ".ndjson", ".yaml", ".json", ".tfrecord"}
"""Files that may end after any line or record."""
ERRORS = (ValueError, TypeError, OSError, KeyError, IndexError)


@pytest.mark.parametrize("name", [name for name in READERS if name not in NO_OBJECTS])
def test_an_object_in_any_file_is_an_error_and_runs_no_code(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    whole, marker = tmp_path / "whole", tmp_path / "marker"
    whole.mkdir()
    write(whole)
    shutil.copytree(whole, tmp_path / "good")
    read(tmp_path / "good")
    files = [path for path in sorted(whole.rglob("*")) if path.suffix in SUFFIXES]
    assert files
    wrong = []
    for number, path in enumerate(files):
        for place, (kind, content) in enumerate(contents(path, marker)):
            folder = Path(shutil.copytree(whole, tmp_path / f"{number} {place}"))
            changed = folder / path.relative_to(whole)
            changed.write_bytes(content)
            try:
                read(folder)
                wrong.append(f"{changed.name} with {kind}: no error")
            except Exception as error:
                if not isinstance(error, ValueError):
                    wrong.append(f"{changed.name} with {kind}: {error!r}")
            if marker.exists():
                wrong.append(f"{changed.name} with {kind}: code was run")
                marker.rmdir() if marker.is_dir() else marker.unlink()
    assert wrong == []


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return content that was truncated, or in which bits, bytes or whole ranges were changed."""
    changed = bytearray(content)
    place, size = chance.randrange(len(content)), chance.randrange(1, 40)
    way = chance.randrange(6)
    if way == 0:
        return content[:place]
    if way == 1:
        changed[place : place + size] = chance.randbytes(chance.randrange(40))
    elif way == 2:
        # Bytes that readers interpret as continued or as zero lengths.
        changed[place : place + size] = chance.choice([b"\xff", b"\x80", b"\x00"]) * size
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(content))
            changed[place] = chance.randrange(256) if way == 3 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)


def read_damaged(name: str, times: int, tmp_path: Path) -> list[str]:
    """Damage each file of a reader, and return what was read without an error, or with a wrong one."""
    write, read = READERS[name]
    whole, folder = tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    write(whole)
    chance, wrong = random.Random(f"{name} {times}"), []
    count = times * (1 if name in SLOW else 20)
    for path in [path for path in sorted(whole.rglob("*")) if path.is_file()]:
        content, file = path.read_bytes(), folder / path.relative_to(whole)
        cuts = [content[: int(len(content) * share)] for share in (0.0, 0.6)]
        for changed in [None, *cuts, *[damaged(content, chance) for _ in range(count if content else 0)]]:
            shutil.copytree(whole, folder)
            file.unlink() if changed is None else file.write_bytes(changed)
            try:
                read(folder)
                may_be_shorter = changed is not None and file.suffix in TEXTS
                if changed in (None, *cuts) and not (name in MADE_ANEW or file.name in OPTIONAL or may_be_shorter):
                    wrong.append(f"{file.name} with {changed!r:.60}: no error")
            except Exception as error:
                if not isinstance(error, ERRORS) or len(str(error)) < 10:
                    wrong.append(f"{file.name} with {changed!r:.60}: {error!r}")
            shutil.rmtree(folder)
    return wrong


each_time = pytest.mark.parametrize("times", [1, pytest.param(8, marks=[pytest.mark.slow, pytest.mark.thorough])])


@pytest.mark.filterwarnings("ignore")  # libraries warn about the content of such files
@each_time
@pytest.mark.parametrize("name", [name for name in READERS if name not in FORMATS])
def test_a_file_that_was_cut_changed_or_removed_is_an_error_or_a_value(name: str, times: int, tmp_path: Path) -> None:
    """A library that reads such a file may also end the process."""
    assert read_damaged(name, times, tmp_path) == []


@pytest.mark.filterwarnings("ignore")
@each_time
def test_so_is_one_of_each_format_of_tables(times: int, tmp_path: Path) -> None:
    for place, name in enumerate(FORMATS):
        (tmp_path / str(place)).mkdir()
        assert read_damaged(name, times, tmp_path / str(place)) == []


@pytest.mark.slow
@pytest.mark.thorough
def test_kernels_in_plain_python_find_no_index_beyond_an_array() -> None:
    """Without a compiler, an index beyond the end raises an IndexError, which is no error of `read_tfrecords`."""
    chosen = ["-k", "test_a_file_that_was_cut and read_tfrecords-1]", "-p", "no:cacheprovider"]
    done = run("-m", "pytest", "-q", __file__, *chosen, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("name", ["OnDiskDataset", "OnDiskDataset after build_dataset", "inspect_dataset", "open_part"])
def test_no_path_in_a_file_leads_out_of_its_folder(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    whole, folder, refused = tmp_path / "whole", tmp_path / "folder", 0
    whole.mkdir()
    write(whole)
    (named,) = [path for path in whole.rglob("*") if path.name in {"metadata.yaml", "partition.json"}]
    for path in sorted(named.parent.rglob("*.npy")):
        relative, other = str(path.relative_to(named.parent)), Path(shutil.copy(path, tmp_path / path.name))
        above = "../" * (len(named.relative_to(tmp_path).parts) - 1)
        for given in (None, f"{above}{path.name}", str(other)):
            shutil.copytree(whole, folder)
            changed = folder / named.relative_to(whole)
            before = changed.read_text()
            if given is None:
                (changed.parent / relative).unlink()
                (changed.parent / relative).symlink_to(other)
            else:
                changed.write_text(re.sub(rf'(path"?: "?){re.escape(relative)}', rf"\g<1>{given}", before))
            if given is None or changed.read_text() != before:
                with pytest.raises(ValueError, match="out of the"):
                    read(folder)
                refused += 1
            shutil.rmtree(folder)
    assert refused > 3
