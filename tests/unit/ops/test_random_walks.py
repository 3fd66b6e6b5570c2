"""Random walks: those of the slow reference, and as often as their chances say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops import WalkSteps, fold
from graphfeed.ops.random import bounded, draw
from graphfeed.storage.graph import WalkRequest
from tests.kinds import reference
from tests.kinds.chance import check_chi_square, check_counts
from tests.kinds.graphs import ID_DTYPES, KEYS, Graph, graphs_and_seeds

UNIT = 2**32


def walk(
    graph: Graph, start: int, number: int, steps: WalkSteps, key: int, *, weighted: bool
) -> tuple[list[int], list[int]]:
    """Return the nodes and the edges of one walk."""
    nodes, edges = [start], list[int]()
    units = graph.units if weighted else [1] * len(graph.indices)
    weights = 1 / steps.p, 1.0, 1 / steps.q
    back, near, far = (round(weight / max(weights) * UNIT) for weight in weights)
    for step in range(steps.length):
        node, kind = nodes[-1], steps.types[step] if steps.types else None
        own = fold(key, step, number << 40 | start)

        def bits(place: int, own: int = own, node: int = node, kind: int | None = kind) -> int:
            return draw(own, node, place, kind)

        whole = range(graph.indptr[node], graph.indptr[node + 1])
        column = [edge for edge in whole if units[edge] and kind in (None, graph.types[edge])]
        if not column or (steps.stops and bits(2**33) >> 32 < round(steps.stops[step] * UNIT)):
            break
        for place in range(1024):
            edge = (
                reference.find_by_weight(units, column, bits(place))
                if weighted
                else column[bounded(bits(place), len(column))]
            )
            source = graph.indices[edge]
            chance = UNIT
            if (steps.p, steps.q) != (1, 1) and step > 0:
                known = graph.indices[graph.indptr[source] : graph.indptr[source + 1]]
                chance = back if source == nodes[-2] else near if nodes[-2] in known else far
            if bits(2**32 + place) >> 32 < chance:
                break
        nodes.append(source)
        edges.append(edge)
    left = steps.length - len(edges)
    return nodes + [-1] * left, edges + [-1] * left


def sorted_columns(graph: Graph) -> torch.Tensor:
    columns = [sorted(graph.indices[low:high]) for low, high in zip(graph.indptr, graph.indptr[1:], strict=False)]
    return torch.tensor(reference.join(columns), dtype=torch.int64)


PARAMETERS = st.sampled_from([(1.0, 1.0), (0.25, 4.0), (4.0, 0.25), (3.0, 3.0), (1e6, 1.0)])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(graphs_and_seeds(), KEYS, PARAMETERS, st.booleans(), st.sampled_from([(), (0.0, 0.5, 0.0, 1.0)]))
def test_walks_equal_the_reference(
    dtype: torch.dtype,
    problem: tuple[Graph, list[int]],
    key: int,
    parameters: tuple[float, float],
    weighted: bool,
    stops: tuple[float, ...],
) -> None:
    graph, starts = problem
    steps = WalkSteps(4, *parameters, stops)
    given_sources = {"sources": sorted_columns(graph)} if steps.is_second_order else {}
    numbers = [place % 3 for place in range(len(starts))]
    found = ops.random_walks(
        graph.arrays(ids=dtype, weighted=weighted),
        torch.tensor(starts, dtype=torch.int64),
        torch.tensor(numbers, dtype=torch.int64),
        key,
        steps,
        edges=True,
        **given_sources,
    )
    wanted = [walk(graph, *each, steps, key, weighted=weighted) for each in zip(starts, numbers, strict=True)]
    assert found.edges is not None
    assert list(zip(found.nodes.tolist(), found.edges.tolist(), strict=True)) == wanted


@given(graphs_and_seeds(), KEYS, PARAMETERS, st.booleans(), st.data())
def test_each_step_has_its_type(
    problem: tuple[Graph, list[int]], key: int, parameters: tuple[float, float], weighted: bool, data: st.DataObject
) -> None:
    graph, starts = problem
    kinds = data.draw(st.lists(st.integers(0, graph.num_types - 1), min_size=3, max_size=3))
    steps, zeros = WalkSteps(3, *parameters, [0.1, 0, 0.2], kinds), torch.zeros(len(starts), dtype=torch.int64)
    record = graph.arrays(weighted=weighted, types=torch.uint8)
    given_sources = {"sources": sorted_columns(graph)} if steps.is_second_order else {}
    found = ops.random_walks(
        record, torch.tensor(starts, dtype=torch.int64), zeros, key, steps, edges=True, **given_sources
    )
    assert found.nodes.tolist() == [walk(graph, start, 0, steps, key, weighted=weighted)[0] for start in starts]


def test_node2vec_finds_edges_in_columns_of_any_length() -> None:
    draws = torch.Generator().manual_seed(6)
    columns = [torch.randint(45, (size,), generator=draws).tolist() for size in range(45)]
    indptr = torch.tensor([0, *map(len, columns)]).cumsum(0).tolist()
    graph = Graph(indptr, reference.join(columns), [1.0] * indptr[-1], [0] * indptr[-1], 1)
    steps = WalkSteps(6, 2.0, 0.25)
    starts = torch.arange(45)
    found = ops.random_walks(graph.arrays(), starts, starts * 0, 8, steps, sources=sorted_columns(graph)).nodes
    assert found.tolist() == [walk(graph, start, 0, steps, 8, weighted=False)[0] for start in range(45)]


WEIGHTS = torch.tensor([1.0, 0.0, 3.0, 2.0, 4.0])


@pytest.mark.parametrize("weighted", [False, True])
def test_sources_are_as_frequent_as_their_weights(weighted: bool) -> None:
    graph = gf.from_coo((torch.arange(5), torch.zeros(5).long()), 5, edge_attributes={"w": WEIGHTS})
    request = WalkRequest(1, 40_000, probs_name="w" if weighted else None)
    found = graph.sample_walks(torch.tensor([0]), request, key=3).nodes[:, 1]
    check_counts(torch.bincount(found, minlength=5), WEIGHTS if weighted else torch.ones(5))


def random_graph() -> tuple[gf.FusedCSCSamplingGraph, torch.Tensor]:
    """Return a graph of ten nodes, in which some edges have no reverse; and its matrix of walk edges."""
    matrix = torch.rand(10, 10, generator=torch.Generator().manual_seed(4)) < 0.45
    columns, sources = matrix.nonzero(as_tuple=True)
    order = torch.randperm(len(sources), generator=torch.Generator().manual_seed(5))
    return gf.from_coo((sources[order], columns[order]), 10), matrix


def second_order(matrix: torch.Tensor, p: float, q: float) -> torch.Tensor:
    """Return the chance of each node after each pair of nodes, shape (10, 10, 10); 0 if the pair isn't an edge."""
    near = matrix.T[:, None, :].expand(10, 10, 10)  # the third node has an edge to the first
    bias = torch.where(near, 1.0, 1 / q)
    bias[torch.arange(10), :, torch.arange(10)] = 1 / p
    weights = bias * matrix[None] * matrix[:, :, None]
    return weights / weights.sum(2, keepdim=True).clamp(min=1e-9)


def triples(walks: torch.Tensor) -> torch.Tensor:
    """Count the triples of consecutive nodes."""
    parts = walks.unfold(1, 3, 1).reshape(-1, 3)
    parts = parts[(parts >= 0).all(1)]
    return torch.bincount(parts[:, 0] * 100 + parts[:, 1] * 10 + parts[:, 2], minlength=1000).view(10, 10, 10)


def check_triples(counts: torch.Tensor, chances: torch.Tensor) -> None:
    """Check how often each node comes after each pair of nodes."""
    counts, chances = counts[counts.sum(2) > 0].double(), chances[counts.sum(2) > 0].double()
    expected = counts.sum(1, keepdim=True) * chances
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert expected[possible].min() >= 5
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    check_chi_square(float(statistic), int(possible.sum()) - len(counts))


@pytest.mark.parametrize(("p", "q"), [(0.25, 0.25), (0.25, 4), (1, 0.25), (1, 4), (4, 1), (4, 4), (0.25, 1)])
def test_second_order_frequencies_are_those_of_node2vec(p: float, q: float) -> None:
    graph, matrix = random_graph()
    walks = graph.sample_walks(torch.arange(10), WalkRequest(2, 20_000, p=p, q=q), key=9).nodes
    check_triples(triples(walks), second_order(matrix, p, q))


def test_the_smallest_parameter_has_chances() -> None:
    assert WalkSteps(1, p=5e-324, q=2.0).chances() == [UNIT, 0, 0]
    assert WalkSteps(1, p=0.25, q=4.0).chances() == [UNIT, UNIT // 4, UNIT // 16]


def test_another_rule_fails_that_test() -> None:
    """torch_cluster returns to the node before with the larger chance of `1 / p` and `1 / q`."""
    graph, matrix = random_graph()
    p, q = 4.0, 1.0
    walks = graph.sample_walks(torch.arange(10), WalkRequest(2, 20_000, p=1 / max(1 / p, 1 / q), q=q), key=9).nodes
    with pytest.raises(AssertionError):
        check_triples(triples(walks), second_order(matrix, p, q))
