"""Invalid arguments of operations on graph structure are rejected."""

from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.structure import Items, place_nodes
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda

INDPTR, ONE = torch.tensor([0, 2, 2, 3]), torch.tensor([0])
NONE = torch.tensor([], dtype=torch.int64)
ANY: Any = ops


def csc(indptr: Any, indices: Any) -> None:
    ops.check_csc(torch.tensor(indptr), torch.tensor(indices))


def test_what_is_no_graph_is_refused() -> None:
    out = torch.full((2, 3), -1)
    check_refused([
        (lambda: csc([1, 3], [0, 0, 0]), ValueError, r"csc_indptr must start with 0, but is \[1, 3\]..."),
        (lambda: csc([0, 2], [0, 0, 0]), ValueError, "must end with the number of edges, 3 .*, but ends with 2"),
        (lambda: csc([0, 3, 1, 3], [0, 0, 0]), ValueError, "must not decrease, but goes from 3 to 1 at node 1"),
        (lambda: csc([0, 1, 3], [0, 2, 0]), ValueError, "indices must lie in 0 .. 1, but holds 2"),
        (lambda: types([0, 3, 1]), ValueError, "type_per_edge must lie in 0 .. 2, but holds 3"),
        (lambda: coo([0, 1], [0]), ValueError, "must be equally long, but have 2 and 1 ids"),
        (lambda: coo([0, 1], [-1, 1]), ValueError, "destinations must lie in 0 .. 2, but holds -1"),
        (lambda: ops.expand_indptr(INDPTR), ValueError, "expand_indptr needs dtype or node_ids"),
        (lambda: expand(INDPTR, output_size=2), ValueError, "output_size must be 3, .* but is 2"),
        (lambda: expand(INDPTR, node_ids=ONE), ValueError, "node_ids must have 3 ids, one per column, but has 1"),
        (lambda: expand(INDPTR, out=out[0, :2]), ValueError, "out must be 3 contiguous values of torch.int64, but is"),
        (lambda: ops.indptr_edge_ids(INDPTR, offset=ONE), ValueError, "offset must have 3 values, .* but has 1"),
    ])  # fmt: skip


def types(values: Any) -> None:
    ops.check_edge_types(INDPTR, torch.tensor(values), 3)


def coo(sources: Any, destinations: Any) -> Any:
    return ops.coo_to_csc(torch.tensor(sources), torch.tensor(destinations), 3)


def expand(indptr: torch.Tensor, **options: Any) -> Any:
    return ops.expand_indptr(indptr, dtype=torch.int64, **options)


def test_a_graph_is_checked_on_a_gpu_as_on_the_cpu(cuda: Cuda) -> None:
    falling, indices = cuda.put(torch.tensor([0, 3, 1, 0, 3])), cuda.put(torch.tensor([0, 1, 2]))
    with cuda.running():
        check_refused([
            (lambda: ops.check_csc(falling, indices), ValueError, "must not decrease, but goes from 3 to 1 at node 1")
        ])  # fmt: skip


def test_ids_that_cannot_be_relabelled_or_looked_up_are_refused() -> None:
    indptr, two = torch.tensor([0, 1]), torch.arange(2)
    pairs, rows = torch.tensor([[0, 1]]), {"rows": ONE}
    unique = ANY.unique_and_compact
    check_refused([
        (lambda: ops.compact(ONE, ONE.int()), TypeError, "must have one dtype, .* torch.int64 and torch.int32"),
        (lambda: unique([]), ValueError, "^nodes is an empty list; give at least one tensor"),
        (lambda: unique({"a": [two, two[None]]}), ValueError, r"^nodes\['a'\]\[1\] must have 1 dimension"),
        (lambda: unique([two, two.int()]), TypeError, "^nodes must have one dtype, but has"),
        (lambda: unique([two], world_size=4), ValueError, "rank and world_size must be 0 and 1, but are 0 and 4"),
        (lambda: ops.match_pairs(indptr, ONE, ONE, two), ValueError, r"pairs must have shape \(N, 2\), .* has \(2,\)"),
        (lambda: ops.match_pairs(indptr, ONE, two, pairs), ValueError, "a column for each of 2 .* but has 1 columns"),
        (lambda: ops.match_pairs(indptr, ONE + 3, ONE, pairs, **rows), ValueError, "^indices must lie in 0 .. 0, but"),
        (lambda: ops.count_edges(two * 2, NONE.new_zeros(2)), ValueError, "destinations must lie in 0 .. 1, but"),
    ])  # fmt: skip


def induce(**changed: Any) -> Any:
    right = {"indptr": torch.tensor([0, 1, 1]), "indices": torch.tensor([1])}
    right |= {"columns": torch.tensor([0, 1]), "nodes": torch.tensor([0, 1]), "starts": torch.tensor([0, 2])}
    return ANY.induce_trees(**{**right, **changed})


def merge(places: Any, counts: Any, values: Any, dtypes: Any = (torch.int64,)) -> Any:
    parts = [[torch.tensor(own) for own in values]]
    return ops.merge_columns([torch.tensor(places)], [torch.tensor(counts)], parts, dtypes)


def join(indptr: Any, ids: int = 3, marks: Any = None) -> Any:
    return ops.join_columns([torch.tensor(indptr)], [torch.arange(3)], [torch.arange(ids)], marks)


def mark(*indptrs: Any) -> Any:
    return ops.mark_first([torch.tensor(own) for own in indptrs], [torch.arange(3)] * 2)


def mirror(sources: Any, destinations: Any, num_nodes: Any = 3, ids: Any = None) -> Any:
    return ops.mirror_edges(torch.tensor(sources), torch.tensor(destinations), num_nodes, ids)


def read(**changed: Any) -> Any:
    right = {
        "starts": torch.tensor([0, 1, 3]),
        "first_edges": torch.tensor([0, 2, 4]),
        "indices": torch.tensor([1, 0, 1]),
    }
    right |= {"nodes": torch.tensor([1, 0]), "offsets": torch.tensor([0, 1, 2]), "positions": torch.tensor([2, 0])}
    return ops.read_columns(**{**right, **changed})


def test_columns_that_do_not_fit_together_are_refused() -> None:
    assert induce().positions.tolist() == [0]
    assert [own.tolist() for own in read()] == [[1, 1], [1, 1], [3, 0]]
    outside, do_not_add_up = "places must lie in 0 .. 1", "counts must be 0 or more and add up to the 2 values"
    check_refused([
        (lambda: induce(columns=ONE), ValueError, "columns must have 2 values, one per node, but has 1"),
        (lambda: induce(starts=torch.tensor([0, 1])), ValueError, "starts must go from 0 to 2, the number of nodes"),
        (lambda: join([0, 2, 1, 3]), ValueError, "indptr"),
        (lambda: join([0, 1]), ValueError, "must end at 3"),
        (lambda: join([0, 3], ids=2), ValueError, "an id for each of their edges"),
        (lambda: join([0, 3], marks=[ONE]), TypeError, "marks must be torch.bool"),
        (lambda: join([0, 3], marks=[torch.ones(4).bool()]), ValueError, r"marks must be at most \[3\], .* are \[4\]"),
        (lambda: mirror([0], [-1]), ValueError, "destinations must lie in 0 .. 2, but"),
        (lambda: mirror([0], [0, 1]), ValueError, "destinations must have 1 values, one per source, but has 2"),
        (lambda: mirror([0], [0], 1 << 32), ValueError, "num_nodes must be"),
        (lambda: mark([0, 3]), ValueError, "indptrs and ids must have the same length, but have 1 and 2"),
        (lambda: mark([0, 3], [0, 2]), ValueError, "indptrs must end at 3, .* ends at 2"),
        (lambda: merge([0, 2], [1, 1], [[5, 6]]), ValueError, outside),
        (lambda: merge([0, 0], [1, 1], [[5, 6]]), ValueError, "places must be all different"),
        (lambda: merge([0, 1], [3, -1], [[5, 6]]), ValueError, do_not_add_up),
        (lambda: merge([0, 1], [1, 1 << 62], [[5, 6]]), ValueError, do_not_add_up),
        (lambda: merge([0], [1, 1], [[5, 6]]), ValueError, "places and counts of a part must be equally long"),
        (lambda: merge([0], [1], [[1]], [torch.int32]), TypeError, "values of torch.int64 can't be written as"),
        (lambda: merge([0], [1], [[1], [1]]), ValueError, "must have 1 arrays of values, at least one, but has 2"),
        (lambda: merge([0], [1], [[1], [1, 2]], [torch.int64] * 2), ValueError, "must be equally long, but are"),
        (lambda: read(positions=torch.tensor([3, 0])), ValueError, "positions must lie in 0 .. 2, but holds 3"),
        (lambda: read(starts=torch.tensor([0, 1, 2])), ValueError, "starts must end with the number of edges, 3"),
    ])  # fmt: skip


def place(indptr: Any, indices: Any, first: int, items: Items | None = None) -> int:
    parts, loads = torch.zeros(3, dtype=torch.int32), torch.tensor([3, 0])
    return place_nodes(torch.tensor(indptr), torch.tensor(indices), parts, loads, first, 3, items)


def test_placing_nodes_reads_and_writes_nothing_outside() -> None:
    items = Items(torch.ones(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 2)
    check_refused([
        (lambda: place([0, 1, 2], [0, 3], 0), IndexError, "indices must lie in 0 .. 2, but hold 3"),
        (lambda: place([0, 1, 3], [0, 1], 0), ValueError, "indptr must ascend from 0 or more to 2 at most"),
        (lambda: place([-1, 0, 1], [0, 1], 0), ValueError, "indptr must ascend"),
        (lambda: place([0, 1, 2], [0, 1], 2), ValueError, "the range must lie in 0 .. 3, but is 2 .. 4"),
        (lambda: place([0, 0, 0], [0], 0, items), ValueError, "items must have 2 counts and 2 loads"),
    ])  # fmt: skip
