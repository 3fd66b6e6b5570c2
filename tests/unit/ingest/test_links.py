"""Items of edges, from tables: links to predict, fixed negatives, labels, and graphs of only training edges."""

import warnings
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import graphfeed as gf
from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset, read_spec
from graphfeed.storage.graph import to_coo
from graphfeed.testing import limits
from tests.kinds.on_disk import arrays
from tests.kinds.refusals import Refusal, check_refused

KIND = "a:r:b"
DAYS = [date(2020, 1, 1 + day) for day in range(10)]
SOURCES, DESTINATIONS = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def build(times: Any = range(10), folder: Path | None = None, **options: Any) -> Any:
    table = pa.table({"source": SOURCES, "destination": DESTINATIONS, "at": times})
    nodes = {"a": NodeTable(count=4), "b": NodeTable(count=30)}
    given: dict[str, Any] = {"task": "link", "split": Split(time="at", train_until=6, validation_until=8)}
    return build_dataset(Spec({KIND: EdgeTable(table, **given | options)}, nodes), folder)


def members(items: Any, kind: str = KIND) -> dict[str, Any]:
    """Return the members of the items of a type, by name."""
    own = items[:].get(kind, torch.zeros(0, 2))
    return dict(zip(items.names, own if isinstance(own, tuple) else [own], strict=True))


def seeds(items: Any) -> list[list[int]]:
    return [] if items is None else members(items)["seeds"].tolist()


PAIRS = [list(pair) for pair in zip(SOURCES, DESTINATIONS, strict=True)]
STAMPS = [datetime(2020, 1, 1 + day, 12) for day in range(10)]
CASES: list[tuple[Any, Any, Any, list[int]]] = [
    (list(range(10)), 6, 8, [6, 2, 2]),
    (list(range(9, -1, -1)), 1, 1, [1, 0, 9]),
    (pa.array(DAYS), "2020-01-07", date(2020, 1, 9), [6, 2, 2]),
    (pa.array(DAYS), "2020-01-07T01:00", "2020-01-09", [7, 1, 2]),
    (pa.array(STAMPS, pa.timestamp("ns")), "2020-01-07", "2020-01-09T12:00:00.000001", [6, 3, 1]),
    (pa.array([own.replace(tzinfo=UTC) for own in STAMPS], pa.timestamp("ms", "UTC")), "2020-01-07T13:30+02:00",
     datetime(2020, 1, 9), [6, 2, 2]),
]  # fmt: skip


def test_links_are_split_by_time() -> None:
    for case in CASES:
        times, first, second, counts = case
        (task,) = build(times, split=Split(time="at", train_until=first, validation_until=second)).tasks
        parts = [seeds(items) for items in (task.train_set, task.validation_set, task.test_set)]
        assert [len(part) for part in parts] == counts
        assert sorted(pair for part in parts for pair in part) == sorted(PAIRS)
        assert task.metadata["name"] == "link_prediction"


def test_nodes_are_split_by_time_too() -> None:
    nodes = NodeTable({"t": np.array([3, 1, 2])}, split=Split(time="t", train_until=2, validation_until=3))
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    (task,) = build_dataset(Spec({"n:r:n": edges}, {"n": nodes})).tasks
    parts: list[Any] = [task.train_set, task.validation_set, task.test_set]
    assert [items[:]["n"].tolist() for items in parts] == [[1], [2], [0]]


def test_without_a_split_all_edges_are_for_training() -> None:
    (task,) = build(split=None).tasks
    assert seeds(task.train_set) == PAIRS
    assert task.validation_set is None
    assert build(split=None, task=None).tasks == []


def test_each_edge_is_followed_by_pairs_that_are_no_edges() -> None:
    (task,) = build(negatives=50, time="at").tasks
    assert task.train_set.names == ("seeds", "timestamp")
    drawn = []
    for items, first in ((task.validation_set, 6), (task.test_set, 8)):
        found = members(items)
        pairs = found["seeds"].reshape(2, 51, 2)
        assert pairs[:, 0].tolist() == PAIRS[first : first + 2]
        assert (pairs[:, :, 0] == pairs[:, :1, 0]).all()
        assert not any(pair in PAIRS for pair in pairs[:, 1:].reshape(-1, 2).tolist())
        assert len(pairs[:, 1:, 1].unique()) > 20  # of 30
        assert found["labels"].tolist() == ([1.0] + [0.0] * 50) * 2
        assert found["indexes"].tolist() == [0] * 51 + [1] * 51
        assert found["timestamp"].tolist() == [first] * 51 + [first + 1] * 51
        drawn.append(pairs[:, 1:, 1])
    assert (drawn[0] == drawn[1]).sum() < 20  # of 100


def test_an_edge_and_its_negatives_are_in_one_minibatch(tmp_path: Path) -> None:
    build(folder=tmp_path / "out", negatives=6, time="at")
    dataset = gf.OnDiskDataset(tmp_path / "out").load()
    _, _, test = gf.loaders(dataset.tasks[0], dataset.graph, [1], batch_size=9, num_workers=0)
    assert [minibatch.labels[KIND].tolist() for minibatch in test] == [[1.0] + [0.0] * 6] * 2


def test_the_pairs_are_the_same_whatever_is_read_at_a_time(tmp_path: Path) -> None:
    expected = build(folder=tmp_path / "one", negatives=7)
    with limits(part_values=3):
        build(folder=tmp_path / "other", negatives=7)
    one, other = arrays(tmp_path / "one"), arrays(tmp_path / "other")
    assert {name: own.tolist() for name, own in one.items()} == {name: own.tolist() for name, own in other.items()}
    assert len(expected.load().tasks[0].test_set) == 16


def test_a_source_that_has_edges_to_all_nodes_has_no_such_pairs() -> None:
    ends = {"source": np.zeros(4, int), "destination": np.arange(4), "p": np.array(["train", "train", "x", "test"])}
    for ratio, count in ((1, 5), (3, 4)):
        edges = EdgeTable(ends, task="link", split="p", negatives=ratio)
        spec = Spec({"n:r:m": edges}, {"n": NodeTable(count=1), "m": NodeTable(count=count)})
        if count == 5:
            items: Any = build_dataset(spec).tasks[0].test_set
            assert items[:]["n:r:m"][0].tolist() == [[0, 3], [0, 4]]
        else:
            with pytest.raises(ValueError, match=r"negatives: 3 pairs are edges after 200 draws, such as .* number 0"):
                build_dataset(spec)


def test_the_graph_may_have_the_edges_for_training_alone() -> None:
    dataset = build(range(9, -1, -1), training_graph=True, features={"x": "at"}, weight="at")
    graph = dataset.graph
    columns = np.repeat(np.arange(34), np.diff(graph.csc_indptr.numpy())) - 4
    found = list(zip(graph.indices.tolist(), columns.tolist(), strict=True))
    assert sorted(found) == sorted(map(tuple, PAIRS[4:]))
    # Edges keep their rows, and features have rows for all of them.
    rows = graph.edge_attributes["_ORIGINAL_EDGE_ID"].tolist()
    assert [tuple(PAIRS[row]) for row in rows] == found
    assert dataset.feature.read("edge", KIND, "x").flatten().tolist() == list(range(9, -1, -1))
    assert graph.edge_attributes["weight"].tolist() == [9 - row for row in rows]
    assert seeds(dataset.tasks[0].validation_set) == PAIRS[2:4]


REVERSE = "b:back:a"


def held_out(folder: Path | None = None, reverse: EdgeTable | None = None, **options: Any) -> Any:
    """Build a data set with the edges of the first six days in its graph, and another edge type."""
    table = pa.table({"source": SOURCES, "destination": DESTINATIONS, "at": range(10), "x": range(10, 20)})
    split = Split(time="at", train_until=6, validation_until=8)
    given: dict[str, Any] = {"task": "link", "training_graph": True, "split": split, "time": "at"} | options
    other = EdgeTable(reverse_of=KIND) if reverse is None else replace(reverse, files=table)
    nodes = {"a": NodeTable(count=4), "b": NodeTable(count=30)}
    return build_dataset(Spec({KIND: EdgeTable(table, **given), REVERSE: other}, nodes), folder)


def test_the_reverse_of_an_edge_type_has_its_edges_in_the_graph_and_no_items(tmp_path: Path) -> None:
    held_out(tmp_path / "out", features={"x": "x"}, weight="x")
    dataset = gf.OnDiskDataset(tmp_path / "out").load()
    lists = to_coo(dataset.graph)
    for kind, sources, destinations in ((KIND, SOURCES, DESTINATIONS), (REVERSE, DESTINATIONS, SOURCES)):
        own = lists[kind]
        assert own.sources.tolist() == sources[:6]
        assert own.destinations.tolist() == destinations[:6]
        rows = dataset.graph.edge_attributes["_ORIGINAL_EDGE_ID"][own.positions]
        assert dataset.feature.read("edge", kind, "x", rows).flatten().tolist() == list(range(10, 16))
        for name, first in (("time", 0), ("weight", 10)):
            assert dataset.graph.edge_attributes[name][own.positions].tolist() == list(range(first, first + 6))
    (task,) = dataset.tasks
    items: Any = task.test_set
    assert list(items.by_type) == [KIND]
    assert task.metadata["reverse_etypes"] == {KIND: REVERSE}


def test_nodes_without_a_table_are_those_of_edges_with_one() -> None:
    edges = {"a:r:b": EdgeTable({"source": ["x", "y"], "destination": [7, 5]}), "b:q:a": EdgeTable(reverse_of="a:r:b")}
    dataset = build_dataset(Spec(edges))
    assert dataset.graph.num_nodes == {"a": 2, "b": 2}
    assert dataset.ids("b")[:] == [5, 7]
    assert to_coo(dataset.graph)["b:q:a"].sources.tolist() == [1, 0]


def test_loaders_leave_out_the_reverse_of_seed_edges_too() -> None:
    dataset = held_out(training_graph=False, time=None)
    train, _, _ = gf.loaders(dataset.tasks[0], dataset.graph, [-1], 3, num_workers=0)
    assert "reverse_etypes_mapping={'a:r:b': 'b:back:a'}" in str(train.explain(rewritten=False))


def test_an_interrupted_run_does_not_keep_edges_of_another_specification(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "edges:\n  a:r:b: {files: e.csv}\n  b:q:a: {reverse_of: a:r:b}\nnodes: {a: {count: 4}, b: {count: 4}}\n"
    )
    (tmp_path / "e.csv").write_text("source,destination\n1,2\n3,0\n")
    spec = read_spec(tmp_path / "spec.yaml")
    (tmp_path / "again.yaml").write_text(spec.to_yaml())
    assert read_spec(tmp_path / "again.yaml") == spec
    assert to_coo(build_dataset(spec).graph)["b:q:a"].sources.tolist() == [2, 0]


def test_edges_that_show_what_is_held_out_are_named() -> None:
    exchanged = EdgeTable("", source="destination", destination="source")
    with pytest.warns(UserWarning, match="table of a:r:b with exchanged ends, .* give it reverse_of: a:r:b"):
        held_out(reverse=exchanged)
    other = Split(time="at", train_until=7, validation_until=8)
    with pytest.warns(UserWarning, match="with exchanged ends"):
        held_out(reverse=replace(exchanged, split=other, training_graph=True))
    same = Split(time="at", train_until=6, validation_until=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held_out()
        held_out(reverse=replace(exchanged, split=same, training_graph=True))
        held_out(reverse=exchanged, training_graph=False)


def test_a_specification_of_links_is_read_and_written_as_yaml(tmp_path: Path) -> None:
    text = (
        "edges:\n  a:r:b:\n    files: e.csv\n    task: link\n    negatives: 2\n    training_graph: true\n"
        "    split: {time: at, train_until: 2020-01-07, validation_until: 2020-01-09 12:00:00}\n"
    )
    lines = [f"{source},{destination},{day}\n" for (source, destination), day in zip(PAIRS, STAMPS, strict=True)]
    (tmp_path / "e.csv").write_text("source,destination,at\n" + "".join(lines))
    (tmp_path / "spec.yaml").write_text(text)
    spec = read_spec(tmp_path / "spec.yaml")
    assert spec.edges[KIND].split == Split(time="at", train_until="2020-01-07", validation_until="2020-01-09 12:00:00")
    (tmp_path / "again.yaml").write_text(spec.to_yaml())
    assert read_spec(tmp_path / "again.yaml") == spec
    with pytest.raises(ValueError, match=r"negatives: \d+ pairs are edges"):  # three nodes, each with edges to all
        build_dataset(spec)


def test_what_can_not_be_predicted_is_refused() -> None:
    times = Split(time="at", train_until=6, validation_until=8)
    own: Any = "node"
    number: Any = 7
    bound = r"frame 0: train_until must be a bound of at, which has int64, but is '2020-01-01'"
    refused: list[Refusal] = [
        (lambda: EdgeTable("e.csv", task=own), ValueError, "task must be 'link', but is 'node'"),
        (lambda: EdgeTable("e.csv", task="link", label="y"), ValueError, "task is 'link', but edges with a label"),
        (lambda: EdgeTable("e.csv", task="link", negatives=5), ValueError, "negatives need task: link, and a split"),
        (lambda: EdgeTable("e.csv", split="p", negatives=5), ValueError, "negatives need task: link, and a split"),
        (lambda: EdgeTable("e.csv", negatives=-1), ValueError, "negatives must be an integer of 0 or more, but is -1"),
        (lambda: EdgeTable("e.csv", task="link", training_graph=True), ValueError, "training_graph needs a split with"),
        (lambda: EdgeTable("e.csv", task="link", training_graph=True, split=Split("p", test="x")), ValueError,
         "needs a split with a part for training"),
        (lambda: EdgeTable("e.csv", reverse_of=KIND), ValueError, "from the edges of 'a:r:b'; leave out files"),
        (lambda: EdgeTable(reverse_of=KIND, task="link", source="u"), ValueError, "leave out source, task"),
        (lambda: EdgeTable(reverse_of=number), TypeError, "reverse_of must be the name of an edge type, but is 7"),
        (lambda: Spec({KIND: EdgeTable("e.csv"), "b:q:a": EdgeTable(reverse_of="a:t:b")}), ValueError,
         r"edges.b:q:a: reverse_of is 'a:t:b', but the edge types with files are \['a:r:b'\]; did you mean 'a:r:b'"),
        (lambda: Spec({KIND: EdgeTable("e.csv"), "a:q:b": EdgeTable(reverse_of=KIND)}), ValueError,
         "edges.a:q:b: the reverse of 'a:r:b' leads from 'b' to 'a'; call it 'b:q:a'"),
        (lambda: Spec({"links": EdgeTable(reverse_of="links")}), ValueError, "the edge types with files are \\[\\]"),
        (lambda: Split(time="at", train_until=6), TypeError, "validation_until must be an integer, a date or a ti"),
        (lambda: Split("p", train_until=6), ValueError, "bounds of times, but time names no column"),
        (lambda: Split("p", time="at", train_until=6, validation_until=8), ValueError, "a split by time needs the n"),
        (lambda: build(split=Split(time="at", train_until=8, validation_until=6)), ValueError,
         "validation_until must not be before train_until, but is 6"),
        (lambda: build(split=Split(time="at", train_until="2020-01-01", validation_until=8)), ValueError, bound),
        (lambda: build(pa.array(DAYS), split=times), ValueError, r"bound of at, which has date32\[day\], but is 6"),
        (lambda: build([None, *range(9)]), ValueError, "row 0: at is 'missing', but must be a time"),
        (lambda: build([str(day) for day in DAYS]), TypeError, "at must be a time, but the column is string"),
    ]  # fmt: skip
    check_refused(refused)


def test_items_of_edges_have_the_ids_that_their_own_features_are_read_by() -> None:
    edges = {"s": [0, 1, 2, 9, 0], "d": [1, 2, 0, 0, 2], "y": [1, None, 0, 1, 1], "x": [10, 11, 12, 13, 14]}
    table = EdgeTable(pa.table(edges), source="s", destination="d", label="y", features={"x": "x"})
    other = EdgeTable(pa.table({"s": [0], "d": [0], "y": [1]}), source="s", destination="d", label="y")
    dataset = build_dataset(Spec({"a:r:a": table, "a:q:a": other}, {"a": NodeTable(count=3)}), on_error="skip")
    pipe = gf.ItemSampler(dataset.tasks[0].train_set, batch_size=9).fetch_feature(
        dataset.feature, seed_edge_feature_keys={"a:r:a": ["x"]}
    )
    (batch,) = pipe
    found = batch.seed_edge_features["a:r:a", "x"].flatten().tolist()
    assert dict(zip(found, batch.seeds["a:r:a"].tolist(), strict=True)) == {10: [0, 1], 12: [2, 0], 14: [0, 2]}
    assert {kind: ids.tolist() for kind, ids in batch.seed_edge_ids.items()} == {"a:q:a": [0], "a:r:a": [0, 2, 3]}


OPTIONS: dict[str, dict[str, Any]] = {
    "links": {"task": "link", "split": "part"},
    "negatives": {"task": "link", "split": Split("part", train="train", test="test"), "negatives": 2},
    "held out": {"split": Split(time="t", train_until=4, validation_until=6), "training_graph": True},
    "classes": {"label": "y", "training_graph": True, "split": Split(train="first", test="last")},
    "targets": {"label": "target"},
    "all": {"task": "link"},
}
TOGETHER = [(0, 1, 2), (0, 3, 4), (1, 3, 5), (2, 4, 5), (0, 5, 1), (1, 4, 2), (2, 3, 0)]
"""Options of three edge types, such that every pair of options occurs."""
NAMES = {"classes": "edge_classification", "targets": "edge_regression"}
TIMES = np.array([3, 0, 7, 4, 1, 6, 2, 5])
TASK_ROWS: dict[str, Any] = {
    "s": TIMES % 3, "d": TIMES % 4, "t": TIMES, "part": np.array(["train", "test", "validation"])[TIMES // 3],
    "first": TIMES < 4, "last": TIMES >= 6, "y": TIMES % 2, "target": TIMES + 0.5, "x": TIMES * 10.0,
}  # fmt: skip


def parts_of_rows(option: str) -> dict[str, Any]:
    """Return which rows are for training, validation and testing."""
    by_name = {part: TASK_ROWS["part"] == part for part in ("train", "validation", "test")}
    known = {
        "links": by_name,
        "negatives": {"train": by_name["train"], "test": by_name["test"]},
        "held out": {"train": TIMES < 4},
        "classes": {"train": TIMES < 4, "test": TIMES >= 6},
    }
    return known.get(option, {"train": TIMES >= 0})


def expected_items(option: str, part: str, rows: Any, timed: bool, with_features: bool) -> dict[str, Any]:
    """Return the members of items, except the seeds, for rows of the tables."""
    ratio = 2 if (option, part) == ("negatives", "test") else 0
    found: dict[str, Any] = {"timestamp": np.repeat(TIMES[rows], ratio + 1)} if timed else {}
    found |= {"seed_edge_ids": np.repeat(rows, ratio + 1)} if with_features else {}
    if ratio:
        found |= {"labels": np.tile([1, 0, 0], len(rows)), "indexes": np.repeat(np.arange(len(rows)), 3)}
    label = OPTIONS[option].get("label")
    found |= {} if label is None else {"labels": TASK_ROWS[label][rows]}
    return {name: values.tolist() for name, values in found.items()}


@pytest.mark.filterwarnings("ignore:the edges")
@pytest.mark.parametrize("chosen", TOGETHER)
def test_edge_types_have_tasks_of_any_kinds_beside_each_other(chosen: tuple[int, ...], tmp_path: Path) -> None:
    options = {f"a:r{number}:b": list(OPTIONS)[number] for number in chosen}
    timed, with_features = sum(chosen) % 2 == 0, chosen[0] == 0
    given: dict[str, Any] = {"source": "s", "destination": "d", "time": "t" if timed else None}
    tables = {kind: EdgeTable(TASK_ROWS, **given, **OPTIONS[option]) for kind, option in options.items()}
    if with_features:
        tables = {kind: replace(table, features={"x": "x"}) for kind, table in tables.items()}
    build_dataset(Spec(tables, {"a": NodeTable(count=3), "b": NodeTable(count=40)}), tmp_path / "out")
    dataset: Any = gf.OnDiskDataset(tmp_path / "out").load()
    names = [task.metadata["name"] for task in dataset.tasks]
    assert len(set(names)) == len(names)
    for kind, option in options.items():
        parts = parts_of_rows(option)
        in_graph = parts["train"] if "training_graph" in OPTIONS[option] else TIMES >= 0
        assert dataset.graph.num_edges[kind] == in_graph.sum()
        found = [
            (task.metadata["name"].split(":")[0], part, items)
            for task in dataset.tasks
            for part in ("train", "validation", "test")
            if (items := getattr(task, f"{part}_set")) is not None and kind in items.by_type
        ]
        assert [part for _, part, _ in found] == ([] if option == "held out" else list(parts))
        for name, part, items in found:
            rows, own = np.flatnonzero(parts[part]), members(items, kind)
            assert name == NAMES.get(option, "link_prediction")
            pairs = own.pop("seeds").reshape(len(rows), -1, 2)
            assert pairs[:, 0].tolist() == np.stack([TASK_ROWS["s"], TASK_ROWS["d"]], axis=1)[rows].tolist()
            expected = expected_items(option, part, rows, timed, with_features)
            assert {name: values.tolist() for name, values in own.items()} == expected
            (batch,) = gf.ItemSampler(items, batch_size=1000).sample_neighbor(dataset.graph, [2])
            assert batch.seeds[kind].tolist() == pairs.reshape(-1, 2).tolist()


def test_times_that_are_one_number_are_times_of_items_too() -> None:
    (task,) = build(time=7, negatives=1).tasks
    assert [members(items)["timestamp"].unique().tolist() for items in (task.train_set, task.test_set)] == [[7], [7]]


def test_nodes_with_and_without_labels_have_tasks_beside_each_other() -> None:
    edges = EdgeTable({"source": np.array([0]), "destination": np.array([1])})
    rows = {"y": np.array([0, 1]), "p": np.array(["train", "test"])}
    nodes = {"a": NodeTable(rows, label="y"), "b": NodeTable(rows, split="p")}
    tasks = build_dataset(Spec({KIND: edges}, nodes)).tasks
    assert [task.metadata["name"] for task in tasks] == ["node_classification:a", "node_classification:b"]


def test_a_data_set_that_can_not_be_opened_is_not_left_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 5000 letters"):
        build_dataset(Spec({"e": EdgeTable(TASK_ROWS, source="s", destination="d")}, name="x" * 5000), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    build_dataset(Spec({"e": EdgeTable(TASK_ROWS, source="s", destination="d")}), tmp_path / "out").load()
