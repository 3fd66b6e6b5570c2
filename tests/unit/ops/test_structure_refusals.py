"""Invalid arguments of operations on graph structure are rejected."""

from functools import partial
from typing import Any

import torch

from graphfeed import ops
from graphfeed.ops.structure import Items, place_nodes
from tests.kinds.calls import structure_calls
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda

INDPTR, ONE = torch.tensor([0, 2, 2, 3]), torch.tensor([0])
ANY: Any = ops


def other(name: str, **changed: Any) -> Any:
    """Make the valid call of an operation with other arguments."""
    call = structure_calls()[name]
    return call.run(**call.arguments | changed)


def csc(indptr: Any, indices: Any) -> None:
    ops.check_csc(torch.tensor(indptr), torch.tensor(indices))


def test_what_is_no_graph_is_refused() -> None:
    expand = partial(ops.expand_indptr, INDPTR, dtype=torch.int64)
    check_refused([
        (lambda: csc([1, 3], [0, 0, 0]), ValueError, r"csc_indptr must start with 0, but is \[1, 3\]..."),
        (lambda: csc([0, 2], [0, 0, 0]), ValueError, "must end with the number of edges, 3 .*, but ends with 2"),
        (lambda: csc([0, 3, 1, 3], [0, 0, 0]), ValueError, "must not decrease, but goes from 3 to 1 at node 1"),
        (lambda: csc([0, 1, 3], [0, 2, 0]), ValueError, "indices must be in 0 .. 1, but holds 2"),
        (lambda: ops.check_edge_types(INDPTR, torch.tensor([0, 3, 1]), 3), ValueError,
         "type_per_edge must be in 0 .. 2, but holds 3"),
        (lambda: ops.coo_to_csc(ONE.repeat(2), ONE, 3), ValueError, "must be equally long, but have 2 and 1 ids"),
        (lambda: ops.expand_indptr(INDPTR), ValueError, "expand_indptr needs dtype or node_ids"),
        (lambda: expand(output_size=2), ValueError, "output_size must be 3, .* but is 2"),
        (lambda: expand(out=torch.zeros(3, 2).long()[:, 0]), ValueError,
         "out must be 3 contiguous values of torch.int64, but is"),
    ])  # fmt: skip


def test_a_graph_is_checked_on_a_gpu_as_on_the_cpu(cuda: Cuda) -> None:
    falling, indices = cuda.put(torch.tensor([0, 3, 1, 0, 3])), cuda.put(torch.tensor([0, 1, 2]))
    with cuda.running():
        check_refused([
            (lambda: ops.check_csc(falling, indices), ValueError, "must not decrease, but goes from 3 to 1 at node 1")
        ])  # fmt: skip


def test_ids_that_cannot_be_relabelled_or_looked_up_are_refused() -> None:
    indptr, two = torch.tensor([0, 1]), torch.arange(2)
    pairs, unique = torch.tensor([[0, 1]]), ANY.unique_and_compact
    check_refused([
        (lambda: ops.compact(ONE, ONE.int()), TypeError, "must have one dtype, .* torch.int64 and torch.int32"),
        (lambda: unique([]), ValueError, "^nodes is an empty list; give at least one tensor"),
        (lambda: unique([two, two.int()]), TypeError, "^nodes must have one dtype, but has"),
        (lambda: unique([two], world_size=4), ValueError, "rank and world_size must be 0 and 1, but are 0 and 4"),
        (lambda: ops.match_pairs(indptr, ONE, ONE, two), ValueError, r"pairs must have shape \(N, 2\), .* has \(2,\)"),
        (lambda: ops.match_pairs(indptr, ONE, two, pairs), ValueError, "a column for each of 2 .* but has 1 columns"),
    ])  # fmt: skip


def test_columns_that_do_not_fit_together_are_refused() -> None:
    def merge(places: Any = (1, 3), counts: Any = (2, 0), **changed: Any) -> Any:
        """Merge columns of which the first two, of three values, are others."""
        first = {"places": torch.tensor(places), "counts": torch.tensor(counts)}
        right = structure_calls()["merge_columns"].arguments
        return other("merge_columns", **{name: [own, right[name][1]] for name, own in first.items()} | changed)

    merge()
    values = [[torch.tensor([7, 8])] * 2, [torch.arange(4)] * 2]
    check_refused([
        (lambda: other("induce_trees", starts=torch.tensor([0, 3, 4])), ValueError,
         "starts must go from 0 to 5, the number of nodes"),
        (lambda: other("join_columns", indptrs=[ONE, ONE]), ValueError, "must end at 20"),
        (lambda: other("join_columns", ids=[ONE, ONE]), ValueError, "an id for each of their edges"),
        (lambda: other("join_columns", marks=[torch.ones(99) > 0] * 2), ValueError, r"marks must be at most \[20, 20"),
        (lambda: other("mirror_edges", num_nodes=1 << 32), ValueError, "num_nodes must be"),
        (lambda: other("mark_first", indptrs=[ONE, ONE]), ValueError, "indptrs must end at 20, .* ends at 0"),
        (lambda: merge([1, 4]), ValueError, "places must be in 0 .. 3"),
        (lambda: merge([1, 1]), ValueError, "places must be all different"),
        (lambda: merge([1]), ValueError, "places and counts of a part must be equally long"),
        (lambda: merge(counts=[2, 1 << 62]), ValueError, "counts must be 0 or more and add up to the 2 values"),
        (lambda: merge(dtypes=[torch.int16]), TypeError, "values of torch.int64 can't be written as"),
        (lambda: merge(values=values), ValueError, "must have 1 arrays of values, at least one, but has 2"),
        (lambda: other("read_columns", positions=torch.tensor([0, 1, 20])), ValueError, "positions must be in 0"),
    ])  # fmt: skip


def place(indptr: Any, indices: Any, first: int, items: Items | None = None) -> int:
    parts, loads = torch.zeros(3, dtype=torch.int32), torch.tensor([3, 0])
    return place_nodes(torch.tensor(indptr), torch.tensor(indices), parts, loads, first, 3, items)


def test_placing_nodes_reads_and_writes_nothing_outside() -> None:
    items = Items(torch.ones(3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 2)
    check_refused([
        (lambda: place([0, 1, 2], [0, 3], 0), IndexError, "indices must be in 0 .. 2, but hold 3"),
        (lambda: place([0, 1, 3], [0, 1], 0), ValueError, "indptr must ascend from 0 or more to 2 at most"),
        (lambda: place([0, 1, 2], [0, 1], 2), ValueError, "the range must be in 0 .. 3, but is 2 .. 4"),
        (lambda: place([0, 0, 0], [0], 0, items), ValueError, "items must have 2 counts and 2 loads"),
    ])  # fmt: skip
