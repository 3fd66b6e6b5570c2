"""Problems of sampling: a graph, a request with any options that go together, seeds and keys, and the slow answer."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, pairwise
from typing import Any, NamedTuple, TypeAlias

import torch

import graphfeed as gf
from graphfeed.ops import JoinedHops
from graphfeed.storage.graph import Hop, draws_of
from tests.kinds import reference
from tests.kinds.random_graphs import DEGREES, LAST, Moments, RandomGraph, random_graph

Options: TypeAlias = dict[str, Any]
Seed: TypeAlias = tuple[int, int, int]
"""A node, its time and its window."""
ROWS: dict[str, Options] = {
    "node": {}, "edge": {"deduplicate": False}, "new": {"only_new": True}, "tree": {"only_new": True, "disjoint": True},
}  # fmt: skip
"""The options of a request by what a row is. Without trees, each edge has a row in time."""
SMALL, LARGE, FEW = [1, 2, 2, 3], [-1, 20, 47, 48, 49, 60, 200], [-1, 0, 2, 5]
"""Fan-outs. The reference samples no hop after one of many rows, and needs seconds for many picks by LABOR with
replacement."""


@dataclass(frozen=True)
class Problem:
    """A graph, a request without its arrays, and the seeds and the keys of a mini-batch."""

    graph: RandomGraph
    options: Options
    """The options of `SamplingRequest`, but for fan-outs and times."""
    fanouts: Sequence[Sequence[int]]
    """Those of each hop, that of the seeds first."""
    query: Options | None
    """The options of `TemporalQuery`; the window is a number, None, or "seeds" for one per seed."""
    seeds: Sequence[Sequence[Seed]]
    """By node type."""
    keys: Sequence[tuple[int, int]]
    """Two keys for each hop, that of the seeds first; only LABOR uses the second one."""
    share: float = 0.0

    def expected(self) -> list[reference.SampledHop]:
        """Return the hops of the reference."""
        query, options = self.query or {}, self.options
        arrays = self.graph.in_lists(
            options["probs_name"], query.get("node_timestamp_attr_name"), query.get("edge_timestamp_attr_name")
        )
        window, trees = query.get("pre_time_window"), options.get("disjoint")
        starts = reference.running_sum(map(len, self.seeds))
        seeds = [
            [
                reference.Row(
                    node, (start + place) * bool(trees), None if self.query is None else time,
                    own_window if window == "seeds" else window,
                )
                for place, (node, time, own_window) in enumerate(own)
            ]
            for start, own in zip(starts, self.seeds, strict=False)
        ]  # fmt: skip
        merged = options.get("deduplicate", True) and self.query is None
        how = reference.How(
            options["strategy"], options["replace"], options.get("only_new", False),
            "tree" if trees else "node" if merged else "edge",
            self.graph.edge_times if query.get("hop_time") == "edge" else None, query.get("inclusive", False),
        )  # fmt: skip
        draws = [(own if self.share < 1 else (own[1],) * 2, int(self.share % 1 * 2**64)) for own in self.keys]
        steps = list(zip(self.fanouts, draws, strict=True))
        hops = reference.sample_hops(arrays, self.graph.kinds, seeds, steps, how)
        ids = self.graph.edge_ids
        return [hop._replace(positions=[[ids[edge] for edge in own] for own in hop.positions]) for hop in hops]

    def call(self, ids: torch.dtype, num_hops: int) -> tuple[gf.Seeds, gf.SamplingRequest, list[Any]]:
        """Return the seeds, the request and the keys of the first hops."""
        parts = [torch.tensor(own, dtype=torch.int64).reshape(-1, 3).T for own in self.seeds]
        nodes, times, windows = (
            self.by_type([part[field].to(dtype) for part in parts])
            for field, dtype in enumerate((ids, torch.int64, torch.int64))
        )
        query, seeds = None, gf.Seeds(nodes)
        if self.query is not None:
            by_seed = self.query["pre_time_window"] == "seeds"
            # Seeds' own windows count, whatever the request says.
            query = gf.TemporalQuery(**self.query | ({"pre_time_window": 1} if by_seed else {}))
            seeds = gf.Seeds(nodes, times, windows if by_seed else None)
        fanouts = [torch.tensor(own) for own in self.fanouts[:num_hops]][::-1]
        request = gf.SamplingRequest(fanouts, **self.options, temporal=query)
        is_labor = request.strategy == "labor"
        return seeds, request, [own if is_labor else own[0] for own in self.keys[:num_hops]]

    def by_type(self, parts: list[torch.Tensor]) -> Any:
        """Return tensors by node type, without the types that have no seeds; one tensor without types."""
        if not self.graph.typed:
            return parts[0]
        return {kind: own for kind, own in zip(self.graph.node_types, parts, strict=True) if len(own)}

    def next_one(self) -> "Problem":
        """Return another mini-batch of the same request."""
        seeds, keys = [own[::-1] for own in self.seeds], [(second, first) for first, second in self.keys]
        return replace(self, seeds=seeds, keys=keys)


def choices(strategy: str, in_time: bool) -> dict[str, list[Any]]:
    """Return the values of each option, which may not all go together (see `are_valid`)."""
    found: dict[str, list[Any]] = {
        "num_types": [0, 1, 3, 20], "degrees": list(DEGREES), "numbered": [False, True],
        "starts": [torch.int32, torch.int64], "least": [False, True],
        "strategy": [strategy], "replace": [False] if strategy == "latest" else [False, True],
        "probs_name": [None, "mask"] if strategy == "latest" else [None, "mask", "w"],
        "rows": ["edge", "tree"] if in_time else list(ROWS),
        "num_hops": [2, 3], "fanouts": ["one", "by type", "both"], "large": ["nowhere", "last", "first"],
        "seeds": ["different", "equal", "of one type"],
    }  # fmt: skip
    if strategy == "labor":
        found["share"] = [0.0, 0.5, 1.0]
    if in_time:
        found |= {
            "times": [("born", "time"), (None, "time"), ("born", None), (None, None)],
            "window": [None, "seeds", "some", "extreme"], "hop_time": ["seed", "edge"], "inclusive": [False, True],
            "spread": [3, 6, 2**62], "in_order": [False, True],
        }  # fmt: skip
    return found


def are_valid(options: Options) -> bool:
    """Return whether options go together."""
    return options.get("hop_time") != "edge" or (options["times"][1] is not None and options["rows"] == "edge")


def covering(values: dict[str, list[Any]], count: int) -> Iterator[Options]:
    """Yield combinations of options that, for their number, have as many pairs of values as possible."""
    chance, met = random.Random(0), set[Any]()
    for _ in range(count):
        drawn = [{name: chance.choice(own) for name, own in values.items()} for _ in range(60)]
        best = max(filter(are_valid, drawn), key=lambda own: len(set(combinations(own.items(), 2)) - met))
        met |= set(combinations(best.items(), 2))
        yield best


def make_problem(chosen: Options, chance: random.Random) -> Problem:
    """Return a problem with the chosen options; everything else is drawn."""
    spread, query = chosen.get("spread", 3), None
    graph = random_graph(
        chance, chosen["num_types"], chosen["degrees"], spread,
        in_order=chosen.get("in_order", False), numbered=chosen["numbered"],
    )  # fmt: skip
    if "times" in chosen:
        nodes, edges = chosen["times"]
        sizes = {"some": spread // 2 + 2, "extreme": chance.choice([0, 1, LAST])}
        window = sizes.get(chosen["window"], chosen["window"])
        query = {
            "node_timestamp_attr_name": nodes, "edge_timestamp_attr_name": edges, "pre_time_window": window,
            "hop_time": chosen["hop_time"], "inclusive": chosen["inclusive"],
        }  # fmt: skip
    own = {} if query and chosen["rows"] == "edge" else ROWS[chosen["rows"]]
    options = {**own, **{name: chosen[name] for name in ("strategy", "replace", "probs_name")}}
    is_slow, fanouts = chosen["strategy"] == "labor" and chosen["replace"], list[list[int]]()
    for hop in range(chosen["num_hops"]):
        is_large = (chosen["large"], hop) in (("first", 0), ("last", chosen["num_hops"] - 1))
        numbers = (FEW if is_slow else LARGE) if is_large else SMALL
        by_type = chosen["fanouts"] == "by type" or (chosen["fanouts"] == "both" and hop % 2)
        many = len(graph.ends) if by_type else 1
        fanouts.append([chance.choice([*numbers, 0] if many > 1 else numbers) for _ in range(many)])
    keys = [(chance.getrandbits(64), chance.getrandbits(64)) for _ in fanouts]
    seeds = draw_seeds(graph, chosen["seeds"], Moments(spread, chance))
    return Problem(graph, options, fanouts, query, seeds, keys, chosen.get("share", 0.0))


def draw_seeds(graph: RandomGraph, kind: str, moments: Moments) -> list[list[Seed]]:
    """Draw some seeds of each node type, or of one, most of them with edges; two are equal, or all are different."""
    found, chance = list[list[Seed]](), moments.chance
    degrees = [high - low for low, high in pairwise(graph.indptr)]
    by_type = [degrees[low:high] for low, high in pairwise(graph.first_ids)]
    only = max(range(len(by_type)), key=lambda number: sum(by_type[number])) if kind == "of one type" else None
    for number, own in enumerate(by_type):
        count = chance.choice([1, 2, 4]) if only in (None, number) else 0
        nodes = sorted(range(len(own)), key=lambda node: chance.random() + (own[node] == 0))[:count]
        repeated = nodes + nodes[:1] if kind == "equal" else nodes
        found.append([(node, moments.late(), moments.window()) for node in repeated])
    return found


Answers: TypeAlias = dict[str, Any]
"""Results of the methods of a graph, in the form of the reference."""


class ListedHops(NamedTuple):
    """All hops of a mini-batch: rows, their numbers and trees by node type, edges and their numbers by edge type."""

    rows: list[list[int]]
    num_rows: list[list[int]]
    edges: list[list[list[int]]]
    num_edges: list[list[int]]
    trees: list[list[int]] | None


def join_hops(hops: Sequence[reference.SampledHop], kinds: reference.Kinds, trees: bool) -> ListedHops:
    """Join hops, the first of which is that of the seeds."""
    rows, joined = hops[-1].rows, [[list[int](), list[int](), list[int]()] for _ in kinds.sources]
    numbers = iter(range(len(reference.join(rows))))
    of_rows = [dict(enumerate(islice(numbers, len(own)))) for own in hops[0].columns]
    for hop in hops:
        for kind, (source, end) in enumerate(zip(kinds.sources, kinds.destinations, strict=True)):
            counts = [high - low for low, high in pairwise(hop.indptr[kind])]
            columns = reference.join([column] * count for column, count in enumerate(counts))
            for line, values in zip(joined[kind], (hop.indices[kind], columns, hop.positions[kind]), strict=True):
                line += values
            # An edge joins nodes of one tree.
            of_rows[source] |= {
                row: of_rows[end][column] for row, column in zip(hop.indices[kind], columns, strict=True)
            }
    sizes = [[len(own) for own in part] for part in zip(*([hop.columns for hop in hops] + [rows]), strict=True)]
    return ListedHops(
        rows,
        [[own[0], *(after - before for before, after in pairwise(own))] for own in sizes],
        joined,
        [[len(hop.indices[kind]) for hop in hops] for kind in range(len(kinds.sources))],
        [[own[row] for row in range(len(own))] for own in of_rows] if trees else None,
    )


def expected_answers(problem: Problem, starts: torch.dtype, ids: torch.dtype) -> Answers:
    """Return the answers of the reference, and the dtypes that column starts and ids have."""
    hops, kinds, trees = problem.expected(), problem.graph.kinds, "disjoint" in problem.options
    found: Answers = {"dtypes": {(starts, ids)}, "sample_hops": hops}
    if not trees:
        first = hops[0]
        ends = zip(kinds.sources, first.indices, strict=True)
        sources = [[first.rows[kind][row] for row in own] for kind, own in ends]
        found["pick"] = first._replace(rows=[], indices=sources)
    # The other methods take no share of the nodes that draw with LABOR's second key.
    if not problem.share:
        others = problem.next_one().expected()
        count = min(len(hops), len(others))
        found["sample_joined"] = join_hops(hops, kinds, trees)
        found["sample"] = [hops[:count], others[:count]]
        found["sample_each_joined"] = [join_hops(own, kinds, trees) for own in found["sample"]]
    return found


def answers_of(graph: gf.SamplingGraph, problem: Problem, wanted: Answers) -> Answers:
    """Return the answers of a graph, with as many hops as the reference has."""
    ((_, ids),) = wanted["dtypes"]
    (seeds, request, keys), own = problem.call(ids, len(wanted["sample_hops"])), problem.graph
    graph.validate(request)
    layers = graph.sample_hops(seeds, request, keys, seed2_contribution=problem.share)
    cscs = [csc for layer in layers for csc in in_order(layer.sampled_csc, own.edge_types)]
    dtypes = {(csc.indptr.dtype, csc.indices.dtype) for csc in cscs}
    found: Answers = {"dtypes": dtypes, "sample_hops": in_lists(layers, own)}
    if "pick" in wanted:
        hop = Hop(request, draws_of(request, keys, problem.share)[0], times=seeds.times, windows=seeds.windows)
        (found["pick"],) = in_lists([graph.pick(seeds.ids, hop)[0]], own)
    if "sample_joined" in wanted:
        found["sample_joined"] = joined_in_lists(graph.sample_joined(seeds, request, keys), own)
        count = len(wanted["sample"][0])
        each_seeds, (request, _), each_keys = zip(
            *(each.call(ids, count) for each in (problem, problem.next_one())), strict=True
        )
        draws = [draws_of(request, own_keys) for own_keys in each_keys]
        found["sample"] = [in_lists(layers, own) for layers in graph.sample(each_seeds, request, draws)]
        joined = graph.sample_each_joined(each_seeds, request, draws)
        found["sample_each_joined"] = [joined_in_lists(hops, own) for hops in joined]
    return found


def in_lists(layers: Sequence[gf.SampledSubgraph], graph: RandomGraph) -> list[reference.SampledHop]:
    """Return sampled hops in the form of the reference."""
    found = []
    for layer in reversed(layers):
        columns, rows = (
            [] if own is None else in_order(own, graph.node_types)
            for own in (layer.original_column_node_ids, layer.original_row_node_ids)
        )
        cscs, ids = (in_order(own, graph.edge_types) for own in (layer.sampled_csc, layer.original_edge_ids))
        parts = columns, rows, [own.indptr for own in cscs], [own.indices for own in cscs], ids
        found.append(reference.SampledHop(*([own.tolist() for own in part] for part in parts)))
        assert len({own.dtype for own in (*columns, *rows, *parts[3])}) == 1
        assert {own.dtype for own in ids} == {torch.int64}
    return found


def joined_in_lists(joined: JoinedHops, graph: RandomGraph) -> ListedHops:
    """Return joined hops in the form of the reference."""
    rows, num_rows = (in_order(own, graph.node_types, joined=True) for own in (joined.rows, joined.num_rows))
    edges, num_edges = (in_order(own, graph.edge_types, joined=True) for own in (joined.edges, joined.num_edges))
    trees = None if joined.trees is None else in_order(joined.trees, graph.node_types, joined=True)
    ids = in_order(joined.edge_ids, graph.edge_types, joined=True)
    lines = [torch.cat([own, part[None]]) for own, part in zip(edges, ids, strict=True)]
    lists: Any = [None if part is None else [own.tolist() for own in part] for part in (rows, lines, trees)]
    return ListedHops(lists[0], num_rows, lists[1], num_edges, lists[2])


def in_order(values: Any, names: Sequence[Any], *, joined: bool = False) -> list[Any]:
    """Return values by type in the order of the numbers of types. Joined hops have the key None without types."""
    assert joined or isinstance(values, dict) == (names != [None])
    by_type = values if isinstance(values, dict) else {None: values}
    assert set(by_type) == set(names)
    return [by_type[name] for name in names]
