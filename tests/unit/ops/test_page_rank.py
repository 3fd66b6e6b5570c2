"""Personalized PageRank equals a slow push and nearly a dense solution; visits are counted."""

from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from graphfeed.ops.sampling import MASS, shorten_degrees
from tests.kinds.graphs import ID_DTYPES, Graph, graphs_and_seeds
from tests.kinds.refusals import check_refused


def push(graph: Graph, seed: int, alpha: int, bound: int) -> tuple[dict[int, int], dict[int, int], int]:
    """Return the scores and the residuals of nodes, and the sum of what could not be divided."""
    scores, residuals, undivided = Counter[int](), Counter({seed: MASS}), 0
    columns = [graph.indices[graph.indptr[node] : graph.indptr[node + 1]] for node in range(graph.num_nodes)]
    while True:
        pushed = {node: left for node, left in residuals.items() if left >= bound * max(len(columns[node]), 1)}
        if not pushed:
            return scores, residuals, undivided
        for node in pushed:
            residuals[node] = 0
        for node, amount in pushed.items():
            # At least 1 stays, or small amounts would go round a cycle forever.
            rest = amount - max(amount * alpha >> 31, 1) if columns[node] else 0
            share = rest // max(len(columns[node]), 1)
            scores[node] += amount - share * len(columns[node])
            undivided += rest - share * len(columns[node])
            for source in columns[node]:
                residuals[source] += share


def best(scores: dict[int, int], top: int) -> list[tuple[int, int]]:
    kept = sorted((-score, node) for node, score in scores.items() if score > 0)
    return [(node, -score) for score, node in kept[:top]]


UNITS = st.sampled_from([1, 1 << 12, 1 << 20, 1 << 27, 1 << 31])


@pytest.mark.parametrize("dtype", ID_DTYPES, ids=str)
@given(
    graphs_and_seeds(), st.sampled_from([1 << 28, 1 << 30, 1 << 31]), UNITS, st.sampled_from([1, 3, 100]), st.booleans()
)
def test_scores_equal_the_reference_and_no_mass_is_lost(
    dtype: torch.dtype, problem: tuple[Graph, list[int]], alpha: int, bound: int, top: int, is_short: bool
) -> None:
    graph, seeds = problem
    arrays = torch.tensor(graph.indptr, dtype=dtype), torch.tensor(graph.indices, dtype=dtype)
    # Degrees may be too low: 255 stands for more.
    given = {"short_degrees": shorten_degrees(arrays[0]).clamp(max=2)} if is_short else {}
    ranked, left = ops.push_mass(*arrays, torch.tensor(seeds, dtype=torch.int64), top, alpha, bound, **given)
    pairs = list(zip(ranked.nodes.tolist(), ranked.values.tolist(), strict=True))
    for row, seed in enumerate(seeds):
        scores, residuals, _ = push(graph, seed, alpha, bound)
        assert pairs[ranked.indptr[row] : ranked.indptr[row + 1]] == best(scores, top)
        assert sum(scores.values()) + int(left[row]) == MASS
        assert int(left[row]) == sum(residuals.values())


@given(st.integers(1, 90), st.sets(st.integers(0, 120), max_size=4))
def test_each_group_has_its_own_best_nodes(top: int, inner: set[int]) -> None:
    graph, bounds = random_columns(), [0, *sorted(inner), 120]
    arrays, seeds = (torch.tensor(graph.indptr), torch.tensor(graph.indices)), torch.tensor([3, 70])
    everything, _ = ops.push_mass(*arrays, seeds, 120, 1 << 29, 1 << 12)
    found, _ = ops.push_mass(*arrays, seeds, top, 1 << 29, 1 << 12, groups=torch.tensor(bounds))
    rows = iter(pairwise(found.indptr.tolist()))
    for start, end in pairwise(everything.indptr.tolist()):
        pairs = list(zip(everything.nodes[start:end].tolist(), everything.values[start:end].tolist(), strict=True))
        for low, high in pairwise(bounds):
            own = slice(*next(rows))
            wanted = [pair for pair in pairs if low <= pair[0] < high][:top]
            assert list(zip(found.nodes[own].tolist(), found.values[own].tolist(), strict=True)) == wanted


def test_groups_that_do_not_cover_the_nodes_are_refused() -> None:
    arrays = torch.tensor([0, 1, 1]), torch.tensor([1])
    check_refused([
        (partial(ops.push_mass, *arrays, torch.tensor([0]), 2, 1 << 30, 1, groups=torch.tensor(groups)), ValueError,
         "groups must ascend from 0 to 2, the number of nodes")
        for groups in ([0], [0, 1], [1, 2], [0, 2, 1, 2])
    ])  # fmt: skip


def test_short_degrees_of_another_dtype_or_device_are_refused() -> None:
    arrays = torch.tensor([0, 1, 1]), torch.tensor([1]), torch.tensor([0]), 2, 1 << 30, 1
    elsewhere = torch.ones(2, dtype=torch.uint8, device="meta")
    check_refused([
        (partial(ops.push_mass, *arrays, short_degrees=torch.tensor([-1, 0])), TypeError,
         "short_degrees must be torch.uint8, but is torch.int64"),
        (partial(ops.push_mass, *arrays, short_degrees=elsewhere), ValueError,
         "page_rank works on cpu, but short_degrees is on meta"),
    ])  # fmt: skip


def random_columns() -> Graph:
    ends = torch.randint(0, 120, (2, 700), generator=torch.Generator().manual_seed(2))
    indptr, indices, _ = ops.coo_to_csc(ends[0], ends[1], 120)
    return Graph(indptr.tolist(), indices.tolist(), [], [], 1)


def test_scores_are_within_their_bound_of_a_dense_solution() -> None:
    graph, alpha = random_columns(), 0.15
    size, degrees = graph.num_nodes, torch.tensor(graph.indptr).diff()
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for node in range(size):
        for source in graph.indices[graph.indptr[node] : graph.indptr[node + 1]]:
            matrix[source, node] += (1 - alpha) / int(degrees[node])
    kept = torch.where(degrees > 0, alpha, 1.0).double()
    exact = torch.linalg.inv(torch.eye(size, dtype=torch.float64) - matrix) * kept[:, None]
    for bound in (1e-3, 1e-6):
        units = round(alpha * 2**31), round(bound * MASS)
        arrays = torch.tensor(graph.indptr), torch.tensor(graph.indices)
        ranked, left = ops.push_mass(*arrays, torch.arange(size), size, *units)
        for seed in range(size):
            own = slice(int(ranked.indptr[seed]), int(ranked.indptr[seed + 1]))
            scores = torch.zeros(size, dtype=torch.float64)
            scores[ranked.nodes[own]] = ranked.values[own].double() / MASS
            error = (scores - exact[:, seed]).abs().max()
            undivided = push(graph, seed, *units)[2]
            assert error <= (int(left[seed]) + undivided) / MASS + 1e-8
            # The best nodes are those of the exact solution, up to the first two that are closer than the error.
            order = exact[:, seed].argsort(descending=True)
            gaps = exact[order[:-1], seed] - exact[order[1:], seed]
            sure = int((gaps <= 2 * error).int().argmax())
            assert ranked.nodes[own][:sure].tolist() == order[:sure].tolist()
        assert bound > 1e-6 or sure > 5


@given(st.lists(st.lists(st.integers(-1, 6), min_size=9, max_size=9), max_size=5), st.integers(0, 9))
def test_the_most_frequent_nodes_come_first(visits: list[list[int]], top: int) -> None:
    found = ops.count_visits(torch.tensor(visits, dtype=torch.int64).view(len(visits), 9), top)
    pairs = list(zip(found.nodes.tolist(), found.values.tolist(), strict=True))
    for row, own in enumerate(visits):
        counts = Counter(node for node in own if node >= 0)
        assert pairs[found.indptr[row] : found.indptr[row + 1]] == best(counts, top)
