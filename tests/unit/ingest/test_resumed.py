"""Resuming interrupted runs, with the same specification and files or with other ones."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.ingest.dataset.node_steps import write_nodes
from tests.kinds.example_tables import likes, write
from tests.kinds.on_disk import arrays, listing
from tests.stand_ins.interrupted import Stopped, stop_before

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


def test_a_run_that_goes_on_gives_what_a_new_one_gives(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"n:r:n": {"label": "y"}}, {"n:r:n": {"label": "y"}}),
        ({"n:r:n": {}, "n:s:n": {}}, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}),
        ({"n:r:n": {}}, {"n:r:n": {"weight": "w"}}),
        ({"n:r:n": {"features": {"w": "w", "a": "a"}, "label": "y"}}, {"n:r:n": {}}),
        ({"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}}, {"n:r:n": {}}),
        ({"m:r:m": {}, "n:r:m": {}}, {"m:r:m": {}, "m:r:n": {}}),
        ({"n:r:n": {}}, {"edge": {}}),
    ]
    for number, (before, after) in enumerate(cases):
        out, anew = tmp_path / f"out{number}", tmp_path / f"anew{number}"
        stop_before(spec_of(tmp_path, before), out, ["edge_0", "sort"][number % 2])
        spec = spec_of(tmp_path, after)
        build_dataset(spec, out)
        build_dataset(spec, anew)
        found, expected = arrays(out), arrays(anew)
        assert list(found) == list(expected)
        assert all(found[name].tolist() == expected[name].tolist() for name in found)
        one, other = ((folder / "graphfeed/metadata.yaml").read_text() for folder in (out, anew))
        assert re.sub(r"written: \d+", "", one) == re.sub(r"written: \d+", "", other)


def test_an_error_in_the_first_step_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="which an earlier row already has"):
        build_dataset(
            Spec({"n:r:n": EdgeTable(TABLES, source="a", destination="b")}, {"n": NodeTable(TABLES, id="a")}),
            tmp_path / "out",
        )
    assert listing(tmp_path) == []


def test_a_damaged_journal_is_no_journal(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {"n:r:n": {"features": {"w": "w"}}})
    build_dataset(spec, tmp_path / "anew")
    texts = ["", "{", "[]", '{"version": 99, "steps": {"a": {}}}', '{"version": 2, "steps": 3}']
    for number, text in enumerate(texts):
        stop_before(spec, tmp_path / str(number), "sort")
        (journal,) = (tmp_path / f".{number}.unfinished").rglob("*.json")
        assert journal.read_text()
        journal.write_text(text)
        build_dataset(spec, tmp_path / str(number))
        assert arrays(tmp_path / str(number)).keys() == arrays(tmp_path / "anew").keys(), text


def test_a_step_whose_files_another_specification_has_replaced_is_done_again(tmp_path: Path) -> None:
    first = spec_of(tmp_path, {"n:r:n": {"features": {"w": "w"}}})
    stop_before(first, tmp_path / "out", "sort")
    stop_before(spec_of(tmp_path, {"n:r:n": {"features": {"w": "a"}}}), tmp_path / "out", "edge_0")
    dataset = build_dataset(first, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:r:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def test_a_step_whose_files_were_removed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = spec_of(tmp_path, {"n:r:n": {}, "n:s:n": {"features": {"w": "w"}}})
    stop_before(both, tmp_path / "out", "sort")
    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.storage.datasets.dataset_writer.write_text", stop)
        with pytest.raises(Stopped):
            build_dataset(spec_of(tmp_path, {"n:r:n": {}}), tmp_path / "out")
    dataset = build_dataset(both, tmp_path / "out").load()
    assert dataset.feature.read("edge", "n:s:n", "w").tolist() == [[0.5], [1.5], [2.5], [3.5]]


def stop(*_: Any) -> None:
    raise Stopped


@pytest.mark.parametrize(
    ("end", "step"), [(Stopped, "node_steps.write_nodes"), (KeyboardInterrupt, "edge_steps.write_edge_table")]
)
def test_a_step_that_ended_in_the_middle_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException], step: str
) -> None:
    edges = EdgeTable("edges.npz", source="a", destination="b", features={"w": "w"}, label="y")
    spec_of(tmp_path, {"n:r:n": {}})
    spec = Spec({"n:r:n": edges}, {"n": NodeTable("edges.npz", features={"w": "w"})}, folder=tmp_path)
    expected = build_dataset(spec, tmp_path / "anew").yaml_data["checksums"]

    def stop_in_the_middle(*_: Any) -> None:
        raise end

    with monkeypatch.context() as patch:
        patch.setattr(f"graphfeed.ingest.dataset.{step}", stop_in_the_middle)
        with pytest.raises(end):
            build_dataset(spec, tmp_path / "out")
    assert build_dataset(spec, tmp_path / "out").yaml_data["checksums"] == expected


def test_tables_that_change_while_they_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = likes(tmp_path)

    def change(*given: Any) -> Any:
        found = write_nodes(*given)
        write(
            tmp_path / "users.parquet", {"name": ["dia", "ann", "cem", "ben"], "age": [1.0] * 4, "split": [0, 1, 2, 0]}
        )
        return found

    with monkeypatch.context() as patch:
        patch.setattr("graphfeed.ingest.dataset.node_steps.write_nodes", change)
        with pytest.raises(ValueError, match=r"users\.parquet changed while it was read"):
            build_dataset(spec, tmp_path / "out")
    assert "out" not in listing(tmp_path)
    dataset = build_dataset(spec, tmp_path / "out").load()
    assert dataset.ids("user")[:] == ["dia", "ann", "cem", "ben"]


def test_an_array_of_an_archive_that_changes_after_an_interruption_is_read_again(tmp_path: Path) -> None:
    edges = EdgeTable({"s": np.array([0]), "d": np.array([1])}, source="s", destination="d")
    spec = Spec({"n:r:n": edges}, {"n": NodeTable(features={"x": "x.npz#x"})}, folder=tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([1, 2]))
    stop_before(spec, tmp_path / "out", "sort")
    time = (tmp_path / "x.npz").stat().st_mtime_ns
    np.savez(tmp_path / "x.npz", x=np.array([3, 4]), y=np.array([5, 6]))
    os.utime(tmp_path / "x.npz", ns=(time, time))
    dataset = build_dataset(spec, tmp_path / "out").load()
    assert dataset.feature.read("node", "n", "x").tolist() == [[3], [4]]
