"""A run that was interrupted and goes on with the same specification, or with another one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.ingest.interrupted import Stopped, stop_before
from tests.on_disk import arrays

TABLES: dict[str, Any] = {
    "a": np.array([0, 1, 2, 2]),
    "b": np.array([1, 2, 0, 1]),
    "y": np.array(["z", "m", "a", "z"]),
    "w": np.array([0.5, 1.5, 2.5, 3.5]),
}


def spec_of(folder: Path, edges: dict[str, dict[str, Any]], count: int = 3) -> Spec:
    np.savez(folder / "edges.npz", **TABLES) if not (folder / "edges.npz").exists() else None
    tables = {kind: EdgeTable("edges.npz", source="a", destination="b", **own) for kind, own in edges.items()}
    ends = {end for kind in edges for end in kind.split(":")[::2]}
    return Spec(tables, {end: NodeTable(count=count) for end in ends}, folder=folder)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"n:r:n": {"label": "y"}}, {"n:r:n": {"label": "y"}}),
        ({"n:r:n": {}, "n:s:n": {}}, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}),
        ({"n:r:n": {}}, {"n:r:n": {"weight": "w"}}),
        ({"n:r:n": {"features": {"w": "w", "a": "a"}, "label": "y"}}, {"n:r:n": {}}),
        ({"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}, {"n:r:n": {}}),
        ({"m:r:m": {}, "n:r:m": {}}, {"m:r:m": {}, "m:r:n": {}}),
        ({"n:r:n": {}}, {"edge": {}}),
    ],
    ids=["same", "more features", "a weight", "fewer features", "fewer types", "other ends", "no types"],
)
@pytest.mark.parametrize("step", ["edges 0", "sort"])
def test_a_run_that_goes_on_gives_what_a_new_one_gives(tmp_path: Path, before: Any, after: Any, step: str) -> None:
    stop_before(spec_of(tmp_path, before), tmp_path / "out", step)
    spec = spec_of(tmp_path, after)
    build_dataset(spec, tmp_path / "out")
    build_dataset(spec, tmp_path / "anew")
    found, expected = arrays(tmp_path / "out"), arrays(tmp_path / "anew")
    assert list(found) == list(expected)
    assert all(found[name].tolist() == expected[name].tolist() for name in found)
    one, other = ((tmp_path / name / "graphfeed/metadata.yaml").read_text() for name in ("out", "anew"))
    assert re.sub(r"written: \d+", "", one) == re.sub(r"written: \d+", "", other)


def test_a_step_whose_files_another_specification_has_replaced_is_done_again(tmp_path: Path) -> None:
    first = spec_of(tmp_path, {"n:r:n": {"features": {"w": "w"}}})
    stop_before(first, tmp_path / "out", "sort")
    stop_before(spec_of(tmp_path, {"n:r:n": {"features": {"w": "a"}}}), tmp_path / "out", "edges 0")
    dataset = build_dataset(first, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:r:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def test_a_step_whose_files_were_removed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = spec_of(tmp_path, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}})
    stop_before(both, tmp_path / "out", "sort")
    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.ingest.build.dataset_builder.write_text", stop)
        with pytest.raises(Stopped):
            build_dataset(spec_of(tmp_path, {"n:r:n": {}}), tmp_path / "out")
    dataset = build_dataset(both, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:s:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def stop(*_: Any) -> None:
    raise Stopped
