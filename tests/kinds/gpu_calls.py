"""A call of each operation that has kernels for a GPU, on a graph of any size.

`compare_kernels` makes them on a GPU and on the CPU; the tests make them with arguments that are wrong, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch

from graphfeed.ops import rows, sampling, structure
from graphfeed.ops.arguments import NOTHING
from graphfeed.ops.sampling import (
    Drawing,
    Graph,
    OneHop,
    SeedTimes,
    TimeOrder,
    sample_neighbors,
)
from graphfeed.ops.structure import check_csc, check_edge_types, check_joined
from tests.kinds.hops import changed, plain_hops, record

NUM_TYPES = 3
KEYS = (17, 23)


class Call(NamedTuple):
    """An operation and its arguments."""

    run: Callable[..., Any]
    arguments: dict[str, Any]
    changes: Sequence[Mapping[str, Any]] = ({},)
    """The arguments that are others in each of several calls."""
    on_cpu: tuple[str, ...] = ()
    """Names of the arguments that stay on the CPU when the operation runs on a GPU."""
    over_the_bus: tuple[str, ...] = ()
    """The arguments that a GPU may read in page-locked memory."""


@dataclass(frozen=True)
class Inputs:
    """A graph on the CPU in which one column has most of the edges, and seeds in it."""

    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor
    types: torch.Tensor
    times: torch.Tensor
    seeds: torch.Tensor

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.indptr.numel() - 1

    @property
    def columns(self) -> torch.Tensor:
        """The column of each edge."""
        return structure.expand_indptr(self.indptr, torch.int64)


def make_inputs(num_nodes: int, hub: int) -> Inputs:
    """Make a random graph, the same at every call, whose node 1 has `hub` edges and each other one up to 15."""
    chance = torch.Generator().manual_seed(0)
    degrees = torch.randint(0, 16, (num_nodes,), generator=chance)
    degrees[1] = hub
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    size = int(indptr[-1])
    types = torch.randint(NUM_TYPES, (size,), generator=chance)
    columns = torch.repeat_interleave(torch.arange(num_nodes), degrees)
    return Inputs(
        indptr=indptr,
        indices=torch.randint(num_nodes, (size,), generator=chance),
        weights=torch.rand(size, generator=chance) * (torch.rand(size, generator=chance) > 0.5),
        types=((columns * NUM_TYPES + types).sort().values % NUM_TYPES).to(torch.uint8),
        times=torch.randint(1000, (size,), generator=chance),
        seeds=torch.cat([torch.arange(min(num_nodes, 300)), torch.tensor([1, 1])]),
    )


def calls(inputs: Inputs) -> dict[str, Call]:
    """Return a call of each operation, by its name and perhaps some words more."""
    return {
        **calls_on_rows(inputs),
        **calls_on_structure(inputs),
        **calls_of_checks(inputs),
        **calls_on_edges(inputs),
        **calls_of_one_hop(inputs),
        **calls_of_all_hops(inputs),
        **calls_in_time(inputs),
        **calls_of_walks(inputs),
    }


def calls_on_rows(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of operations on rows."""
    index, to_rows, tables = torch.arange(0, 6000, 7) % 2000, torch.arange(0, 6000, 7) % 51 - 1, []
    for width, dtype in ((1, torch.float32), (3, torch.uint8), (40, torch.float16), (100, torch.float32)):
        tables.append(torch.arange(2000 * width).reshape(2000, width).to(dtype))
    copied = [{"source": table, "out": torch.zeros(50, *table.shape[1:], dtype=table.dtype)} for table in tables]
    bits = ((100, 8, 100), (3, 8, 3), (66, 8, 66), (100, 4, 199), (1, 4, 1), (50, 4, 100))
    coded: list[dict[str, Any]] = []
    own_factors = torch.stack([torch.linspace(-1, 1.7, 2000), torch.linspace(0.1, 7, 2000)], 1)
    for width, size, columns in bits:
        codes = (tables[3].int() % 251)[:, :width].byte().contiguous()
        scale, offset = torch.linspace(-1, 1.7, columns), torch.linspace(0.1, 7, columns)
        own = own_factors.to(torch.float32 if size == 8 else torch.float16).view(torch.uint8)
        for given in ({"codes": codes, "scale": scale, "offset": offset}, {"codes": torch.cat([codes, own], 1)}):
            coded += [{"bits": size, "columns": columns, "scale": None, "offset": None, **given}]
    for table in (tables[2], tables[3].bfloat16()):
        coded.append({"codes": table, "bits": 16, "columns": table.shape[1], "scale": None, "offset": None})
    coded += [{**own, "dtype": torch.bfloat16} for own in coded]
    places = torch.arange(0, inputs.indices.numel(), 5)
    sets, asked = rows.new_sets(100), [torch.unique(inputs.indices[50 * part :][:200]) for part in range(4)]
    for request in range(2):
        rows.replace_in_sets(sets, asked[request], request)
    keys = {"sets": sets, "keys": asked[2], "request": 2}
    return {
        "copy_rows": Call(
            rows.copy_rows, {**copied[0], "from_rows": index, "to_rows": to_rows}, copied, over_the_bus=("source",)
        ),
        "gather_rows": Call(
            rows.gather_rows, {"values": tables[0], "index": index}, [{"values": table} for table in tables],
            over_the_bus=("values",),
        ),
        "decode_rows": Call(
            rows.decode_rows, {"index": index, "dtype": torch.float32, **coded[0]}, coded, over_the_bus=("codes",)
        ),
        "decode_rows of all rows": Call(rows.decode_rows, {"index": None, "dtype": torch.float32, **coded[0]}, coded),
        "delete_rows": Call(rows.delete_rows, {"values": inputs.indices, "places": places}),
        "delete_from_columns": Call(rows.delete_from_columns, {"indptr": inputs.indptr, "places": places}),
        "find_in_sets": Call(rows.find_in_sets, keys, [{"keys": own} for own in asked]),
        "replace_in_sets": Call(rows.replace_in_sets, keys, [{"keys": own} for own in asked]),
    }  # fmt: skip


def calls_on_structure(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of operations on the structure of a graph."""
    indptr, indices, columns, few = inputs.indptr, inputs.indices, inputs.columns, slice(0, None, 11)
    pairs = torch.stack([indices, columns], 1)[few].contiguous()
    return {
        "coo_to_csc": Call(
            structure.coo_to_csc, {"sources": indices, "destinations": columns, "num_nodes": inputs.num_nodes}
        ),
        "expand_indptr": Call(
            structure.expand_indptr, {"indptr": indptr, "dtype": torch.int64, "node_ids": torch.arange(len(indptr) - 1)}
        ),
        "indptr_edge_ids": Call(
            structure.indptr_edge_ids, {"indptr": indptr, "dtype": torch.int64, "offset": indptr[:-1].clone()}
        ),
        "compact": Call(structure.compact, {"seeds": inputs.seeds, "neighbors": indices, "num_nodes": None}),
        "compact_marked": Call(structure.compact_marked, {"ids": indices, "marks": indices % 3 == 0}),
        "isin": Call(structure.isin, {"elements": indices, "test_elements": inputs.seeds[few].contiguous()}),
        "match_pairs": Call(
            structure.match_pairs,
            {"indptr": indptr, "indices": indices, "destinations": torch.arange(len(indptr) - 1), "pairs": pairs},
        ),
    }


def calls_of_checks(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of checks, of which each finds nothing, and then the first of many faults."""
    falls, ends = inputs.indptr.clone(), torch.zeros(NUM_TYPES, 2, dtype=torch.int64)
    falls[1:-1] = falls[1:-1].flip(0)
    csc = {"indptr": inputs.indptr, "indices": inputs.indices}
    joined = {**csc, "types": inputs.types, "offsets": torch.tensor([0, inputs.num_nodes]), "ends": ends}
    halves = {"offsets": torch.tensor([0, inputs.num_nodes // 2, inputs.num_nodes]), "ends": ends + 1}
    unsorted, bus = {"types": inputs.types.flip(0).contiguous()}, ("indptr", "indices")
    typed = {"indptr": inputs.indptr, "types": inputs.types, "num_types": NUM_TYPES}
    return {
        "check_csc": Call(fault_of(check_csc), csc, [{}, {"indptr": falls}]),
        "check_edge_types": Call(fault_of(check_edge_types), typed, [{}, unsorted], over_the_bus=bus),
        "check_joined": Call(
            fault_of(check_joined), joined, [{}, halves], on_cpu=("offsets", "ends"), over_the_bus=bus
        ),
    }  # fmt: skip


def fault_of(check: Callable[..., None]) -> Callable[..., torch.Tensor]:
    """Return a function that returns what a check says, as the bytes of the text."""

    def run(**arguments: Any) -> torch.Tensor:
        text = "nothing"
        try:
            check(**arguments)
        except ValueError as error:
            text = str(error)
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    return run


def calls_on_edges(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of operations on what edges have, and of negatives."""
    indptr, weights = inputs.indptr, inputs.weights
    ordered = sampling.order_by_time(indptr, inputs.times)
    return {
        "cumulate_weights": Call(
            sampling.cumulate_weights, {"indptr": indptr, "weights": weights},
            [{}, {"weights": weights > 0}, {"weights": weights.double() * 1e-40}], over_the_bus=("indptr",),
        ),
        "order_by_time": Call(
            sampling.order_by_time, {"indptr": indptr, "times": inputs.times, "types": inputs.types},
            [{}, {"types": None}, {"times": ordered.times, "types": None}],
        ),
        "places_in_order": Call(sampling.places_in_order, {"indptr": indptr, "order": ordered.order}),
        "sample_negatives": Call(
            sampling.sample_negatives,
            {
                "pairs": torch.stack([inputs.seeds, inputs.seeds.flip(0)], 1), "negative_ratio": 3,
                "num_destinations": inputs.num_nodes, "key": KEYS[0],
            },
        ),
    }  # fmt: skip


def calls_of_one_hop(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of one hop: uniform, by weight, by type, with replacement, of whole columns; and by LABOR."""
    cumulative = sampling.cumulate_weights(inputs.indptr, inputs.weights)
    fanouts = [torch.tensor(own) for own in ([4, 70, 2], [5], [60], [-1], [4, -1, 0])]
    graph = record(inputs.indptr, inputs.indices, types=inputs.types, num_types=NUM_TYPES)
    changes = [
        {
            "graph": changed(graph, cumulative=weights),
            "hop": OneHop(inputs.seeds, own, KEYS[:1], Drawing(replace=replace)),
        }
        for own, weights, replace in product(fanouts, (cumulative, None), (False, True))
    ]
    picks = [{"picks": sample_neighbors(graph, OneHop(inputs.seeds, own, KEYS[:1]))} for own in fanouts]
    starts = {"column_starts": torch.tensor([0, len(inputs.seeds)]), "destinations": torch.zeros(NUM_TYPES).long()}
    return {
        "sample_neighbors": call_of_hops({**changes[0], "checked": True}, changes),
        "sample_neighbors by LABOR": call_of_hops({**by_labor(changes[0]), "checked": True}, [*map(by_labor, changes)]),
        "group_by_type": Call(
            sampling.group_by_type, {**picks[0], "types": inputs.types, **starts, "dtype": torch.int64}, picks,
            tuple(starts), ("types",),
        ),
    }  # fmt: skip


def calls_of_all_hops(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of several hops, with uniform and temporal sampling."""
    ordered = sampling.order_by_time(inputs.indptr, inputs.times)
    assert ordered.times is not None
    timed = TimeOrder(ordered.times, ordered.order, earliest=ordered.times - 100)
    graph, seeds = record(inputs.indptr, inputs.indices), inputs.seeds.to(inputs.indices.dtype)
    moments = SeedTimes(torch.arange(len(seeds)) * 37 % 1100, None)
    return {
        "sample_hops": Call(
            plain_hops,
            {"graph": graph, "seeds": seeds, "fanouts": [5, 3], "keys": KEYS, "drawing": Drawing(), "moments": None},
            [{}, {"graph": changed(graph, by_column=timed), "moments": moments, "drawing": Drawing(rows="edge")}],
            over_the_bus=("graph",),
        ),
        "sample_hops with types": Call(
            typed_hops, {"graph": typed_graph(inputs), "seeds": [seeds], "fanouts": [5, 3]},
            over_the_bus=("graph",),
        ),
        "sample_hops with repeated launches": Call(
            partial(typed_hops, fanouts=[20, 300], repeats=3), {"graph": typed_graph(inputs), "seeds": [seeds]}
        ),
    }  # fmt: skip


def typed_graph(inputs: Inputs) -> Graph:
    """Return a graph of one node type, whose edge types number new nodes in descending order."""
    return record(
        inputs.indptr, inputs.indices, types=inputs.types, num_types=NUM_TYPES, order=list(range(NUM_TYPES))[::-1]
    )


def typed_hops(
    graph: Graph, seeds: Sequence[torch.Tensor], fanouts: Sequence[int], repeats: int = 1
) -> list[Any]:  # fmt: skip
    """Sample by edge type, perhaps several times; return the edges of each type."""
    prepared = sampling.PreparedHops(graph, [torch.tensor([own]) for own in fanouts])
    *_, hops = [prepared.sample(seeds, KEYS) for _ in range(repeats)]
    return [[hop.rows, [own for _, own in sorted(hop.edges.items())]] for hop in hops]


def calls_in_time(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of one temporal hop: random and latest edges, windows, a second time, weights, types; LABOR."""
    times, windows = torch.arange(len(inputs.seeds)) * 37 % 1100, torch.arange(len(inputs.seeds)) * 53 % 800
    changes: list[dict[str, Any]] = []
    for by_type, weighted in product((True, False), (True, False)):
        ordered = sampling.order_by_time(inputs.indptr, inputs.times, inputs.types if by_type else None)
        assert ordered.times is not None
        assert ordered.order is not None
        cumulative = None
        if weighted:
            positions = sampling.places_in_order(inputs.indptr, ordered.order)
            cumulative = sampling.cumulate_weights(inputs.indptr, inputs.weights[positions])
        timed = TimeOrder(ordered.times, ordered.order, None, ordered.times - 100, cumulative)
        graph = record(inputs.indptr, inputs.indices, types=inputs.types, num_types=NUM_TYPES, by_column=timed)
        for fanouts in ([4, -1, 60], [-1, -1, -1]) if by_type else ([5], [60], [-1]):
            for replace, window in product((False, True), (windows, None)):
                drawing, moments = Drawing(replace=replace), SeedTimes(times, window)
                hop = OneHop(inputs.seeds, torch.tensor(fanouts), KEYS[:1], drawing, moments)
                changes.append({"graph": graph, "hop": hop})
    # A window that leaves no edge, of a node whose number is larger than that of the seeds.
    last, nothing = inputs.seeds.new_tensor([inputs.num_nodes - 1]), SeedTimes(times[:1], torch.ones_like(times[:1]))
    changes.append({**changes[0], "hop": changes[0]["hop"]._replace(seeds=last, moments=nothing)})
    latest = [
        {**own, "hop": own["hop"]._replace(drawing=Drawing("latest"))}
        for own in changes
        if not own["hop"].drawing.replace and own["graph"].by_column.cumulative is None
    ]
    return {
        "sample_neighbors (temporal)": call_of_hops(changes[0], [*changes, *latest]),
        "sample_neighbors (temporal) by LABOR": call_of_hops(by_labor(changes[0]), [*map(by_labor, changes)]),
    }


def by_labor(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of one hop for LABOR."""
    hop = change["hop"]
    drawing = Drawing("labor", hop.drawing.replace, switch_threshold=1 << 62)
    return {**change, "hop": hop._replace(keys=KEYS, drawing=drawing)}


def call_of_hops(arguments: dict[str, Any], changes: Sequence[Mapping[str, Any]]) -> Call:
    """Return a call of one hop; its graph may be in page-locked memory."""
    return Call(sample_neighbors, arguments, changes, over_the_bus=("graph",))


def calls_of_walks(inputs: Inputs) -> dict[str, Call]:
    """Return the calls of walks of first order, and of the number of their visits."""
    plain = record(inputs.indptr, inputs.indices)
    heavy = changed(plain, cumulative=sampling.cumulate_weights(inputs.indptr, inputs.weights))
    arguments = {"graph": plain, "starts": inputs.seeds, "numbers": inputs.seeds % 5, "key": 3, "length": 4}
    stops, types = [0.0, 0.5, 0.1, 0.2], [0, 2, 1, 2]
    typed = {**arguments, "graph": typed_graph(inputs), "types": types, "stops": stops}
    return {
        "random_walks": Call(
            walk, {**arguments, "stops": stops}, [{}, {"graph": heavy}, {"stops": []}, {"stops": [], "length": 0}],
            over_the_bus=("graph",),
        ),
        "random_walks with types": Call(
            walk, typed, [{}, {"graph": changed(typed_graph(inputs), cumulative=heavy.sums)}], over_the_bus=("graph",)
        ),
        "count_visits": Call(
            sampling.count_visits, {"visits": torch.arange(264).view(12, 22) ** 2 % 11 - 1, "top": 3},
            [{}, {"top": 0}, {"top": 99}],
        ),
    }  # fmt: skip


def walk(  # noqa: PLR0913
    graph: Any, starts: Any, numbers: Any, key: Any, length: Any, p: Any = 1.0, q: Any = 1.0, stops: Any = (),
    types: Any = (), sources: Any = NOTHING,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the nodes and the edges of random walks."""
    steps = sampling.WalkSteps(length, p, q, stops, types)
    found = sampling.random_walks(graph, starts, numbers, key, steps, sources=sources, edges=True)
    assert found.edges is not None
    return [found.nodes, found.edges]
