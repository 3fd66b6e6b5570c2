"""Invalid arguments of random operations, and of their preparation, are rejected; all hops are in `hops`."""

from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops import EdgeSet, Population
from tests.kinds.calls import draw_from_budget
from tests.kinds.compare_kernels import moved
from tests.kinds.hops import changed as changed_arrays
from tests.kinds.hops import record, sample_one
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda

INDPTR, INDICES = torch.tensor([0, 3, 3, 8]), torch.tensor([0, 1, 2, 0, 0, 1, 1, 2])
PLAIN = ops.Graph.checked(INDPTR, INDICES)
TIMED = ops.Graph.checked(INDPTR, INDICES, by_column=ops.TimeOrder(torch.arange(8)))
ZERO, ONE, TWO, HALF = torch.tensor([0]), torch.tensor([1]), torch.tensor([1, 2]), torch.tensor([0.5])
NO_FANOUTS = torch.tensor([], dtype=torch.int64)
PER_SEED = torch.zeros(1, dtype=torch.uint64)
ANY: Any = ops


def pick(
    graph: ops.Graph = PLAIN, *keys: Any, seeds: Any = ZERO,
    fanouts: Any = ONE, **drawing: Any,
) -> ops.Picks:  # fmt: skip
    """Sample one hop."""
    return sample_one(graph, seeds, fanouts, *(keys or (0,)), **drawing)


def test_one_hop_names_what_is_wrong() -> None:
    def by_keys(keys: Any, method: Any = "uniform") -> ops.Picks:
        return ops.sample_neighbors(PLAIN, ops.OneHop(ZERO, ONE, keys, ops.Drawing(method)))

    def at(graph: ops.Graph = TIMED, **changed: Any) -> ops.Picks:
        return pick(graph, **({"times": ONE} | changed))

    weighted = changed_arrays(TIMED, by_column=ops.TimeOrder(cumulative=INDICES))
    together = r"hop\.moments must be given if the graph has times, and only then"
    check_refused([
        (lambda: ops.Graph.checked(HALF, INDICES), TypeError, "indptr must be .*int32 .*, but is torch.float32"),
        (lambda: pick(record(ZERO)), ValueError, r"seeds must be in 0 \.\. -1, but holds 0"),
        (lambda: pick(seeds=-ONE), ValueError, r"seeds must be in 0 \.\. 2, but holds -1"),
        (lambda: pick(fanouts=-ONE - 1), ValueError, "fanouts must be -1 .* or more, but holds -2"),
        (lambda: pick(fanouts=NO_FANOUTS), ValueError, "fanouts .* must hold 1 number, .* hold 0"),
        (lambda: pick(record(INDPTR, types=INDICES, num_types=3), fanouts=TWO), ValueError,
         r"fanouts of a hop must hold 1 number, or 3 \(one per edge type\), but hold 2"),
        (lambda: by_keys(PER_SEED.repeat(2)), ValueError, "keys must have 1 values, one per seed, but has 2"),
        (lambda: by_keys(PER_SEED, "labor"), ValueError, "keys must be those of the hop on a GPU and for LABOR"),
        (lambda: by_keys((0,), "labor"), ValueError, "two keys, its own and the one that follows it, but one has 1"),
        (lambda: pick(TIMED), ValueError, together),
        (lambda: pick(times=ONE), ValueError, together),
        (lambda: at(times=TWO), ValueError, "times must have 1 values, one per seed, but has 2"),
        (lambda: at(windows=TWO), ValueError, "windows must have 1 values, one per seed, but has 2"),
        (lambda: at(windows=-ONE), ValueError, "windows must be 0 or more, but one is -1"),
        (lambda: pick(method="latest"), ValueError, "the latest edges are selected by their times; give"),
        (lambda: at(method="latest", replace=True), ValueError, "edges are selected without replacement"),
        (lambda: at(weighted, method="latest"), ValueError, "regardless of their weights"),
    ])  # fmt: skip


def test_one_hop_on_a_gpu_names_what_is_wrong(cuda: Cuda) -> None:
    graph = record(torch.tensor([0, 1, 2]))
    timed = record(torch.tensor([0, 1]), ZERO, by_column=ops.TimeOrder(ZERO))
    with cuda.running():
        zero, there, timed_there = cuda.put(ZERO), moved(graph, cuda.put), moved(timed, cuda.put)
        check_refused([
            (lambda: pick(there, seeds=zero + 2), ValueError, r"seeds must be in 0 \.\. 1, but holds 2"),
            (lambda: pick(graph, seeds=zero), ValueError, r"but graph\.indptr is on cpu"),
            (lambda: pick(timed_there, seeds=zero, times=ZERO), ValueError, "but times is on cpu"),
        ])  # fmt: skip


def test_weights_and_times_that_are_none_are_named() -> None:
    def sums(*weights: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return ops.cumulate_weights(torch.tensor([0, 2, 3]), torch.tensor(weights, dtype=dtype))

    nan, infinite, short = float("nan"), float("inf"), INDICES[:2]
    check_refused([
        (lambda: sums(1, 1), ValueError, "weights must have 3 values, one per edge, but has 2"),
        (lambda: sums(1, 1, 1, dtype=torch.int64), TypeError, "weights must be .* torch.float64, but is torch.int64"),
        (lambda: sums(1, -0.5, 2), ValueError, "must be finite and not negative, .* from -0.5 to 2.0"),
        (lambda: sums(1, infinite, 2), ValueError, "weights must be finite .* from 1.0 to inf"),
        (lambda: sums(1, nan, 2), ValueError, "weights must be finite .* from nan to nan"),
        (lambda: sums(1, nan, 2, dtype=torch.bfloat16), ValueError, "from nan to nan"),
        (lambda: ops.as_times("t", HALF), TypeError,
         "t must be torch.int64, but is torch.float32, which rounds large numbers: read the times as float64; count"),
        (lambda: ops.as_times("t", HALF.double()), TypeError, "must be torch.int64, but is torch.float64; count"),
        (lambda: ops.order_by_time(INDPTR, short), ValueError, "times must have 8 values, one per edge, but has 2"),
        (lambda: ops.Graph.checked(INDPTR, INDICES, by_column=ops.TimeOrder(short)), ValueError,
         "by_column.times must have 8 values, one"),
    ])  # fmt: skip


def negatives(pairs: torch.Tensor, ratio: int = 1, num_destinations: int = 5) -> torch.Tensor:
    return ops.sample_negatives(pairs, ratio, num_destinations, key=0)


def pairs_of(**changed: Any) -> Any:
    return ANY.sample_negative_pairs(2, 1, **({"sources": Population(3), "destinations": Population(3)} | changed))


def test_negatives_and_places_that_cannot_be_drawn_are_named() -> None:
    pairs, shape = torch.zeros(2, 2, dtype=torch.int64), r"Only tensor with shape N\*2 is supported for negative sampl"
    loop = EdgeSet(torch.tensor([0, 0]), NO_FANOUTS)
    right = {"count": 2, "key": 1, "size": 3, "cumulative": torch.tensor([1, 2, 3])}

    def places(**changed: Any) -> Any:
        return ANY.draw_places(**{**right, **changed})

    assert len(places()) == 2
    falls = "never fall and end above 0"
    check_refused([
        (lambda: negatives(ONE), ValueError, shape),
        (lambda: negatives(pairs, ratio=0), ValueError, "^negative_ratio must be 1 or more, but is 0"),
        (lambda: negatives(pairs, num_destinations=0), ValueError, "^num_destinations must be 1 or more, but is 0"),
        (lambda: negatives(pairs.int(), 1, 2**31 + 1), ValueError, "^pairs are torch.int32, too narrow for 2147483649"),
        (lambda: pairs_of(limits=ONE), ValueError, "limits must have 2 values"),
        (lambda: pairs_of(destinations=Population(2, TWO.flip(0))), ValueError, "never fall"),
        (lambda: pairs_of(edges=loop), ValueError, "are not in a graph of 1"),
        (lambda: places(cumulative=TWO), ValueError, "cumulative must have 3 values, one per place, but has 2"),
        (lambda: places(cumulative=torch.zeros(3).long()), ValueError, falls),
    ])  # fmt: skip


def budget(**changed: Any) -> list[torch.Tensor]:
    given: dict[str, Any] = {"first_ids": torch.tensor([0, 3, 5]), "sampled": ZERO, "wanted": [1, 1]}
    given |= {"offsets": torch.tensor([0, 2]), "neighbors": torch.tensor([3, 4]), **changed}
    return draw_from_budget(key=1, **given)


def group() -> ops.TypedPicks:
    picks = ops.Picks(torch.tensor([0, 2**31]), torch.zeros(1, dtype=torch.int64).expand(2**31))
    return ops.group_by_type(picks, ZERO, torch.tensor([0, 1]), ZERO, torch.int32)


def walks(**changed: Any) -> ops.Walks:
    graph = ops.Graph.checked(torch.tensor([0, 1, 1]), ONE)
    given = {"starts": ZERO, "numbers": ZERO, "key": 7, "steps": ops.WalkSteps(1)}
    return ops.random_walks(graph, **{**given, **changed})


def test_orders_walks_budgets_and_groups_name_what_is_wrong() -> None:
    part = "start, stop and size must satisfy 0 <= start <= stop <= size < 2"
    check_refused([
        (lambda: ops.permute(-1, 2, 5, key=0), ValueError, rf"{part}\*\*63, but are -1, 2, 5"),
        (lambda: ops.permute(0, 6, 5, key=0), ValueError, part),
        (lambda: walks(starts=ONE + 1), ValueError, r"starts must be in 0 \.\. 1, but holds 2"),
        (lambda: walks(numbers=ONE << 23), ValueError, r"numbers must be in 0 \.\. 8388607, but holds 8388608"),
        (lambda: walks(steps=ops.WalkSteps(1, p=2.0)), ValueError, "sources must have 1 values, one per edge"),
        (lambda: walks(steps=ops.WalkSteps(1, p=2.0), sources=ONE.to("meta")), ValueError,
         "random_walks works on cpu, but sources is on meta"),
        (lambda: walks(steps=ops.WalkSteps(1, stops=[2.0])), ValueError, r"stops must be in 0 \.\. 1, but is 2"),
        (lambda: walks(steps=ops.WalkSteps(1, types=[0])), ValueError, "types must be given if the graph has types"),
        (lambda: budget(first_ids=torch.tensor([0, 3, 2])), ValueError, "first_ids must not decrease"),
        (lambda: budget(neighbors=torch.tensor([3, -1])), ValueError, r"neighbors must be in 0 \.\. 4, but holds -1"),
        (lambda: budget(wanted=[1]), ValueError, r"wanted must hold 2 numbers of 0 or more, but is \[1\]"),
        (group, ValueError, "2147483648 edges are too many for indptr of torch.int32; build"),
    ])  # fmt: skip
