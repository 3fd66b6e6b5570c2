"""Encoding the features of a data set."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.storage import EncodedFeature, TorchBasedFeature
from graphfeed.storage.datasets.encode import encode_dataset
from tests.kinds.digests import assert_same
from tests.kinds.on_disk import save, untyped, write


def rows_of(count: int, columns: int) -> TorchBasedFeature:
    return TorchBasedFeature(torch.randn(count, columns, generator=torch.Generator().manual_seed(0)))


def stop(*_: Any) -> None:
    raise KeyboardInterrupt("Ctrl-C")


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def features(folder: Path) -> list[dict[str, Any]]:
    """Write the rows of two types, of which the last one has a number without a code."""
    entries = []
    for kind, last in (("a", 1.0), ("b", np.nan)):
        np.save(folder / f"{kind}.npy", np.array([[0.5], [last]], np.float32))
        entries.append({"domain": "node", "type": kind, "name": "x", "format": "numpy", "path": f"{kind}.npy"})
    return entries


@pytest.mark.parametrize(
    ("place", "failing", "kind", "words"),
    [
        (None, None, ValueError, "row 1 of the feature has nan in column 0"),
        ("graphfeed.storage.datasets.encode.write_array", stop, KeyboardInterrupt, "Ctrl-C"),
        ("os.posix_fallocate", full, OSError, r"No space left on device; it takes up to 2 bytes, .*_codes\.npy"),
    ],
)
def test_codes_that_are_not_complete_leave_the_folder_as_it_was(
    place: Any, failing: Any, kind: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "edges.npy", np.zeros((2, 1), np.int64))
    edges = [{"type": "a:r:b", "format": "numpy", "path": "edges.npy"}]
    nodes = [{"type": kind, "num": 2} for kind in "ab"]
    write(
        tmp_path, {"dataset_name": "d", "graph": {"nodes": nodes, "edges": edges}, "feature_data": features(tmp_path)}
    )
    gf.OnDiskDataset(tmp_path).load()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    if place is not None:
        monkeypatch.setattr(place, failing)
    with pytest.raises(kind, match=words):
        encode_dataset(tmp_path, "x", 8)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = rows_of(40, 3).read().numpy()
    nodes = {
        "a": NodeTable({f"x{number}": values[:, number] for number in range(3)}, features={"x": ["x0", "x1", "x2"]})
    }
    edges = EdgeTable({"s": np.arange(40), "d": np.arange(40)[::-1]}, source="s", destination="d")
    build_dataset(Spec({"a:r:a": edges}, nodes, "little"), tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize(("bits", "per"), [("8", "column"), ("8", "row"), ("4", "column"), ("float16", "column")])
def test_a_feature_of_a_dataset_is_encoded_in_place_of_its_rows(
    bits: str, per: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = gf.OnDiskDataset(folder).load().feature["node", "a", "x"]
    wanted = rows.encode(getattr(torch, bits) if bits == "float16" else int(bits), per=per)
    assert main(["encode", str(folder), "--feature", "x", "--bits", bits, "--per", per]) == 0
    assert capsys.readouterr().out == f"{wanted!r}\n"
    for in_memory in (True, False):
        dataset = gf.OnDiskDataset(folder)
        dataset.yaml_data["feature_data"][0]["in_memory"] = in_memory
        found = dataset.load().feature["node", "a", "x"]
        assert repr(found) == repr(wanted)
        assert "encoding" not in found.metadata()
        assert isinstance(found, EncodedFeature)
        assert found.slow_source() is (None if in_memory else found.stored), "windows have codes"
        assert_same(found.read(torch.tensor([7, 0, 39])), wanted.read(torch.tensor([7, 0, 39])))
    assert main(["inspect", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"0 NaN; {wanted.describe_codes()}" in printed
    assert "; all files are unchanged" in printed
    for name in ("x", "nothing"):
        assert main(["encode", str(folder), "--feature", name]) == 1
    assert "is encoded already" in (errors := capsys.readouterr().err)
    assert "has no feature 'nothing'; it has ['x']" in errors
    (codes,) = folder.rglob("*_codes.npy")
    np.save(codes, np.load(codes)[:, :1])
    with pytest.raises(ValueError, match=r"codes\.npy doesn't fit its encoding"):
        gf.OnDiskDataset(folder).load()


def test_an_encoding_of_a_source_is_kept_when_it_is_preprocessed(tmp_path: Path) -> None:
    data, feature = untyped(tmp_path), rows_of(4, 2).encode(8)
    entry = data["feature_data"][0]
    entry |= save(tmp_path, "codes.npy", feature.stored.read())
    files = {name: save(tmp_path, f"{name}.npy", array)["path"] for name, array in feature.arrays().items()}
    entry["encoding"] = {"bits": 8, **files}
    dataset = gf.OnDiskDataset(write(tmp_path, data)).load()
    assert_same(dataset.feature["node", None, entry["name"]].read(), feature.read())
    entry["encoding"]["scale"] = "../scale.npy"
    with pytest.raises(ValueError, match=r"feature_data\[0\].encoding.scale is '../scale.npy', which leads to"):
        gf.OnDiskDataset(write(tmp_path, data)).load()


def test_an_edited_entry_of_a_source_keeps_the_codes_of_the_command(tmp_path: Path) -> None:
    write(tmp_path, untyped(tmp_path))
    rows = gf.OnDiskDataset(tmp_path).load().feature["node", None, "feat"]
    assert main(["encode", str(tmp_path), "--feature", "feat"]) == 0
    dataset = gf.OnDiskDataset(tmp_path)
    dataset.yaml_data["feature_data"][0]["in_memory"] = False
    found = dataset.load().feature["node", None, "feat"]
    assert isinstance(found, EncodedFeature)
    assert_same(found.read(), rows.encode().read())
    assert found.metadata() == rows.metadata()


def test_features_of_one_file_have_codes_of_their_own(tmp_path: Path) -> None:
    data = untyped(tmp_path)
    data["feature_data"].append({**data["feature_data"][0], "name": "other"})
    write(tmp_path, data)
    rows = gf.OnDiskDataset(tmp_path).load().feature["node", None, "feat"]
    assert main(["encode", str(tmp_path), "--feature", "other", "--bits", "4"]) == 0
    dataset = gf.OnDiskDataset(tmp_path)
    dataset.yaml_data["feature_data"][0]["metadata"] = {"unit": "m"}
    found = dataset.load().feature
    assert_same(found["node", None, "feat"].read(), rows.read())
    assert_same(found["node", None, "other"].read(), rows.encode(4).read())
