"""The checks for users' stages and samplers accept correct ones, and describe the fault of others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.testing import assert_same, check_sampler, check_stage
from tests.kinds import stages
from tests.kinds.refusals import check_refused

TURNS = count()


class Turns(gf.Transform):
    """Keeps count of its calls."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=torch.tensor(next(TURNS)))


class Heavy(gf.Transform):
    """Contains an array."""

    rows: torch.Tensor

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch


class Previous(gf.Transform):
    """Remembers the previous mini-batch of an epoch."""

    seen: list[Any]

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        if minibatch.key.index == 0:
            self.seen.clear()
        self.seen.append(minibatch.seeds)
        return replace(minibatch, labels=self.seen[-2:][0])


class Shortened(gf.Transform):
    """Changes when it is pickled."""

    by: int = 0

    def __reduce__(self) -> Any:
        return Shortened, (self.datapipe, 1)

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=torch.tensor(self.by))


class Reusing(gf.Transform):
    """Returns its one buffer each time."""

    kept: torch.Tensor

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=self.kept.copy_(minibatch.seeds))


class Shared(gf.Transform):
    """Contains an object that can't be pickled."""

    lock: Any

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch


class EachTwice(gf.Transform):
    """Has its own loop."""

    def __iter__(self) -> Any:
        for minibatch in self.datapipe:
            yield minibatch
            yield minibatch


BROKEN: list[tuple[gf.Datapipe, str]] = [
    (Turns(stages.make_items()), "mini-batch 0 differs when iterated again: minibatch.labels is"),
    (Heavy(stages.make_items(), torch.zeros(20_000)), "bytes when it is pickled, but must have less"),
    (Shortened(stages.make_items()), "mini-batch 0 differs when pickled: minibatch.labels is"),
    (Previous(stages.make_items(), []), "differs when computed from the last mini-batch to the first"),
    (Reusing(stages.make_items(), torch.zeros(2).long()), "differs when kept while others are computed"),
    (Shared(stages.make_items(), Lock()), "pipe can't be pickled, so no worker process can run it: cannot"),
    (stages.make_items(2), "pipe yields 1 mini-batches; give it items for two or more"),
]


def test_a_stage_that_breaks_a_law_is_told_which() -> None:
    check_refused((partial(check_stage, pipe), AssertionError, words) for pipe, words in BROKEN)


def test_a_stage_of_a_notebook_is_packed_as_the_loader_packs_it() -> None:
    pytest.importorskip("cloudpickle")
    check_stage(stages.make_items().transform(lambda minibatch: replace(minibatch, labels=minibatch.seeds + 1)))


def test_a_stage_with_a_loop_of_its_own_passes() -> None:
    check_stage(EachTwice(stages.make_items()))


def test_what_an_executor_of_its_own_makes_is_compared_too() -> None:
    made_in = []

    class Noting(ThreadPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Any:
            made_in.append(given)
            return super().submit(*given, **named)

    with Noting(1) as executor:
        check_stage(stages.USERS["by fields"](), executor=executor)
    assert len(made_in) >= 5


def typed_pipe() -> gf.Datapipe:
    return stages.typed_items().sample_neighbor(stages.typed_graph(), [2, 2])


def test_samplers_of_the_library_pass() -> None:
    check_sampler(stages.graph(), stages.BUILDERS[gf.NeighborSampler]())
    check_sampler(stages.graph(), stages.edge_items().sample_layer_neighbor(stages.graph(), [3]))
    check_sampler(stages.typed_graph(), typed_pipe())


def test_the_columns_of_a_hop_may_lack_types_that_have_none() -> None:
    def lack(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        columns = minibatch.sampled_subgraphs[-1].original_column_node_ids
        return with_hop(minibatch, -1, original_column_node_ids={"a": columns["a"]})

    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = gf.from_coo({"a:to:b": edges, "b:to:a": edges}, {"a": 4, "b": 4})
    items = gf.ItemSampler(gf.HeteroItemSet({"a": gf.ItemSet(4, names="seeds")}), batch_size=2)
    check_sampler(graph, items.sample_neighbor(graph, [2]).transform(lack))


def with_hop(minibatch: gf.MiniBatch, place: int = 0, **fields: Any) -> gf.MiniBatch:
    hops = list(minibatch.sampled_subgraphs)
    hops[place] = replace(hops[place], **fields)
    return replace(minibatch, sampled_subgraphs=hops)


def other_ids(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return with_hop(minibatch, original_edge_ids=minibatch.sampled_subgraphs[0].original_edge_ids.flip(0))


def without_ids(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return with_hop(with_hop(minibatch, original_edge_ids=None), 1, original_edge_ids=None)


def other_sources(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    csc = minibatch.sampled_subgraphs[0].sampled_csc
    return with_hop(without_ids(minibatch), sampled_csc=gf.CSCFormatBase(csc.indptr, csc.indices.flip(0)))


def other_rows(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return with_hop(minibatch, 1, original_row_node_ids=minibatch.sampled_subgraphs[1].original_row_node_ids.flip(0))


def other_seeds(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return replace(minibatch, seeds=minibatch.seeds.flip(0))


def other_inputs(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return replace(minibatch, input_nodes=minibatch.input_nodes[1:])


def short_columns(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    csc = without_ids(minibatch).sampled_subgraphs[0].sampled_csc
    indptr = csc.indptr[:-1]
    return with_hop(without_ids(minibatch), sampled_csc=gf.CSCFormatBase(indptr, csc.indices[: indptr[-1]]))


def far_sources(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    csc = minibatch.sampled_subgraphs[0].sampled_csc
    return with_hop(minibatch, sampled_csc=gf.CSCFormatBase(csc.indptr, csc.indices + 100_000))


def no_hops(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return replace(minibatch, sampled_subgraphs=None)


def one_hop_twice(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return replace(minibatch, sampled_subgraphs=[minibatch.sampled_subgraphs[0], *minibatch.sampled_subgraphs])


WRONG: list[tuple[Any, str]] = [
    (other_ids, r"mini-batch 0, hop 0: the graph has no edge \(column, source, id\) = \[\(0, "),
    (other_sources, r"mini-batch 0, hop 0: the graph has no edge \(column, source\) = \[\("),
    (short_columns, r"mini-batch 0, hop 0: indptr has \d+ numbers, but must have \d+"),
    (far_sources, r"mini-batch 0, hop 0: indices has 1\d+, but there are \d+ rows"),
    (other_rows, "mini-batch 0, hop 1: the rows don't begin with the columns"),
    (one_hop_twice, "mini-batch 0, hop 0: the columns are not the rows of the next hop"),
    (other_seeds, "mini-batch 0: the columns of the last hop don't begin with the seeds"),
    (other_inputs, "mini-batch 0: input_nodes are not the rows of the first hop"),
    (no_hops, "mini-batch 0 has no sampled_subgraphs"),
]


def test_a_sample_that_is_none_of_the_graph_is_told_how_and_edges_need_no_ids() -> None:
    pipe, check = (
        stages.labelled_items().sample_neighbor(stages.graph(), [2, 3]),
        partial(check_sampler, stages.graph()),
    )
    check(pipe.transform(without_ids))
    check_refused((partial(check, pipe.transform(change)), AssertionError, words) for change, words in WRONG)


def test_seeds_may_have_another_dtype_than_the_graph() -> None:
    ends = torch.arange(200, dtype=torch.int32)
    items = gf.ItemSet((torch.arange(8), torch.full((8,), 150)), names=("seeds", "timestamp"))
    graph = gf.from_coo((ends * 7 % 20, ends % 20), 20, edge_attributes={"time": torch.arange(200)})
    assert graph.indices.dtype == torch.int32
    for pipe in (
        gf.ItemSampler(items, 4).sample_neighbor(graph, [2, 3]),
        gf.ItemSampler(items, 4).sample_neighbor(graph, [2, 3], disjoint=True),
        gf.ItemSampler(items, 4).temporal_sample_neighbor(graph, [2, 3], edge_timestamp_attr_name="time"),
    ):
        check_sampler(graph, pipe)
        with pytest.raises(AssertionError, match="don't begin with the seeds"):
            check_sampler(graph, pipe.transform(other_seeds))


def test_edges_of_a_sampler_of_its_own_need_not_be_in_the_graph() -> None:
    graph, items = stages.graph(), stages.labelled_items()
    pipe = items.sample_neighbor(gf.from_coo(([0, 1, 2], [2, 0, 1]), graph.num_nodes), [1])
    with pytest.raises(AssertionError, match="the graph has no edge"):
        check_sampler(graph, pipe)
    check_sampler(graph, pipe, edges=False)
    with pytest.raises(AssertionError, match="don't begin with the seeds"):
        check_sampler(graph, pipe.transform(other_seeds), edges=False)


def test_the_first_part_that_differs_is_named() -> None:
    with pytest.raises(AssertionError, match=r"of the model: value\['b'\]\[1\]: int 2 is not int 3"):
        assert_same({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]}, what="of the model")


MAKERS: list[Callable[[int], Any]] = [
    np.float32,
    lambda number: np.array(["a", str(number)]),
    lambda number: np.array([None, "a", number], dtype=object),
    lambda number: {"a", "b", str(number)},
    lambda number: torch.tensor([0, number]).to_sparse(),
]


def test_other_values_of_a_mini_batch_are_compared() -> None:
    for make in MAKERS:
        assert_same(make(1), make(1))
    check_refused((partial(assert_same, make(1), make(2)), AssertionError, "they differ: value") for make in MAKERS)


def test_what_is_no_pipeline_and_what_cannot_be_compared_is_named() -> None:
    pipe: Any = stages.make_items()
    graph: Any = [1]
    check_refused(
        [
            (lambda: check_stage(graph), TypeError, r"pipe must be a Datapipe, but is \[1\]"),
            (lambda: check_sampler(graph, pipe), TypeError, r"graph must be a SamplingGraph, but is \[1\]"),
            (
                lambda: assert_same({"a": iter("b")}, {}),
                TypeError,
                r"value\['a'\] is a str_\w*iterator, which can't be",
            ),
        ]
    )
