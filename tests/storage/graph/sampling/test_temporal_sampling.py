"""Temporal sampling; `test_graph_kinds.py` compares graphs of all kinds with the slow reference."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from tests.storage.graph.graph_kinds import EDGES, SIZES, plain, typed

GRAPH, TYPED = plain(), typed()
THREE = torch.tensor([[0, 1, 2], [0, 0, 0]])
NAMES: Any = st.sampled_from([("born", "time"), (None, "time"), ("born", None), (None, None)])


def by_id(graph: gf.FusedCSCSamplingGraph, kind: str | None, name: str) -> torch.Tensor:
    """Return an edge attribute in the order of the edge list."""
    own = slice(None) if kind is None else graph.type_per_edge == graph.edge_types.index(kind)
    values = graph.edge_attribute(name)[own]
    return values[graph.edge_attribute(gf.ORIGINAL_EDGE_ID)[own].argsort()]


def admitted(
    ends: torch.Tensor, times: torch.Tensor, born: torch.Tensor, names: Any, column: tuple[int, int, int | None]
) -> list[int]:
    """Return the rows of an edge list that lead to a node before a time and inside a window, checked one by one."""
    node, time, window = column
    found = []
    for row, (source, destination) in enumerate(ends.T.tolist()):
        stamps = ([int(born[source])] if names[0] else []) + ([int(times[row])] if names[1] else [])
        inside = all(
            stamp == ops.ALWAYS or (stamp < time and (window is None or stamp > time - window)) for stamp in stamps
        )
        if destination == node and inside:
            found.append(row)
    return found


@given(NAMES, st.lists(st.tuples(st.integers(0, 39), st.integers(-5, 110)), max_size=4), st.booleans(), st.data())
def test_all_that_is_admitted_of_each_type(
    names: Any, columns: list[tuple[int, int]], by_type: bool, data: st.DataObject
) -> None:
    window = data.draw(st.one_of(st.none(), st.integers(0, 120)))
    seeds, moments = (torch.tensor([column[end] for column in columns], dtype=torch.int64) for end in (0, 1))
    both = {"item": seeds, "user": seeds[:2]}, {"item": moments, "user": moments[:2]}
    windows = None if window is None else {kind: torch.full_like(own, window) for kind, own in both[0].items()}
    fanouts = torch.full((len(EDGES),), -1) if by_type else torch.tensor([-1])
    hop = TYPED.temporal_sample_neighbors(*both, fanouts, False, windows, None, *names)
    assert isinstance(hop.original_edge_ids, dict)
    first_ids = torch.tensor(TYPED.first_ids()[1:-1])
    born = dict(zip(SIZES, torch.tensor_split(TYPED.node_attribute("born"), first_ids), strict=True))
    for kind, ends in EDGES.items():
        source, _, destination = kind.split(":")
        own = {"item": columns, "user": columns[:2], "shop": []}[destination]
        found = [
            row
            for node, time in own
            for row in admitted(ends, by_id(TYPED, kind, "time"), born[source], names, (node, time, window))
        ]
        assert hop.original_edge_ids[kind].tolist() == found


def test_times_of_any_integers_and_nodes_in_the_order_of_time() -> None:
    graph = gf.from_coo(THREE, 3, edge_attributes={"time": torch.tensor([3, 1, 2], dtype=torch.int16)})
    hop = graph.temporal_sample_neighbors(
        torch.tensor([0]), torch.tensor([3], dtype=torch.int32), torch.tensor([-1]), edge_timestamp_attr_name="time"
    )
    assert isinstance(hop.original_edge_ids, torch.Tensor)
    assert hop.original_edge_ids.tolist() == [1, 2]
