import gc
import io
import pickle
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.arguments import verified
from tests.ops.hops import sample_all, sample_one, sample_timed
from tests.refusals import check_refused


class Counted:
    """A check that counts how often it runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1


def test_a_check_is_repeated_for_other_tensors_alone() -> None:
    check, first, second = Counted(), torch.arange(4), torch.arange(4)
    for _ in range(3):
        verified.check_once("test", (first, None), check)
    assert check.runs == 1
    verified.check_once("test", (second, None), check)
    verified.check_once("another", (first, None), check)
    assert check.runs == 3
    verified.distrust("test", (first, None))
    verified.check_once("test", (first, None), check)
    assert check.runs == 4


def test_what_fails_is_checked_again() -> None:
    def fail() -> None:
        raise ValueError("wrong")

    tensor = torch.arange(4)
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"):
            verified.check_once("test", (tensor,), fail)


def test_nothing_is_remembered_of_tensors_that_are_gone() -> None:
    gc.collect()
    before = len(verified.PASSED)
    tensor = torch.arange(4)
    verified.trust("test", (tensor,))
    assert len(verified.PASSED) == before + 1
    del tensor
    gc.collect()
    assert len(verified.PASSED) == before


def large_graph(starts: torch.dtype = torch.int64) -> gf.FusedCSCSamplingGraph:
    degrees = torch.full((3000,), 2)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    weights = {"weight": torch.rand(6000), "time": torch.arange(6000).flip(0)}
    return gf.fused_csc_sampling_graph(indptr.to(starts), torch.arange(6000) % 3000, edge_attributes=weights)


def runs_of_checks(monkeypatch: pytest.MonkeyPatch, graph: gf.FusedCSCSamplingGraph) -> list[Any]:
    """Return which checks sampling in a graph runs."""
    found: list[Any] = []

    def note(what: Any, tensors: Any) -> bool:
        passed = has_passed(what, tensors)
        found.extend([] if passed else [what])
        return passed

    has_passed = verified.has_passed
    monkeypatch.setattr(verified, "has_passed", note)
    pipe = gf.ItemSampler(gf.ItemSet(10, names="seeds"), batch_size=10)
    list(pipe.sample_neighbor(graph, [2, 2], prob_name="weight"))
    list(pipe.sample_layer_neighbor(graph, [2, 2]))
    timed = gf.ItemSampler(gf.ItemSet((torch.arange(9), torch.arange(9) + 5000), names=("seeds", "timestamp")), 9)
    list(timed.temporal_sample_neighbor(graph, [2, 2], edge_timestamp_attr_name="time"))
    monkeypatch.setattr(verified, "has_passed", has_passed)
    return found


@pytest.mark.parametrize("starts", [torch.int32, torch.int64])
def test_graphs_that_were_checked_are_not_checked_again_here_or_in_another_process(
    monkeypatch: pytest.MonkeyPatch, starts: torch.dtype
) -> None:
    graph = large_graph(starts)
    assert runs_of_checks(monkeypatch, graph) == []
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.indices is not graph.indices
    assert runs_of_checks(monkeypatch, copy) == []
    assert runs_of_checks(monkeypatch, graph) == []
    file = io.BytesIO()
    torch.save(graph, file)
    file.seek(0)
    assert runs_of_checks(monkeypatch, torch.load(file, weights_only=False)) == ["graph"]


@pytest.mark.parametrize("replace", [False, True])
def test_fanouts_that_cannot_be_counted_are_refused_by_name(replace: bool) -> None:
    indptr, indices, seeds = torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0])
    largest, keys = torch.tensor([2**58 + 1]), [(1, 2)]
    timed, times = ops.TemporalGraph(indptr, indices), torch.tensor([1])
    calls: list[Any] = [
        lambda: sample_one(ops.StaticGraph(indptr), seeds, largest, 1, replace=replace),
        lambda: sample_all(indptr, indices, seeds, [2**58 + 1], [1], replace=replace),
        lambda: sample_one(ops.StaticGraph(indptr, indices), seeds, largest, 1, 2, method="labor", replace=replace),
        lambda: sample_all(indptr, indices, seeds, [2**58 + 1], keys, "labor", replace=replace),
        lambda: sample_one(timed, seeds, largest, 1, times=times, replace=replace),
        lambda: sample_timed(timed, seeds, times, [2**58 + 1], [1], replace=replace),
        lambda: sample_one(timed, seeds, largest, 1, 2, times=times, method="labor", replace=replace),
        lambda: sample_timed(timed, seeds, times, [2**58 + 1], keys, "labor", replace=replace),
    ]
    if replace:
        text = "^fanouts must be at most 2147483647 with replacement, but hold"
        check_refused((call, ValueError, text) for call in calls)
    else:
        for call in calls:
            call()


@pytest.mark.parametrize("wrong", [[5, 7, 9], [0, 4, 2], []])
def test_what_is_no_indptr_is_refused(wrong: list[int]) -> None:
    indptr, text = torch.tensor(wrong, dtype=torch.int64), r"indptr must (start with 0|not fall)"
    check_refused([
        (lambda: ops.expand_indptr(indptr, dtype=torch.int64), ValueError, text),
        (lambda: ops.indptr_edge_ids(indptr), ValueError, text),
        (lambda: ops.cumulate_weights(indptr, torch.rand(4)), ValueError, text),
        (lambda: ops.order_by_time(indptr, torch.arange(4)), ValueError, text),
        (lambda: sample_one(ops.StaticGraph(indptr), torch.tensor([0]), torch.tensor([2]), 1), ValueError, text),
    ])  # fmt: skip


def test_columns_that_are_none_are_refused_before_they_are_relabelled_or_handed_to_pyg() -> None:
    csc = gf.CSCFormatBase(torch.tensor([5, 1, 3]), torch.tensor([0, 1, 2]))
    seeds = torch.tensor([7, 8])
    to_pyg = gf.SampledSubgraph(csc, seeds, torch.arange(5)).to_pyg
    check_refused([
        (lambda: gf.compact_csc_format(csc, seeds, torch.tensor([1, 2])), ValueError, "indptr must start with 0"),
        (lambda: to_pyg(torch.rand(5, 1)), ValueError, "indptr must start with 0"),
    ])  # fmt: skip
