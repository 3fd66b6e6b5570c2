"""Guessed specifications from the names and columns of tables."""

from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.__main__ import main
from graphfeed.ingest import EdgeTable, NodeTable, Split, build_dataset, guess_spec, read_spec
from tests.kinds.example_tables import LIKES, USERS, write


def guess(folder: Path, **tables: Any) -> Any:
    files = [write(folder / f"{name}.parquet", columns) for name, columns in tables.items()]
    return guess_spec(files)


def test_real_packages_are_guessed_right(shared_data: Path) -> None:
    folder = shared_data / "debian_packages"
    spec, remarks = guess_spec(sorted(folder.glob("*.parquet")))
    names = [
        "built_from:source", "depends:package", "maintained_by:maintainer", "recommends:package", "suggests:package",
    ]  # fmt: skip
    assert list(spec.edges) == [f"package:{name}" for name in names]
    assert spec.nodes == {
        "package": NodeTable(
            str(folder / "nodes_package.parquet"),
            features={"feat": ("section", "installed_kib", "size_bytes", "priority")},
            split=Split("split", train="0", validation="1", test="2"),
        )
    }
    assert any("'split' is used as the split" in remark for remark in remarks)
    graph = build_dataset(spec).graph
    assert graph is not None
    assert graph.num_nodes == {"maintainer": 2244, "package": 63436, "source": 34169}
    assert graph.total_num_edges == 2 * 63436 + 270976 + 30094 + 24724


def test_types_come_from_the_names_of_columns(tmp_path: Path) -> None:
    likes = {"user_id": ["ann"], "item_id": [5], "stars": [3], "weight": [0.5], "timestamp": [7]}
    spec, _ = guess(tmp_path, user=USERS, likes=likes)
    assert spec.edges == {
        "user:likes:item": EdgeTable(
            str(tmp_path / "likes.parquet"),
            source="user_id",
            destination="item_id",
            weight="weight",
            time="timestamp",
            features={"feat": "stars"},
        )
    }
    assert spec.nodes["user"].id == "name"
    assert spec.nodes["user"].features == {"feat": ("age",)}


def test_two_columns_named_as_other_tables_are_ends(tmp_path: Path) -> None:
    likes = {"stars": [3], "user": ["ann"], "item": [5]}
    spec, _ = guess(tmp_path, users=USERS, item={"id": [5]}, likes=likes)
    edges = EdgeTable(str(tmp_path / "likes.parquet"), source="user", destination="item", features={"feat": "stars"})
    assert spec.edges == {"user:likes:item": edges}
    assert {name: table.id for name, table in spec.nodes.items()} == {"user": "name", "item": "id"}
    owned = {"id": [5], "user": ["ann"], "shop": [7]}  # a table with its own id has no edges
    spec, _ = guess(tmp_path, users=USERS, item=owned, shop={"id": [7]}, likes={"user_id": ["ann"], "item_id": [5]})
    assert list(spec.edges) == ["user:likes:item"]


def test_one_table_of_edges_makes_a_graph_without_types(tmp_path: Path) -> None:
    nodes = {"id": [3, 4], "y": ["a", "b"], "train_mask": [True, False], "test_mask": [False, True]}
    spec, remarks = guess(tmp_path, edges={"src": [3], "dst": [4]}, nodes=nodes)
    assert not spec.typed
    assert spec.nodes["node"] == NodeTable(
        str(tmp_path / "nodes.parquet"), id="id", label="y", split=Split(train="train_mask", test="test_mask")
    )
    assert remarks == [f"{tmp_path}/nodes.parquet: 'y' is used as the label; check that"]


def test_a_split_is_known_by_its_name_or_by_boolean_columns(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], Split | None]] = [
        ({"split": ["train", "test", "validation", "train"]}, Split("split")),
        ({"fold": [0, 2, 1, 0]}, Split("fold", "0", "1", "2")),
        ({"train": [True, False, False, True], "test": [False, True, False, False]}, Split(train="train", test="test")),
        ({"is_train": [True, False], "val_mask": [False, True]}, Split(train="is_train", validation="val_mask")),
        ({"use": ["train", "drive", "fly", "train"]}, None),
        ({"train": [3, 4, 5, 6]}, None),
    ]
    for suffix, (columns, split) in product(("parquet", "csv"), cases):
        edges = write(tmp_path / f"edges.{suffix}", {"src": [3, 4], "dst": [4, 5]})
        ids = [3, 4, 5, 6][: len(next(iter(columns.values())))]
        spec, _ = guess_spec([edges, write(tmp_path / f"nodes.{suffix}", {"id": ids, **columns})])
        assert spec.nodes["node"].split == split, columns


def test_several_tables_without_names_of_node_types_have_one(tmp_path: Path) -> None:
    ends = {"src": [3], "dst": [4]}
    spec, remarks = guess(tmp_path, follows=ends, knows=ends)
    assert list(spec.edges) == ["node:follows:node", "node:knows:node"]
    spec, remarks = guess(tmp_path, follows=ends, knows=ends, person={"id": [3, 4], "fold": ["dev", "train"]})
    assert list(spec.edges) == ["person:follows:person", "person:knows:person"]
    assert spec.nodes["person"].split == Split("fold")
    assert len(remarks) == 1
    assert "'fold' is used as the split" in remarks[0]


def test_files_without_names_of_columns(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    np.save(tmp_path / "links.npy", np.zeros((2, 5), dtype=np.int64))
    for name in ("edges.csv", "links.npy"):
        spec, _ = guess_spec([tmp_path / name])
        (edges,) = spec.edges.values()
        assert (edges.source, edges.destination) == ("0", "1")
        assert build_dataset(spec).graph is not None


def test_the_yaml_of_a_guess_is_a_specification(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path / "users.parquet", USERS), write(tmp_path / "likes.parquet", LIKES)]
    files.append(write(tmp_path / "edges_user_knows_user.csv", {"source": ["ann"], "target": ["ben"]}))
    files[1] = files[1].rename(tmp_path / "edges_user_likes_item.parquet")
    assert main(["ingest", "--guess", *map(str, files)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# A guess from the names and columns of the tables: check it before you use it.\n")
    (tmp_path / "spec.yaml").write_text(text)
    assert list(read_spec(tmp_path / "spec.yaml").edges) == ["user:likes:item", "user:knows:user"]


def test_what_cannot_be_guessed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the 1 files has two id columns"):
        guess(tmp_path, users=USERS)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.csv"):
        guess_spec([tmp_path / "nothing.csv"])


def test_a_table_of_nodes_may_have_the_plural_as_its_name(tmp_path: Path) -> None:
    likes = {"user": ["ann"], "item": [5]}
    spec, remarks = guess(tmp_path, users=USERS, edges_user_likes_item=likes)
    assert list(spec.edges) == ["user:likes:item"]
    assert spec.nodes["user"].files == (str(tmp_path / "users.parquet"),)
    assert not any("left out" in remark for remark in remarks)
    (tmp_path / "more").mkdir()
    spec, _ = guess(tmp_path / "more", users=USERS, likes={"user_id": ["ann"], "item_id": [5]})
    assert list(spec.nodes) == ["user"]


SHOP: dict[str, dict[str, list[Any]]] = {
    "users": {
        "user_id": ["u1", "u2", "u3", "u4"],
        "age": [31, None, 45, 31],
        "country": ["de", "us", "de", "de"],
        "phone": ["1-2", "3-4", "5-6", "7-8"],
        "churned": [True, False, False, True],
        "since": [datetime(2024, 1, day, 7) for day in (1, 2, 3, 4)],
    },
    "items": {"sku": ["a", "b"], "price": [2.5, 3.5], "category": ["x", "y"]},
    "events": {"user_id": ["u1", "u2", "u1"], "sku": ["b", "a", "a"], "at": [1, 2, 3], "amount": [0.5, 1.5, 2.5]},
}


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_keys_of_two_tables_are_ends_and_the_guess_can_be_built(suffix: str, tmp_path: Path) -> None:
    for name, columns in SHOP.items():
        write(tmp_path / f"{name}.{suffix}", columns)
    spec, remarks = guess_spec([str(tmp_path / f"*.{suffix}")])
    (tmp_path / "spec.yaml").write_text(spec.to_yaml())
    dataset = build_dataset(read_spec(tmp_path / "spec.yaml"))
    assert list(spec.edges) == ["user:events:item"]
    assert spec.edges["user:events:item"].time == "at"
    assert dataset.ids("user")[:] == SHOP["users"]["user_id"]
    assert dataset.ids("item")[:] == SHOP["items"]["sku"]
    users = tmp_path / f"users.{suffix}"
    for remark in [
        f"{users}: country left out, because features must be numbers; to use it, add encode: country",
        f"{users}: phone left out, because features must be numbers",
        f"{users}: 'churned' is used as a feature; to predict it, write label: churned instead",
        f"{users}: missing: 0 replaces the missing values of features",
        f"{users}: 'since' is left out, because times must have the unit of those of user:events:item",
        f"{tmp_path / f'items.{suffix}'}: 'category' is used as the label; check that",
    ]:
        assert remark in remarks
    assert any("add to edges: item:rev_events:user: {reverse_of: user:events:item}" in remark for remark in remarks)


def test_files_of_a_pattern_with_the_same_columns_are_one_table(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path / f"likes-{number}.csv", {"user_id": ["ann"], "item_id": [number]})
    spec, _ = guess_spec([str(tmp_path / "*.csv")])
    assert spec.edges["user:to:item" if tmp_path.name == "likes" else f"user:{tmp_path.name}:item"].files == (
        str(tmp_path / "*.csv"),
    )
    spec, _ = guess_spec([str(tmp_path / "likes-*.csv")])
    assert list(spec.edges) == ["user:likes:item"]


def test_what_ingest_refuses_is_said(tmp_path: Path) -> None:
    users = {"name": ["ann", "ann"], "age": [1, 2]}
    _, remarks = guess(tmp_path, users=users, likes={"user_id": ["ann"], "item_id": [5]})
    file = tmp_path / "users.parquet"
    reason = f"{file}, row 1: name is 'ann', which an earlier row already has"
    assert remarks[-1].startswith(f"ingest refuses these tables: {reason}")
