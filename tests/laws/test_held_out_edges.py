"""No edge type of the graph joins the ends of an edge that a table holds out, unless the specification says so.

The rows of the table are the truth. They may repeat: a row for training may join the ends of one that is held out.
"""

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfeed.ingest import EdgeTable, NodeTable, Spec, Split, build_dataset
from graphfeed.storage.graph import to_coo

NODES, TRAIN_UNTIL = 5, 6
SPLIT = Split(time="at", train_until=TRAIN_UNTIL, validation_until=8)
BACK = {"source": "to", "destination": "from"}
ENTRIES: dict[str, dict[str, Any]] = {
    "reverse_of": {},
    "the same split": {**BACK, "split": SPLIT, "training_graph": True},
    "all rows exchanged": BACK,
    "all rows": {"source": "from", "destination": "to"},
}
"""Other edge types of the same table; the graph has all rows of the last two, which the specification says."""
OPTIONS: list[dict[str, Any]] = [{}, {"time": "at"}, {"features": {"x": "x"}}, {"weight": "x"}]
Row = tuple[int, int, int]
rows_of_tables = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 9)), min_size=1, max_size=12
)


def make_spec(rows: list[Row], ends: tuple[str, str], entry: str, options: dict[str, Any]) -> tuple[Spec, str, str]:
    """Return a specification of a table with two edge types, and the names of these."""
    columns = dict(zip(("from", "to", "at"), np.array(rows).T, strict=True))
    table = pa.table({**columns, "x": columns["at"] * 2.0})
    source, destination = ends
    held = f"{source}:buys:{destination}"
    other = f"{source}:other:{destination}" if entry == "all rows" else f"{destination}:other:{source}"
    own = EdgeTable(table, source="from", destination="to", task="link", split=SPLIT, training_graph=True, **options)
    reverse = EdgeTable(reverse_of=held) if entry == "reverse_of" else EdgeTable(table, **ENTRIES[entry])
    return Spec({held: own, other: reverse}, {kind: NodeTable(count=NODES) for kind in ends}), held, other


def pairs_in(graph: Any, edge_type: str, exchanged: bool) -> list[tuple[int, int]]:
    """Return the edges of a type, as pairs in the order of the table's columns."""
    own = to_coo(graph)[edge_type]
    ends = (own.destinations, own.sources) if exchanged else (own.sources, own.destinations)
    return sorted(zip(*(side.tolist() for side in ends), strict=True))


@settings(max_examples=max(settings().max_examples // 4, 16))  # each builds a data set
@given(rows=rows_of_tables, same_type=st.booleans(), entry=st.sampled_from(list(ENTRIES)), data=st.data())
def test_no_edge_type_joins_the_ends_of_a_held_out_edge(
    rows: list[Row], same_type: bool, entry: str, data: st.DataObject
) -> None:
    ends = ("a", "a") if same_type else ("a", "b")
    options: dict[str, Any] = data.draw(st.sampled_from(OPTIONS))
    spec, held, other = make_spec(rows, ends, entry, options)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        graph = build_dataset(spec).graph
    says_so = entry.startswith("all rows")
    assert [held in str(one.message) and other in str(one.message) for one in seen] == [True] * says_so
    pairs = sorted((source, destination) for source, destination, _ in rows)
    known = sorted((source, destination) for source, destination, time in rows if time < TRAIN_UNTIL)
    assert pairs_in(graph, held, exchanged=False) == known
    assert pairs_in(graph, other, exchanged=entry != "all rows") == (pairs if says_so else known)
    if not says_so:
        either = [*pairs_in(graph, held, exchanged=False), *pairs_in(graph, other, exchanged=True)]
        joined, trained = ({tuple(sorted(pair)) if same_type else pair for pair in pairs} for pairs in (either, known))
        assert joined == trained
