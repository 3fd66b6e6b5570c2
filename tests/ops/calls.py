"""A valid call of every public operation, which the tests that attack them start from."""

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from graphfeed import ops
from graphfeed.ops.sampling.sample_negative_pairs import KnownEdges, Population

INDPTR = torch.tensor([0, 4, 4, 7, 12, 13, 20])
INDICES = torch.tensor([1, 2, 3, 5, 0, 1, 5, 2, 3, 4, 4, 0, 2, 0, 1, 2, 3, 4, 5, 5])
TYPES = torch.tensor([0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1], dtype=torch.uint8)
TIMES = torch.tensor([5, 3, 9, 1, 2, 2, 7, 8, 6, 4, 0, 1, 3, 9, 8, 7, 6, 5, 4, 3])
SEEDS = torch.tensor([5, 0, 3, 1])
MOMENTS = torch.tensor([9, 5, 4, 1])
WEIGHTS = torch.tensor([1.0, 0.0, 2.0, 0.5] * 5)
KEYS = [11, 12]
PAIRS = [(11, 12), (12, 13)]


class Call(NamedTuple):
    """An operation and its arguments."""

    run: Callable[..., Any]
    arguments: dict[str, Any]


def timed() -> ops.TemporalGraph:
    """Return a graph in time with all that it may have."""
    found = ops.order_by_time(INDPTR, TIMES)
    assert found.order is not None
    links = ops.link_sources(INDPTR, INDICES, found.order)
    sums = ops.cumulate_weights(INDPTR, WEIGHTS)
    return ops.TemporalGraph(INDPTR, INDICES, found.times, found.order, links, cumulative=sums, edge_times=TIMES)


def index() -> ops.HighDegreeIndex:
    """Return an index of the two largest columns, as `build_high_degree_index` would make it of larger ones."""
    columns, degrees = torch.tensor([3, 5]), torch.tensor([5, 7])
    entries = sorted(
        (int(INDICES[int(INDPTR[column]) + place]), number << 32 | place)
        for number, column in enumerate(columns.tolist())
        for place in range(int(degrees[number]))
    )
    starts = torch.tensor([sum(node < bound for node, _ in entries) for bound in range(len(INDPTR))])
    return ops.HighDegreeIndex(columns, degrees, starts, torch.tensor([entry for _, entry in entries]))


def policy(name: str) -> ops.PolicyState:
    """Return a cache's policy that has seen some keys."""
    state = ops.new_policy(name, 4)
    ops.replace_keys(state, torch.arange(6))
    return state


def in_a_file(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give an operation the descriptor of a file of 80 bytes."""

    def call(**arguments: Any) -> Any:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(range(80)))
            file.flush()
            return run(file.fileno(), **arguments)

    return call


def read_bytes(descriptor: int, start: Any, size: Any) -> None:
    """Call the operation with a buffer of a size."""
    ops.read_bytes(descriptor, start, memoryview(bytearray(size)))


def find_keys(name: Any, keys: Any) -> Any:
    """Call the operation with a policy, whose arrays are not for anybody to write to."""
    return ops.find_keys(policy(name), keys)


def replace_keys(name: Any, keys: Any) -> Any:
    """Do the same."""
    return ops.replace_keys(policy(name), keys)


def sampling_calls() -> dict[str, Call]:
    """Return the calls of operations that draw."""
    sums, picks = (
        ops.cumulate_weights(INDPTR, WEIGHTS),
        ops.sample_neighbors(INDPTR, torch.arange(6), torch.tensor([2]), 1),
    )
    one = {"fanouts": torch.tensor([2, 1]), "replace": False, "cumulative": sums, "types": TYPES, "num_types": 2}
    graph = {"indptr": INDPTR, "indices": INDICES, "seeds": SEEDS}
    edges = ops.CachedEdgeValues(INDICES, INDICES[:4].clone(), torch.tensor([0, ops.NOT_CACHED, ops.NOT_CACHED]))
    return {
        "as_times": Call(ops.as_times, {"name": "times", "times": TIMES}),
        "build_high_degree_index": Call(ops.build_high_degree_index, {"indptr": INDPTR, "indices": INDICES}),
        "cumulate_weights": Call(ops.cumulate_weights, {"indptr": INDPTR, "weights": WEIGHTS}),
        "group_by_type": Call(
            ops.group_by_type,
            {
                "picks": picks,
                "types": torch.zeros(20, dtype=torch.uint8),
                "column_starts": torch.tensor([0, 6]),
                "destinations": torch.tensor([0, 0]),
                "dtype": torch.int64,
            },
        ),
        "guide_sums": Call(ops.guide_sums, {"indptr": INDPTR, "cumulative": sums}),
        "labor_sample_neighbors": Call(
            ops.labor_sample_neighbors, {**graph, **one, "keys": PAIRS[0], "switch_threshold": 0, "checked": True}
        ),
        "link_sources": Call(
            ops.link_sources, {"indptr": INDPTR, "indices": INDICES, "order": ops.order_by_time(INDPTR, TIMES).order}
        ),
        "linked_order": Call(ops.linked_order, {"links": timed().links}),
        "order_by_time": Call(ops.order_by_time, {"indptr": INDPTR, "times": TIMES, "types": TYPES}),
        "permute": Call(ops.permute, {"start": 3, "stop": 9, "size": 5000, "key": 1}),
        "places_in_order": Call(
            ops.places_in_order, {"indptr": INDPTR, "order": ops.order_by_time(INDPTR, TIMES).order}
        ),
        "read_edges": Call(
            ops.read_edges,
            {"edges": edges, "offsets": torch.tensor([0, 2, 3, 3]), "positions": torch.tensor([1, 3, 9])},
        ),
        "sample_negatives": Call(
            ops.sample_negatives,
            {"pairs": torch.tensor([[0, 1], [2, 3]]), "negative_ratio": 2, "num_destinations": 6, "key": 1},
        ),
        "sample_neighbors": Call(
            ops.sample_neighbors, {"indptr": INDPTR, "seeds": SEEDS, **one, "key": 1, "checked": True}
        ),
    }


def hop_calls() -> dict[str, Call]:
    """Return the calls of the operation on all hops."""
    sums = ops.cumulate_weights(INDPTR, WEIGHTS)
    guided = ops.HopGraph(INDPTR, INDICES, cumulative=ops.GuidedSums(sums, ops.guide_sums(INDPTR, sums)))
    hops = {"graph": guided, "seeds": SEEDS, "fanouts": [2, 3], "drawing": ops.Drawing()}
    return {
        "sample_hops": Call(ops.sample_hops, {**hops, "keys": KEYS}),
        "sample_hops by LABOR": Call(
            ops.sample_hops,
            {
                **hops,
                "graph": ops.HopGraph(INDPTR, INDICES, large_columns=index()),
                "keys": PAIRS,
                "drawing": ops.Drawing("labor", switch_threshold=1 << 62),
            },
        ),
        "sample_hops in time": Call(
            ops.sample_hops,
            {
                **hops,
                "graph": ops.HopGraph(INDPTR, INDICES, timed=(timed(), timed())),
                "keys": KEYS,
                "moments": ops.SeedTimes(MOMENTS, torch.tensor([3, 4, 0, 9])),
            },
        ),
    }


def pyg_calls() -> dict[str, Call]:
    """Return the calls of operations that PyG's loaders need."""
    graph = {"indptr": INDPTR, "indices": INDICES}
    nodes = torch.tensor([5, 0, 1, 0, 5])
    return {
        "draw_places": Call(
            ops.draw_places, {"count": 4, "key": 1, "size": 6, "cumulative": torch.tensor([0, 2, 2, 5, 6, 9])}
        ),
        "induce_trees": Call(
            ops.induce_trees, {**graph, "columns": nodes, "nodes": nodes, "starts": torch.tensor([0, 3, 3, 5])}
        ),
        "random_walks": Call(ops.random_walks, {**graph, "starts": SEEDS, "num_steps": 3, "key": 1}),
        "sample_negative_pairs": Call(
            ops.sample_negative_pairs,
            {
                "count": 4,
                "key": 1,
                "sources": torch.tensor([0, 2, 5, 1]),
                "destinations": Population(6, times=torch.arange(6)),
                "limits": MOMENTS,
                "edges": KnownEdges(INDPTR, INDICES),
            },
        ),
    }


def draw_from_budget(key: int, wanted: list[int], first_ids: Any, **given: Any) -> list[torch.Tensor]:
    """Return the nodes that a budget draws."""
    budget = ops.NodeBudget(first_ids)
    budget.share(**given)
    return budget.draw(wanted, key)


def typed_graph() -> ops.HopGraph:
    """Return a graph with types: nodes 0 to 2 are of one, 3 to 5 of another, and edges lead from each to each."""
    owners = torch.arange(6).repeat_interleave(INDPTR.diff())
    kinds = 2 * (owners > 2) + (INDICES > 2)
    order = torch.argsort(owners * 4 + kinds, stable=True)
    ends = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    return ops.HopGraph(
        INDPTR, INDICES[order], kinds[order].to(torch.uint8), torch.tensor([0, 3, 6]), ends, torch.tensor([3, 1, 0, 2]),
        ops.cumulate_weights(INDPTR, WEIGHTS),
    )  # fmt: skip


def typed_calls() -> dict[str, Call]:
    """Return the calls of operations that draw on a graph with types."""
    graph = typed_graph()
    seeds, fanouts = [torch.tensor([0, 2]), torch.tensor([1])], [torch.tensor([2]), torch.tensor([1, 2, -1, 0])]
    return {
        "NodeBudget": Call(
            draw_from_budget,
            {
                "key": 1,
                "wanted": [1, 2],
                "first_ids": torch.tensor([0, 3, 6]),
                "sampled": torch.tensor([0, 2]),
                "offsets": torch.tensor([0, 2, 5]),
                "neighbors": torch.tensor([1, 4, 3, 3, 5]),
            },
        ),
        "typed_sample_hops": Call(
            ops.typed_sample_hops,
            {"graph": graph, "seeds": seeds, "fanouts": fanouts, "keys": KEYS, "drawing": ops.Drawing()},
        ),
        "typed_sample_hops by LABOR": Call(
            ops.typed_sample_hops,
            {
                "graph": graph,
                "seeds": seeds,
                "fanouts": fanouts,
                "keys": PAIRS,
                "drawing": ops.Drawing("labor", switch_threshold=1 << 62),
            },
        ),
        "typed_sample_hops in time": Call(
            ops.typed_sample_hops,
            {
                "graph": graph._replace(timed=(timed(), timed())),
                "seeds": seeds,
                "fanouts": fanouts,
                "keys": KEYS,
                "drawing": ops.Drawing(replace=True),
                "moments": ops.SeedTimes(MOMENTS[:3], torch.tensor([3, 4, 9])),
            },
        ),
    }


def temporal_calls() -> dict[str, Call]:
    """Return the calls of operations that draw in time."""
    hop = {"graph": timed(), "seeds": SEEDS, "times": MOMENTS, "replace": False}
    late = {"fanouts": torch.tensor([2]), "windows": torch.tensor([3, 4, 0, 9])}
    return {
        "temporal_labor_sample_neighbors": Call(
            ops.temporal_labor_sample_neighbors, {**hop, **late, "keys": PAIRS[0], "switch_threshold": 0}
        ),
        "temporal_sample_neighbors": Call(
            ops.temporal_sample_neighbors, {**hop, **late, "key": 1, "latest": False}
        ),
    }  # fmt: skip


def structure_calls() -> dict[str, Call]:
    """Return the calls of operations on the structure of a graph."""
    offsets, ends = torch.tensor([0, 6]), torch.tensor([[0, 0], [0, 0]])
    starts = {"seed_starts": torch.tensor([0, 4]), "neighbor_starts": torch.tensor([0, 9, 20])}
    return {
        "assign_slots": Call(ops.assign_slots, {"destinations": INDICES, "starts": torch.arange(6) * 4}),
        "check_csc": Call(ops.check_csc, {"indptr": INDPTR, "indices": INDICES}),
        "check_edge_types": Call(ops.check_edge_types, {"indptr": INDPTR, "types": TYPES, "num_types": 2}),
        "check_joined": Call(
            ops.check_joined,
            {"indptr": INDPTR, "indices": INDICES, "types": TYPES, "offsets": offsets, "ends": ends},
        ),
        "compact": Call(
            ops.compact,
            {"seeds": SEEDS, "neighbors": INDICES, **starts, "sources": torch.tensor([0, 0]), "num_nodes": 6},
        ),
        "coo_to_csc": Call(ops.coo_to_csc, {"sources": INDICES, "destinations": INDICES.flip(0), "num_nodes": 6}),
        "count_edges": Call(ops.count_edges, {"destinations": INDICES, "counts": torch.zeros(6, dtype=torch.int64)}),
        "expand_indptr": Call(
            ops.expand_indptr,
            {"indptr": INDPTR, "dtype": torch.int64, "node_ids": torch.arange(6), "output_size": 20},
        ),
        "indptr_edge_ids": Call(
            ops.indptr_edge_ids,
            {"indptr": INDPTR, "dtype": torch.int64, "offset": torch.arange(6), "output_size": 20},
        ),
        "isin": Call(ops.isin, {"elements": SEEDS, "test_elements": INDICES}),
        "join_columns": Call(
            ops.join_columns,
            {"indptrs": [INDPTR, INDPTR], "indices": [INDICES, INDICES], "ids": [INDICES, INDICES.flip(0)]},
        ),
        "match_pairs": Call(
            ops.match_pairs,
            {
                "indptr": INDPTR,
                "indices": INDICES,
                "destinations": torch.arange(6),
                "pairs": torch.tensor([[1, 0], [5, 5]]),
                "rows": torch.arange(6),
            },
        ),
        "merge_columns": Call(
            ops.merge_columns,
            {
                "places": [torch.tensor([1, 3]), torch.tensor([2, 0])],
                "counts": [torch.tensor([2, 0], dtype=torch.int32), torch.tensor([1, 3])],
                "values": [[torch.tensor([7, 8])], [torch.tensor([4, 5, 6, 9], dtype=torch.int32)]],
                "dtypes": [torch.int64],
            },
        ),
        "unique_and_compact": Call(ops.unique_and_compact, {"nodes": [SEEDS, INDICES], "rank": 0, "world_size": 1}),
    }


def row_calls() -> dict[str, Call]:
    """Return the calls of operations on rows."""
    values, sets = torch.arange(20).view(5, 4), ops.new_sets(70)
    ops.replace_in_sets(sets, torch.arange(50), request=0)
    rows = {"from_rows": torch.tensor([1, 4]), "to_rows": torch.tensor([0, -1])}
    places = torch.tensor([1, 3])
    return {
        "clear_policy": Call(lambda name: ops.clear_policy(policy(name)), {"name": "lru"}),
        "clear_sets": Call(lambda capacity: ops.clear_sets(ops.new_sets(capacity)), {"capacity": 70}),
        "copy_rows": Call(ops.copy_rows, {"source": values, "out": values.clone(), **rows, "distinct": True}),
        "delete_from_columns": Call(ops.delete_from_columns, {"indptr": INDPTR, "places": places}),
        "delete_rows": Call(ops.delete_rows, {"values": values, "places": places}),
        "find_in_sets": Call(ops.find_in_sets, {"sets": sets, "keys": INDICES, "request": 1}),
        "find_keys": Call(find_keys, {"name": "s3-fifo", "keys": INDICES}),
        "gather_parts": Call(
            lambda first, second, **rows: ops.gather_parts([first, None, second], **rows),
            {
                "first": values,
                "second": values[1:3],
                "owners": torch.tensor([2, 0]),
                "places": torch.tensor([1, 4]),
                "out": torch.zeros(2, 4, dtype=torch.int64),
            },
        ),
        "gather_rows": Call(ops.gather_rows, {"values": values, "index": places}),
        "index_select": Call(ops.index_select, {"tensor": values, "index": places}),
        "new_policy": Call(ops.new_policy, {"policy": "clock", "capacity": 4}),
        "new_sets": Call(ops.new_sets, {"capacity": 70}),
        "policy_bytes": Call(ops.policy_bytes, {"policy": "sieve", "capacity": 4}),
        "read_bytes": Call(in_a_file(read_bytes), {"start": 3, "size": 9}),
        "read_rows": Call(
            in_a_file(ops.read_rows),
            {"start": 8, "ids": torch.tensor([0, 2, 2]), "out": torch.zeros(3, 2), "places": torch.tensor([2, 0, 1])},
        ),
        "replace_in_sets": Call(ops.replace_in_sets, {"sets": sets, "keys": INDICES, "request": 1}),
        "replace_keys": Call(replace_keys, {"name": "sieve", "keys": INDICES}),
    }


def other_calls() -> dict[str, Call]:
    """Return the calls of what no kernel belongs to."""
    return {
        "Key": Call(lambda **numbers: ops.Key(**numbers).at(1), {"seed": 1, "epoch": 2, "index": 3}),
        "draw_key": Call(ops.draw_key, {"hop": 1}),
        "pin_in_place": Call(lambda tensor: ops.pin_in_place(tensor, ops), {"tensor": SEEDS}),
        "seed": Call(ops.seed, {"val": 1}),
        "set_max_uva_threads": Call(ops.set_max_uva_threads, {"count": 10240}),
    }


def calls() -> dict[str, Call]:
    """Return a call of each operation, by name."""
    return {
        **sampling_calls(),
        **hop_calls(),
        **pyg_calls(),
        **typed_calls(),
        **temporal_calls(),
        **structure_calls(),
        **row_calls(),
        **other_calls(),
    }
