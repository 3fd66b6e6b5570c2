from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, check_equal
from tests.ops.graphs import FANOUTS, ID_DTYPES, KEYS, Graph, graphs_and_seeds


def weigh(graph: Graph) -> torch.Tensor:
    return torch.tensor(reference.cumulate_weights(graph.indptr, graph.weights), dtype=torch.int64)


def sample(put: Any, graph: Graph, seeds: list[int], fanouts: list[int], key: int, **options: Any) -> ops.Picks:
    """Sample by the arrays that `put` makes of a graph's."""
    indptr_dtype, dtype = options["dtypes"]
    typed = len(fanouts) > 1
    return ops.sample_neighbors(
        put(torch.tensor(graph.indptr, dtype=indptr_dtype)),
        put(torch.tensor(seeds, dtype=dtype)),
        torch.tensor(fanouts),
        key,
        replace=options["replace"],
        cumulative=put(weigh(graph)) if options["weighted"] else None,
        types=put(torch.tensor(graph.types, dtype=options["type_dtype"])) if typed else None,
        num_types=graph.num_types if typed else 1,
    )


@pytest.mark.parametrize("dtypes", [(one, other) for one in ID_DTYPES for other in ID_DTYPES], ids=str)
@given(graphs_and_seeds(), FANOUTS, KEYS, st.booleans(), st.booleans())
def test_picks_are_those_of_the_cpu(
    cuda: Cuda, dtypes: Any, given: tuple[Graph, list[int]], fanout: int, key: int, replace: bool, weighted: bool
) -> None:
    options = {"dtypes": dtypes, "type_dtype": torch.int64, "replace": replace, "weighted": weighted}
    expected = sample(lambda tensor: tensor, *given, [fanout], key, **options)
    with cuda.running():
        check_equal(cuda, sample(cuda.put, *given, [fanout], key, **options), expected)


@pytest.mark.parametrize("type_dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@given(graphs_and_seeds(), st.data(), KEYS, st.booleans(), st.booleans())
def test_picks_by_type_are_those_of_the_cpu(
    cuda: Cuda,
    type_dtype: torch.dtype,
    given: tuple[Graph, list[int]],
    data: st.DataObject,
    key: int,
    replace: bool,
    weighted: bool,
) -> None:
    graph, seeds = given
    fanouts = data.draw(st.lists(FANOUTS, min_size=graph.num_types, max_size=graph.num_types))
    options = {
        "dtypes": (torch.int64, torch.int32), "type_dtype": type_dtype, "replace": replace, "weighted": weighted,
    }  # fmt: skip
    expected = sample(lambda tensor: tensor, graph, seeds, fanouts, key, **options)
    types = torch.tensor(graph.types, dtype=type_dtype)
    columns = torch.tensor([0, len(seeds) // 2, len(seeds)])
    destinations = torch.arange(graph.num_types) % 2
    with cuda.running():
        picks = sample(cuda.put, graph, seeds, fanouts, key, **options)
        check_equal(cuda, picks, expected)
        # Picks whose types fit: each type may only end at the columns of its own node type.
        whole = columns if data.draw(st.booleans()) else torch.tensor([0, len(seeds)])
        ends = torch.zeros_like(destinations) if len(whole) == 2 else destinations
        grouped = group(picks, cuda.put(types), whole, ends) if fits(expected, types, whole, ends) else None
    if grouped is not None:
        check_equal(cuda, grouped, group(expected, types, whole, ends))


def group(picks: ops.Picks, types: torch.Tensor, columns: torch.Tensor, ends: torch.Tensor) -> ops.TypedPicks:
    return ops.group_by_type(picks, types, columns, ends, torch.int32)


def fits(picks: ops.Picks, types: torch.Tensor, columns: torch.Tensor, ends: torch.Tensor) -> bool:
    """Tell whether each pick's column is of the node type that its edge type ends at."""
    owners = torch.repeat_interleave(torch.arange(len(picks.offsets) - 1), picks.offsets.diff())
    kinds = torch.searchsorted(columns, owners, right=True) - 1
    return torch.equal(ends[types[picks.positions].long()], kinds)


def test_columns_look_up_many_picks_each_by_itself(cuda: Cuda) -> None:
    indptr, seeds, fanout = torch.tensor([0, 130, 390]), torch.tensor([0, 1, 0, 1, 1]), torch.tensor([60])
    expected = ops.sample_neighbors(indptr, seeds, fanout, key=1)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, ops.sample_neighbors(cuda.put(indptr), cuda.put(seeds), fanout, key=1), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fanouts", [[-1], [-1, -1], [-1, 90]], ids=str)
def test_whole_columns_are_those_of_the_cpu(cuda: Cuda, fanouts: list[int], weighted: bool) -> None:
    indptr, seeds, types = torch.tensor([0, 0, 700, 703]), torch.tensor([1, 0, 2, 1, 0]), torch.arange(703) // 600
    types[700:] = torch.tensor([0, 0, 1])
    weights = ops.cumulate_weights(indptr, torch.rand(703) > 0.8) if weighted else None

    def sample(put: Any) -> list[Any]:
        kinds = put(types.to(torch.uint8))
        options = {"types": kinds, "num_types": 2, "cumulative": None if weights is None else put(weights)}
        picks = ops.sample_neighbors(put(indptr), put(seeds), torch.tensor(fanouts), key=1, **options)
        return [picks, group(picks, kinds, torch.tensor([0, 5]), torch.tensor([0, 0]))]

    expected = sample(lambda tensor: tensor)
    for order in cuda.each_order():
        with order, cuda.running():
            check_equal(cuda, sample(cuda.put), expected)


def test_a_wrong_seed_is_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"seeds must lie in 0 .. 1, but holds 2"):
        ops.sample_neighbors(
            cuda.put(torch.tensor([0, 1, 2])), cuda.put(torch.tensor([2])), torch.tensor([1]), key=0
        )  # fmt: skip


def test_a_graph_elsewhere_is_named(cuda: Cuda) -> None:
    with cuda.running(), pytest.raises(ValueError, match=r"but indptr lies on cpu"):
        ops.sample_neighbors(torch.tensor([0, 1]), cuda.put(torch.tensor([0])), torch.tensor([1]), key=0)


def test_pinned_columns_are_read_by_few_threads(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("the launches of a device are not noted")
    indptr, seeds = torch.arange(0, 4_004, 4), torch.arange(1_000)
    expected = ops.sample_neighbors(indptr, seeds, torch.tensor([2]), 5)
    monkeypatch.setattr("graphfeed.ops.memory.pinned.LIMIT.threads", 256)
    for place, threads in ((cuda.pin, 256), (cuda.put, 1_024)):
        with cuda.running():
            found = ops.sample_neighbors(place(indptr), cuda.put(seeds), torch.tensor([2]), 5)
            assert cuda.launches == [("count_neighbors", threads), ("fill_neighbors", threads)]
        check_equal(cuda, found, expected)
