"""Arguments are checked and named; arrays of graphs are checked once."""

import io
import pickle

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.arguments import (
    as_ids,
    as_tensor,
    check_count,
    check_ids,
    check_length,
    check_seconds,
    check_vector,
    parse_bytes,
)
from tests.kinds.refusals import check_refused
from tests.unit.ops.test_tensors import Slow

SIZES = {
    "1K": 1 << 10, "2kb": 1 << 11, "1.5M": 3 << 19, " 256 MB ": 1 << 28, ".5G": 1 << 29, "4 GiB": 1 << 32,
    "1tB": 1 << 40, "100": 100, 77: 77,
}  # fmt: skip


def test_what_is_right_passes() -> None:
    for ids in ([], [0], [4, 0, 4]):
        check_vector("ids", torch.tensor(ids, dtype=torch.int32))
        check_ids("ids", torch.tensor(ids, dtype=torch.int64), 5)
    check_ids("ids", torch.tensor([2**40 - 1]), 2**40)
    check_ids("ids", torch.tensor([2**31 - 1], dtype=torch.int32), 2**40)
    for value in (1, np.int32(1), torch.tensor(1), True):
        check_count("size", value, 1, 1)
    for seconds in (0.1, 1, np.float32(2.5), 1e8):
        check_seconds("timeout", seconds)
    assert {size: parse_bytes("size", size) for size in SIZES} == SIZES


def test_what_is_wrong_is_named_with_what_would_be_right() -> None:
    ids, outside = torch.tensor([0, -7, 9]), torch.tensor([0, 5])
    check_refused([
        (lambda: check_vector("ids", [1]), TypeError, "^ids must be a torch.Tensor, but is a list; convert it with"),
        (lambda: check_vector("ids", torch.tensor(1)), ValueError, r"ids must have 1 dimension, but has shape \(\)"),
        (lambda: check_vector("ids", torch.ones(2)), TypeError,
         r"ids must be torch.int32 or torch.int64, but is torch.float32; .*\.to"),
        (lambda: check_vector("mask", ids, (torch.bool,)), TypeError, "mask must be torch.bool, but is torch.int64"),
        (lambda: check_ids("ids", outside, 5), ValueError, "ids must be in 0 .. 4, but holds 5; check the ids"),
        (lambda: check_ids("ids", ids, 5, IndexError), IndexError, "ids must be in 0 .. 4, but holds -7"),
        (lambda: check_ids("ids", outside, 0), ValueError, "ids must be in 0 .. -1, but holds 5"),
        (lambda: check_length("times", ids, 4, "edge"), ValueError, "times must have 4 values, one per edge, but has"),
        (lambda: check_count("size", 1, 2), ValueError, "size must be 2 or more, but is 1"),
        (lambda: check_count("size", 9, 2, 8), ValueError, "size must be 8 or less, but is 9"),
        (lambda: check_count("size", 1.0, 1), TypeError, r"size must be an integer, but is 1\.0"),
        (lambda: check_count("size", outside, 1), TypeError, r"must be an integer, but is tensor\(\[0, 5\]\)"),
        (lambda: check_seconds("timeout", -1.0), ValueError, r"timeout must be more than 0 seconds, but is -1\.0"),
        (lambda: check_seconds("timeout", float("nan")), ValueError, "timeout must be more than 0 seconds, but is nan"),
        (lambda: check_seconds("timeout", float("inf")), ValueError, r"must be 1e\+08 seconds or less, but is inf"),
        (lambda: check_seconds("timeout", True), TypeError, "timeout must be a number of seconds, but is True"),
        (lambda: parse_bytes("size", "0k"), ValueError, "size must be 1 byte or more, but is '0k'"),
    ])  # fmt: skip
    for size in ("MB", "", "-1MB", "1 MB MB", "4 apples", None, -1):
        with pytest.raises(ValueError, match="size must be a number of bytes, such as '512M' or '4G', but is"):
            parse_bytes("size", size)


def test_what_holds_no_numbers_is_refused_by_the_argument_s_name() -> None:
    above = np.full((2, 1), 2**63 + 5, dtype=np.uint64)
    check_refused([
        (lambda: as_tensor("labels", "abc"), TypeError, "^labels .*is 'abc'"),
        (lambda: as_tensor("labels", [[1, 2], [3]]), TypeError,
         r"^labels .*list of numbers or of rows of one length, but is \[\[1, 2\], \[3\]\]"),
        (lambda: as_tensor("labels", [2**70]), TypeError, r"^labels .*is \[1180591620717411303424\]"),
        (lambda: as_tensor("labels", Slow()), TypeError, "^labels .*is a Slow"),
        (lambda: as_tensor("labels", np.array([None])), TypeError, "^labels .*holds object; convert it"),
        (lambda: as_tensor("labels", np.array([0], dtype="M8[ns]")), TypeError,
         r"^labels .*holds datetime64\[ns\]; .* with .astype\('datetime64\[us\]'\).astype\('int64'\)$"),
        (lambda: as_tensor("labels", np.array([0], dtype="m8[D]")), TypeError, r"with .astype\('timedelta64\[us\]'\)"),
        (lambda: as_tensor("labels", np.ma.masked_equal(np.arange(3), 1)), TypeError,
         "^labels is a masked array, whose mask would be lost"),
        (lambda: as_tensor("labels", torch.eye(3).to_sparse()), TypeError,
         r"^labels .*of torch.sparse_coo; convert it with .to_dense\(\)"),
        (lambda: as_ids("seeds", above), ValueError, r"^seeds must be below 2\*\*63, but holds 9223372036854775813; "),
    ])  # fmt: skip


def large_graph(starts: torch.dtype = torch.int64) -> gf.FusedCSCSamplingGraph:
    degrees = torch.full((3000,), 2)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    weights = {"weight": torch.rand(6000), "time": torch.arange(6000).flip(0)}
    return gf.fused_csc_sampling_graph(indptr.to(starts), torch.arange(6000) % 3000, edge_attributes=weights)


def sample_near_the_first_nodes(graph: gf.FusedCSCSamplingGraph) -> None:
    pipe = gf.ItemSampler(gf.ItemSet(10, names="seeds"), batch_size=10)
    list(pipe.sample_neighbor(graph, [2, 2], prob_name="weight"))
    list(pipe.sample_layer_neighbor(graph, [2, 2]))
    timed = gf.ItemSampler(gf.ItemSet((torch.arange(9), torch.arange(9) + 5000), names=("seeds", "timestamp")), 9)
    list(timed.temporal_sample_neighbor(graph, [2, 2], edge_timestamp_attr_name="time"))


@pytest.mark.parametrize("starts", [torch.int32, torch.int64])
def test_graphs_that_were_checked_are_not_checked_again_here_or_in_another_process(starts: torch.dtype) -> None:
    graph = large_graph(starts)
    sample_near_the_first_nodes(graph)
    graph.indices.numpy()[-1] = 3000  # which a check would find
    sample_near_the_first_nodes(graph)
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.indices is not graph.indices
    sample_near_the_first_nodes(copy)
    file = io.BytesIO()
    torch.save(graph, file)
    file.seek(0)
    with pytest.raises(ValueError, match=r"indices must be in 0 \.\. 2999, but holds 3000"):
        sample_near_the_first_nodes(torch.load(file, weights_only=False))


def test_what_is_no_indptr_is_refused() -> None:
    indptr, text = torch.tensor([0, 4, 2]), "indptr must not decrease"
    csc, seeds = gf.CSCFormatBase(torch.tensor([5, 1, 3]), torch.tensor([0, 1, 2])), torch.tensor([7, 8])
    to_pyg = gf.SampledSubgraph(csc, seeds, torch.arange(5)).to_pyg
    check_refused([
        (lambda: ops.expand_indptr(indptr, dtype=torch.int64), ValueError, text),
        (lambda: ops.indptr_edge_ids(indptr), ValueError, text),
        (lambda: ops.cumulate_weights(indptr, torch.rand(4)), ValueError, text),
        (lambda: ops.order_by_time(indptr, torch.arange(4)), ValueError, text),
        (lambda: ops.Graph.checked(indptr, torch.tensor([0, 1])), ValueError, text),
        (lambda: gf.compact_csc_format(csc, seeds, torch.tensor([1, 2])), ValueError, "indptr must start with 0"),
        (lambda: to_pyg(torch.rand(5, 1)), ValueError, "indptr must start with 0"),
    ])  # fmt: skip
