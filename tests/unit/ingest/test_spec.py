from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset, guess_spec, read_spec
from tests.kinds.refusals import Refusal, check_refused

WHOLE = """
name: shop
nodes:
  user:
    files: [a.csv, b.csv]
    features: {feat: [x, y], text: emb.npy}
    label: kind
    split: {column: part, train: 0, validation: 1}
    missing: 0.5
    dtype: float32
    encode: [country, 7]
    header: false
    id: 0
    time: since
  item: {count: 7, time: 3}
edges:
  user:buys:item: {files: c.parquet, source: u, destination: 1, weight: w, time: at, time_sorted: true}
"""


def parse(text: str, folder: Path) -> Spec:
    (folder / "spec.yaml").write_text(text)
    return read_spec(folder / "spec.yaml")


def test_yaml_says_the_same_as_python(tmp_path: Path) -> None:
    spec = parse(WHOLE, tmp_path)
    user = NodeTable(
        ["a.csv", "b.csv"],
        features={"feat": ["x", "y"], "text": "emb.npy"},
        label="kind",
        split=Split("part", train="0", validation="1"),
        missing=0.5,
        dtype="float32",
        encode=["country", "7"],
        header=False,
        id="0",
        time="since",
    )
    buys = EdgeTable("c.parquet", source="u", destination="1", weight="w", time="at", time_sorted=True)
    nodes = {"user": user, "item": NodeTable(count=7, time=3)}
    assert spec == Spec({"user:buys:item": buys}, nodes, "shop", tmp_path.resolve())
    assert parse(spec.to_yaml(), tmp_path) == spec


def test_types_are_in_alphabetical_order_and_those_of_edges_need_no_entry() -> None:
    spec = Spec({"b:r:c": EdgeTable("x.csv"), "a:r:b": EdgeTable("y.csv")}, {"c": NodeTable(count=1)})
    assert list(spec.node_tables) == ["a", "b", "c"]
    assert list(spec.edge_tables) == ["a:r:b", "b:r:c"]
    assert spec.node_tables["a"] == NodeTable()


def test_a_single_entry_without_colons_has_no_types() -> None:
    spec = Spec({"links": EdgeTable("x.csv")}, {"page": NodeTable(count=3)})
    assert not spec.typed
    assert list(spec.node_tables.items()) == [(None, NodeTable(count=3))]


def test_a_split_by_a_name_or_by_columns_of_booleans(tmp_path: Path) -> None:
    text = "edges: {e: {files: x.csv, split: SPLIT}}"
    assert parse(text.replace("SPLIT", "part"), tmp_path).edges["e"].splits == Split(
        "part", train="train", validation="validation", test="test"
    )
    assert parse(text.replace("SPLIT", "{train: yes_1}"), tmp_path).edges["e"].splits == Split(train="yes_1")
    assert parse(text.replace("SPLIT", "{column: p, train: true}"), tmp_path).edges["e"].splits == Split(
        "p", train="true"
    )


WRONG = [
    ("[]", "the file must be a mapping"),
    ("nodes: {a: {count: 1}}", "edges is empty"),
    ("edges: {e: {}}", r"edges\.e: files is missing"),
    ("edges: {e: {files: 3}}", r"edges\.e\.files must be a path or a list of paths, but is 3"),
    ("edges: {e: {files: a.csv, sorce: u}}", r"edges\.e\.sorce is unknown; the keys are .*source"),
    ("edges: {e: {files: a.csv, source: [u]}}", r"edges\.e: source must be the name of a column"),
    ("edges: {e: {files: a.csv, weight: []}}", r"edges\.e: weight must be the name of a column or a number"),
    ("edges: {e: {files: a.csv, missing: x}}", r"edges\.e: missing must be a number"),
    ("edges: {e: {files: a.csv, time_sorted: true}}", "time_sorted needs a column of times"),
    ("edges: {e: {files: a.csv, header: 1}}", "header must be true or false, but is 1"),
    ("edges: {e: {files: a.csv, features: 1}}", "features must be a mapping of names to columns, but is 1"),
    ("edges: {e: {files: a.csv, features: {x: {}}}}", r"edges\.e: features\.x must be a column or a list"),
    ("edges: {e: {files: a.csv, dtype: float16}}", r"edges\.e: dtype must be 'float32', but is 'float16'"),
    ("edges: {e: {files: a.csv, encode: {}}}", r"edges\.e: encode must be a column or a list of columns, but is {}"),
    ("edges: {e: {files: a.csv, encode: c, features: {x: [b, c]}}}", "encode makes 'c' a separate feature; leave it"),
    ("edges: {e: {files: a.csv, encode: c, features: {c: b}}}", r"separate feature; leave it out of features\.c"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {count: 1, encode: c}}", "encode names columns, but there are no files"),
    ("edges: {e: {files: a.csv, split: {column: {}}}}", r"edges\.e\.split: column must be a name"),
    ("edges: {e: {files: a.csv, split: {}}}", r"split must name a column"),
    ("edges: {e: {files: a.csv, split: {trian: x}}}", r"split\.trian is unknown"),
    ("edges: {'a:b': {files: a.csv}}", "an edge type must be 'source:relation:destination', but is 'a:b'"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {count: 1}, b: {count: 1}}", "names no node types"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {count: -1}}", "count must be an integer of 0 or more, but is -1"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {count: x}}", "count must be an integer of 0 or more, but is 'x'"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {count: 1, files: x.csv}}", "count is for nodes without files"),
    ("edges: {e: {files: a.csv}}\nnodes: {a: {id: x}}", "id, names, label, time and split are columns"),
    ("edges: {'a:r:b': {files: a.csv}}\nnodes: {c: {}}", r"no edge type has the node types \['c'\]"),
    ("edges: {'a:r:b': {files: a.csv}}\nnodes: {'a:': {count: 1}}", "a node type must be a name without ':'"),
    ("more: 1\nedges: {e: {files: a.csv}}", "more is unknown; the keys are edges, name, nodes"),
    ("edges: [", "can't be read as YAML"),
]


def calling(make: Callable[..., object], *given: Any, **options: Any) -> Callable[[], object]:
    return lambda: make(*given, **options)


def test_what_is_wrong_is_named_with_the_file(tmp_path: Path) -> None:
    check_refused([(calling(parse, text, tmp_path), ValueError, f"spec.yaml.*{words}") for text, words in WRONG])


def test_an_argument_of_another_kind_is_named(tmp_path: Path) -> None:
    table: dict[str, Any] = {"source": np.array([0, 1]), "destination": np.array([1, 0])}
    own: Any = EdgeTable
    build: Any = build_dataset
    spec: Any = Spec
    split: Any = Split
    guess: Any = guess_spec
    read: Any = read_spec
    no_files = "label, time and split are columns, but there are no files"
    edges, nan, lost = {"e": own(table)}, float("nan"), "frame 0 has no column 'q'; it has"
    tables: list[tuple[dict[str, Any], str]] = [
        ({"source": "q"}, f"^source: {lost}"),
        ({"label": "q"}, f"^label: {lost}"),
        ({"split": Split(test="q")}, f"^split: {lost}"),
        ({"features": {"x": ["source", "q"]}}, f"^features.x: {lost}"),
        ({"files": [[1, 2], [3]]}, r"^files: a table must be a path, .*, but is \[1, 2\]"),
        ({"files": 3}, "^files: a table must be a path, .*, but is 3"),
        ({"source": None}, "^source must be the name of a column, but is None"),
        ({"task": np.ones(2)}, "^task must be 'link', but is array"),
    ]
    for given, words in tables:
        arguments: dict[str, Any] = {"files": table} | given

        def make(arguments: dict[str, Any] = arguments) -> object:
            return build(Spec({"e": own(**arguments)}))

        check_refused([(make, (TypeError, ValueError), words)])
    check_refused([
        (lambda: build(spec(edges), memory=float("inf")), TypeError, "^memory must be an integer, but is inf"),
        (lambda: build(spec(edges), executor={}), TypeError, r"^executor must be an executor with .*, but is \{\}"),
        (lambda: build(spec(edges), progress="no"), TypeError, "^progress must be True or False, but is 'no'"),
        (lambda: build(spec(edges), on_error=[]), TypeError, r"^on_error must be .raise. or .skip., but is \[\]"),
        (lambda: build(7), TypeError, "^spec must be a Spec or a string or a path, but is 7"),
        (lambda: spec(edges, folder=nan), TypeError, "^folder must be a path, but is nan"),
        (lambda: spec(edges, name=7), TypeError, "^name must be a string, but is 7"),
        (lambda: spec([own(table)]), TypeError, r"^edges must be a dict, but is \["),
        (lambda: spec({"e": NodeTable(count=3)}), TypeError, "^edges must be a dict of names of types to EdgeTable"),
        (lambda: spec(edges, {7: NodeTable(count=3)}), TypeError, "^nodes must be a dict of names of types to NodeT"),
        (lambda: NodeTable(count=3, label="y"), ValueError, no_files),
        (lambda: NodeTable(count=3, id=""), ValueError, no_files),
        (lambda: split("p", train=own), TypeError, "^train must be a name or a value, but is EdgeTable"),
        (lambda: split(train=1.5), TypeError, "^train must be a name or a value, but is 1.5"),
        (lambda: guess([7]), TypeError, r"^files must be a list of paths, but is \[7\]"),
        (lambda: read(7), TypeError, "^path must be a string or a path, but is 7"),
    ])  # fmt: skip
    assert spec(edges, folder=str(tmp_path)).folder == tmp_path


def test_wrong_arguments_of_tables_are_refused() -> None:
    edges: Any = EdgeTable
    split = r"split must be a Split or the name of a column, but is 3\.5"
    wrong: list[Refusal] = [
        (lambda: edges("x.csv", split=3.5), TypeError, split),
        (lambda: Split(train="a", test="a"), ValueError,
         r"a different column or value for each part, but names \['a', 'a'\]"),
    ]  # fmt: skip
    for weight in (-1, float("nan"), float("inf"), 1e39, True):
        wrong += [
            (calling(edges, "a.csv", weight=weight), (TypeError if weight is True else ValueError), "weight must be")
        ]
    for time in (1.9, float("nan"), float("-inf"), 1 << 64, 1e19, True):
        kind = TypeError if time is True else ValueError
        wrong += [(calling(edges, "a.csv", time=time), kind, "time must be")]
        wrong += [(calling(NodeTable, count=3, time=time), kind, "time must be")]
    check_refused(wrong)
    assert EdgeTable("a.csv", weight=0.5).weight == 0.5
    assert NodeTable(count=3, time=2.0).time == 2


def test_flags_of_tables_may_be_those_of_numpy() -> None:
    given: Any = np.True_
    assert EdgeTable("a.csv", header=given, time="t", time_sorted=given).header is True
