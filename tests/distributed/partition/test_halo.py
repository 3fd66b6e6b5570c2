import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.distributed import assign_nodes, plan_halo
from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.storage.graph.assignment.assign import stacked_assignment
from tests.distributed import graphs


def features_of(graph: gf.FusedCSCSamplingGraph, widths: dict[str | None, int]) -> gf.BasicFeatureStore:
    """Return features of float32 for some node types, beside a feature of edges and one of the graph."""
    sizes: Any = graph.num_nodes if isinstance(graph.num_nodes, dict) else {None: graph.num_nodes}
    kind = next(iter(graph.edge_type_to_id or [None]))
    found: dict[Any, gf.Feature] = {("graph", None, "g"): gf.TorchBasedFeature(torch.zeros(1, 1))}
    found["edge", kind, "e"] = gf.TorchBasedFeature(torch.zeros(3, 1))
    for own, width in widths.items():
        found["node", own, "x"] = gf.TorchBasedFeature(torch.zeros(sizes[own], width))
        found["node", own, "half"] = gf.TorchBasedFeature(torch.zeros(sizes[own], 2, dtype=torch.float16))
    return gf.BasicFeatureStore(found)


def reference(
    graph: gf.FusedCSCSamplingGraph, parts: list[int], part: int, node_bytes: list[int], max_bytes: int
) -> tuple[list[int], int, int, int]:
    """Return the nodes of which a part gets copies, their bytes, the look-ups, and those answered."""
    ends = gf.expand_indptr(graph.csc_indptr, torch.int64).tolist()
    pairs = zip(graph.indices.tolist(), ends, strict=True)
    counts = Counter(source for source, end in pairs if parts[end] == part != parts[source] and node_bytes[source])
    chosen, taken = [], 0
    for node in sorted(counts, key=lambda node: (-counts[node], node)):
        if taken + node_bytes[node] > max_bytes:
            break
        chosen.append(node)
        taken += node_bytes[node]
    return sorted(chosen), taken, sum(counts.values()), sum(counts[node] for node in chosen)


@given(st.sampled_from(["plain", "typed", "one type"]), st.integers(1, 4), st.integers(0, 3000), st.integers(0, 9))
def test_the_hottest_nodes_are_chosen_within_the_bytes(name: str, num_parts: int, max_bytes: int, seed: int) -> None:
    graph = graphs.plain() if name == "plain" else graphs.typed()
    widths: dict[str | None, int] = {"plain": {None: 5}, "typed": {"user": 5, "item": 9}}.get(name, {"item": 1})  # type: ignore[assignment]
    assignment = assign_nodes(graph, num_parts, "hash", seed)
    parts = stacked_assignment(graph, assignment, num_parts).tolist()
    sizes: Any = graph.num_nodes if isinstance(graph.num_nodes, dict) else {None: graph.num_nodes}
    node_bytes = [8 + 4 + 4 * widths[kind] if kind in widths else 0 for kind in sizes for _ in range(sizes[kind])]
    first = dict(zip(sizes, graph.first_ids() if graph.node_type_to_id else [0], strict=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_columns, "PIECE", 37)
        plan = plan_halo(graph, assignment, num_parts + 1, features_of(graph, widths), max_bytes)
    again = plan_halo(graph, assignment, num_parts + 1, features_of(graph, widths), plan.ids)
    for part in range(num_parts + 1):
        ids: Any = plan.ids[part] if isinstance(plan.ids[part], dict) else {None: plan.ids[part]}
        found = [node + first[kind] for kind in sizes for node in ids[kind].tolist()]
        of_part = (plan.num_bytes[part], plan.look_ups[part], plan.answered[part])
        assert (found, *of_part) == reference(graph, parts, part, node_bytes, max_bytes)
        assert plan.num_rows[part] == len(found)
    assert (again.num_rows, again.num_bytes, again.answered) == (plan.num_rows, plan.num_bytes, plan.answered)
    assert str(again) == str(plan)
    assert plan.share == sum(plan.answered) / max(sum(plan.look_ups), 1)


@pytest.mark.parametrize(
    ("make", "halo", "error", "message"),
    [
        (graphs.plain, -1, ValueError, "halo_features must be 0 or more, but is -1"),
        (graphs.plain, 2e9, TypeError, "halo_features must be a whole number, but is 2000000000.0"),
        (graphs.plain, [torch.tensor([1])], ValueError, "must have ids for each of 2 parts, but has 1"),
        (graphs.plain, [torch.tensor([100])] * 2, IndexError, r"halo_features\[0\]"),
        (graphs.plain, [torch.tensor([0.5])] * 2, TypeError, r"halo_features\[0\]"),
        (graphs.plain, [{"user": torch.tensor([1])}] * 2, TypeError, "must be a tensor for this graph, but is a dict"),
        (graphs.typed, [torch.tensor([1])] * 2, TypeError, "must be a dict by node type for this graph"),
        (graphs.typed, [{"town": torch.tensor([1])}] * 2, ValueError, "is of node type 'town', but the graph has"),
    ],
)
def test_what_can_t_be_copied_is_refused(
    make: Callable[[], gf.FusedCSCSamplingGraph], halo: Any, error: type[Exception], message: str
) -> None:
    graph = make()
    features = features_of(graph, {None: 1} if graph.node_type_to_id is None else {"user": 1})
    with pytest.raises(error, match=message):
        plan_halo(graph, assign_nodes(graph, 2, "hash"), 2, features, halo)


def test_bytes_may_be_any_whole_number_and_ids_lists() -> None:
    graph = graphs.plain()
    features, assignment = features_of(graph, {None: 1}), assign_nodes(graph, 2, "hash")
    plan = plan_halo(graph, assignment, 2, features, 300)
    as_lists: Any = [ids.tolist() for ids in plan.ids if isinstance(ids, torch.Tensor)]
    number: Any = np.int64(300)
    for halo in (number, as_lists):
        assert str(plan_halo(graph, assignment, 2, features, halo)) == str(plan)


def test_features_of_nodes_are_needed() -> None:
    graph = graphs.plain()
    for features in (None, features_of(graph, {})):
        with pytest.raises(ValueError, match="halo_features needs features of nodes to copy, but there are none"):
            plan_halo(graph, assign_nodes(graph, 2, "hash"), 2, features, 40)


def test_it_takes_no_more_memory_than_it_says() -> None:
    size = 1 << 20
    graph = gf.from_coo((torch.arange(2 * size) % size, (torch.arange(2 * size) * 7 + 1) % size), size)
    assignment = assign_nodes(graph, 2, "range")
    features = features_of(graph, {None: 1})
    tracemalloc.start()
    plan = plan_halo(graph, assignment, 2, features, 1 << 40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.share == 1.0
    assert peak <= (56 << 20) + 56 * size
