"""A valid call of every public operation, which the tests that attack them start from.

Those that a GPU has kernels for are in `tests.kinds.gpu_calls`.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops import EdgeSet, Population
from tests.kinds import gpu_calls as calls_on_gpus
from tests.kinds.gpu_calls import Call, make_inputs, walk
from tests.kinds.hops import changed, plain_hops

INDPTR = torch.tensor([0, 4, 4, 7, 12, 13, 20])
INDICES = torch.tensor([1, 2, 3, 5, 0, 1, 5, 2, 3, 4, 4, 0, 2, 0, 1, 2, 3, 4, 5, 5])
TIMES = torch.tensor([5, 3, 9, 1, 2, 2, 7, 8, 6, 4, 0, 1, 3, 9, 8, 7, 6, 5, 4, 3])
SEEDS = torch.tensor([5, 0, 3, 1])
MOMENTS = torch.tensor([9, 5, 4, 1])
WEIGHTS = torch.tensor([1.0, 0.0, 2.0, 0.5] * 5)
KEYS = [11, 12]
PAIRS = [(11, 12), (12, 13)]


def timed(indices: torch.Tensor = INDICES, types: torch.Tensor | None = None) -> ops.TimeOrder:
    """Return an order of time with all that it may have, within types if there are any."""
    found = ops.order_by_time(INDPTR, TIMES, types)
    assert found.order is not None
    links = ops.link_sources(INDPTR, indices, found.order)
    sums = ops.cumulate_weights(INDPTR, WEIGHTS)
    return ops.TimeOrder(found.times, found.order, links, cumulative=sums)


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


def seen_by(name: str) -> ops.PolicyState:
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


def read_bytes(descriptor: int, start: Any) -> None:
    """Call the operation with a buffer."""
    ops.read_bytes(descriptor, start, memoryview(bytearray(9)))


def with_policy(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give an operation a policy, whose arrays are not for anybody to write to."""
    return lambda policy, **arguments: run(seen_by(policy), **arguments)


def with_plan(run: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Give an operation a plan for the rows of a file, whose arrays are not for anybody to write to."""
    return lambda **arguments: run(ops.new_row_plan(6, 3), **fixed, **arguments)


def sampling_calls() -> dict[str, Call]:
    """Return the calls of operations that draw, and of those that prepare a graph for them."""
    graph, order = {"indptr": INDPTR, "indices": INDICES}, ops.order_by_time(INDPTR, TIMES).order
    sources = {"count": 4, "key": 1, "sources": torch.tensor([0, 2, 5, 1])}
    negatives = {**sources, "destinations": Population(6, times=torch.arange(6)), "limits": MOMENTS}
    mass = {**graph, "seeds": SEEDS, "top": 3, "alpha": 1 << 30, "bound": 1 << 20}
    mass |= {"groups": torch.tensor([0, 2, 6]), "short_degrees": ops.shorten_degrees(INDPTR)}
    rising = torch.cat([part.sort().values for part in torch.split(TIMES, INDPTR.diff().tolist())])
    earlier = {"indptr": INDPTR, "times": rising, "nodes": SEEDS, "moments": MOMENTS[: len(SEEDS)]}
    row = {"count": 4, "key": 1, "size": 6, "cumulative": torch.tensor([0, 2, 2, 5, 6, 9])}
    return {
        "as_times": Call(partial(ops.as_times, "times"), {"times": TIMES}),
        "build_high_degree_index": Call(ops.build_high_degree_index, graph),
        "count_earlier": Call(ops.count_earlier, earlier),
        "draw_places": Call(ops.draw_places, row),
        "guide_sums": Call(ops.guide_sums, {"indptr": INDPTR, "cumulative": ops.cumulate_weights(INDPTR, WEIGHTS)}),
        "latest_cells": Call(latest, {"indptr": INDPTR, "sources": INDICES, "times": rising, "seeds": SEEDS}),
        "link_sources": Call(ops.link_sources, {**graph, "order": order}),
        "linked_order": Call(ops.linked_order, {"links": timed().links}),
        "permute": Call(ops.permute, {"start": 3, "stop": 9, "size": 5000, "key": 1}),
        "push_mass": Call(push, mass),
        "sample_negative_pairs": Call(ops.sample_negative_pairs, {**negatives, "edges": EdgeSet(INDPTR, INDICES)}),
    }


def latest(seeds: torch.Tensor, **edges: Any) -> list[torch.Tensor]:
    earlier = ops.count_earlier(edges["indptr"], edges["times"], edges["sources"], edges["times"])
    times = ops.SeedTimes(torch.full((len(seeds),), 500), torch.full((len(seeds),), 400))
    hops = ops.latest_cells(ops.TimedEdges(**edges, earlier=earlier), seeds, times, [3, 2], right=True)
    return [part for hop in hops for part in hop]


def push(**arguments: Any) -> list[torch.Tensor]:
    ranked, left = ops.push_mass(**arguments)
    return [*ranked, left]


def hop_calls() -> dict[str, Call]:
    """Return the calls of operations on all hops."""
    plain, typed = ops.Graph.checked(INDPTR, INDICES), typed_graph()
    sums, windows = ops.cumulate_weights(INDPTR, WEIGHTS), torch.tensor([3, 4, 0, 9])
    labor = {"drawing": ops.Drawing("labor", switch_threshold=1 << 62), "keys": PAIRS}
    in_order = {"by_column": timed(), "edge_times": TIMES}
    guided = changed(plain, cumulative=ops.GuidedSums(sums, ops.guide_sums(INDPTR, sums)))
    hops = {"graph": guided, "seeds": SEEDS, "fanouts": [2, 3], "drawing": ops.Drawing(), "keys": KEYS}
    in_time = {
        "graph": changed(plain, **in_order),
        "moments": ops.SeedTimes(MOMENTS, windows),
        "drawing": ops.Drawing(rows="edge"),
    }
    by_type: dict[str, Any] = {
        "graph": typed, "seeds": [torch.tensor([0, 2]), torch.tensor([1])], "drawing": ops.Drawing(), "keys": KEYS,
        "fanouts": [torch.tensor([2]), torch.tensor([1, 2, -1, 0])],
    }  # fmt: skip
    typed_in_time = {
        "graph": changed(typed, **in_order, by_type=timed(typed.indices, typed.types)),
        "drawing": ops.Drawing(replace=True, rows="edge"),
        "moments": ops.SeedTimes(MOMENTS[:3], windows[[0, 1, 3]]),
    }  # fmt: skip
    budget = {
        "key": 1, "wanted": [1, 2], "first_ids": torch.tensor([0, 3, 6]), "sampled": torch.tensor([0, 2]),
        "offsets": torch.tensor([0, 2, 5]), "neighbors": torch.tensor([1, 4, 3, 3, 5]),
    }  # fmt: skip
    walks = {"graph": plain, "starts": SEEDS, "numbers": SEEDS, "key": 1, "length": 2}
    columns = {"indptr": INDPTR, "indices": INDICES, **in_order, "cumulative": sums, "large_columns": index()}
    kinds: dict[str, Any] = {
        "types": typed.types,
        "first_ids": [0, 3, 6],
        "ends": torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]]),
    }
    kinds |= {"indptr": INDPTR, "indices": typed.indices, "order": [3, 1, 0, 2], "by_type": timed()}
    return {
        "Graph": Call(sample_checked, columns),
        "Graph with types": Call(sample_checked, kinds),
        "NodeBudget": Call(draw_from_budget, budget),
        "sample_hops": Call(plain_hops, hops),
        "random_walks with guides": Call(walk, {**walks, "graph": guided, "length": 3}),
        "random_walks by both nodes": Call(walk, {**walks, "length": 3, "p": 0.5, "q": 4.0, "sources": TIMES}),
        "sample_hops by LABOR": Call(plain_hops, {**hops, **labor, "graph": changed(plain, large_columns=index())}),
        "sample_hops in trees": Call(plain_hops, {**hops, "drawing": ops.Drawing(only_new=True, rows="tree")}),
        "sample_hops with times": Call(plain_hops, {**hops, **in_time}),
        "sample_hops with types": Call(ops.sample_hops, by_type),
        "sample_hops with types by LABOR": Call(ops.sample_hops, {**by_type, **labor}),
        "sample_hops with types and times": Call(ops.sample_hops, {**by_type, **typed_in_time}),
    }


def sample_checked(**arrays: Any) -> list[torch.Tensor]:
    """Check the arrays of a graph, and sample all edges of some nodes."""
    graph = ops.Graph.checked(**arrays)
    seeds = torch.zeros(min(graph.num_nodes, 2), dtype=graph.indices.dtype)
    hop = ops.OneHop(seeds, torch.tensor([-1]), (1,), moments=ops.SeedTimes(seeds.long() + 9))
    return [*ops.sample_neighbors(graph, hop)]


def draw_from_budget(key: int, wanted: list[int], first_ids: Any, **given: Any) -> list[torch.Tensor]:
    """Return the nodes that a budget draws."""
    budget = ops.NodeBudget(first_ids)
    budget.share(**given)
    return budget.draw(wanted, key)


def typed_graph() -> ops.Graph:
    """Return a graph with types: nodes 0 to 2 are of one, 3 to 5 of another, and edges lead from each to each."""
    columns = torch.arange(6).repeat_interleave(INDPTR.diff())
    types = 2 * (columns > 2) + (INDICES > 2)
    order = torch.argsort(columns * 4 + types, stable=True)
    ends = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    return ops.Graph.checked(
        INDPTR, INDICES[order], types=types[order].to(torch.uint8), first_ids=[0, 3, 6], ends=ends, order=[3, 1, 0, 2],
        cumulative=ops.cumulate_weights(INDPTR, WEIGHTS),
    )  # fmt: skip


def structure_calls() -> dict[str, Call]:
    """Return the calls of operations on the structure of a graph."""
    nodes = torch.tensor([5, 0, 1, 0, 5])
    trees = {"columns": nodes, "nodes": nodes, "starts": torch.tensor([0, 3, 3, 5])}
    merged = {
        "places": [torch.tensor([1, 3]), torch.tensor([2, 0])],
        "counts": [torch.tensor([2, 0], dtype=torch.int32), torch.tensor([1, 3])],
        "values": [[torch.tensor([7, 8])], [torch.tensor([4, 5, 6, 9], dtype=torch.int32)]],
        "dtypes": [torch.int64],
    }
    read = {"starts": INDPTR, "first_edges": INDPTR * 2, "indices": INDICES, "nodes": INDICES[:2]}
    read |= {"offsets": torch.tensor([0, 1, 3]), "positions": INDICES[:3]}
    joined = {"indptrs": [INDPTR, INDPTR], "indices": [INDICES, INDICES], "ids": [INDICES, INDICES.flip(0)]}
    nothing = torch.empty(0, dtype=torch.bool)
    return {
        "assign_slots": Call(ops.assign_slots, {"destinations": INDICES, "starts": torch.arange(6) * 4}),
        "count_edges": Call(ops.count_edges, {"destinations": INDICES, "counts": torch.zeros(6, dtype=torch.int64)}),
        "induce_trees": Call(ops.induce_trees, {"indptr": INDPTR, "indices": INDICES, **trees}),
        "join_columns": Call(ops.join_columns, {**joined, "marks": [nothing, INDICES[:12] > 2]}),
        "mark_first": Call(ops.mark_first, {"indptrs": joined["indptrs"], "ids": joined["ids"]}),
        "merge_columns": Call(ops.merge_columns, merged),
        "mirror_edges": Call(ops.mirror_edges, {"sources": SEEDS, "destinations": SEEDS.flip(0), "num_nodes": 100}),
        "read_columns": Call(ops.read_columns, read),
        "unique_and_compact": Call(ops.unique_and_compact, {"nodes": [SEEDS, INDICES], "rank": 0, "world_size": 1}),
    }


def row_calls() -> dict[str, Call]:
    """Return the calls of operations on rows."""
    values, places = torch.arange(20).view(5, 4), torch.tensor([1, 3])
    factors = {"scale": torch.ones(4), "offset": torch.zeros(4)}
    coded = {"codes": values.byte(), "index": places, "bits": 8, "columns": 4, **factors}
    trained = {"rows": torch.ones(5, 2), "state": torch.zeros(5, 2), "ids": places, "gradients": torch.ones(2, 2)}
    read = {"start": 8, "ids": torch.tensor([0, 2, 2]), "out": torch.zeros(3, 2), "places": torch.tensor([2, 0, 1])}
    return {
        "clear_policy": Call(with_policy(ops.clear_policy), {"policy": "lru"}),
        "clear_sets": Call(lambda capacity: ops.clear_sets(ops.new_sets(capacity)), {"capacity": 70}),
        "decode_rows": Call(ops.decode_rows, coded),
        "draw_rows": Call(ops.draw_rows, {"rows": torch.zeros(3, 2), "ids": torch.arange(3), "key": 5, "bound": 0.5}),
        "find_keys": Call(with_policy(ops.find_keys), {"policy": "s3-fifo", "keys": INDICES}),
        "find_slots": Call(with_plan(ops.find_slots), {"ids": INDICES}),
        "index_select": Call(ops.index_select, {"tensor": values, "index": places}),
        "new_policy": Call(ops.new_policy, {"policy": "clock", "capacity": 4}),
        "new_sets": Call(ops.new_sets, {"capacity": 70}),
        "note_rows": Call(with_plan(ops.note_rows, number=1, first=0, first_before=0), {"ids": INDICES}),
        "policy_bytes": Call(ops.policy_bytes, {"capacity": 4}),
        "read_blocks": Call(in_a_file(partial(ops.read_blocks, size=9)), {"start": 3}),
        "read_bytes": Call(in_a_file(read_bytes), {"start": 3}),
        "read_rows": Call(in_a_file(ops.read_rows), read),
        "replace_keys": Call(with_policy(ops.replace_keys), {"policy": "sieve", "keys": INDICES}),
        "train_rows": Call(partial(ops.train_rows, rule=ops.StepRule("adagrad", 0.5)), trained),
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
    shared = calls_on_gpus.calls(make_inputs(6, 9))
    return {**shared, **sampling_calls(), **hop_calls(), **structure_calls(), **row_calls(), **other_calls()}
