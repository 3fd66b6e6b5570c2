from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import Batcher, Concater, Filter, Mapper, Shuffler

import graphfeed as gf
from graphfeed.loader import InWorkers
from tests.kinds.digests import digests
from tests.kinds.pipelines import random_edges
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.stages import ByFields, make_items, seeds_in

ALL = [
    {"num_workers": 0},
    {"num_workers": 2},
    pytest.param({"num_workers": 1, "worker": "process"}, marks=pytest.mark.slow),
]


class Loop(IterDataPipe[Any]):
    """A user-defined torch pipe."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.source:
            self.count += 1
            yield double(minibatch)


class ReadsAhead(Loop):
    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self.source)
        before = next(iterator)
        for minibatch in iterator:
            yield before
            before = minibatch
        yield before


class OwnMapper(Mapper[Any]):
    def __init__(self, source: Any) -> None:
        super().__init__(source, self.work)

    def work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return double(minibatch)


def double(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Double the seeds, and forget the key."""
    return gf.MiniBatch(seeds=minibatch.seeds * 2)


def is_even(minibatch: gf.MiniBatch) -> bool:
    assert minibatch.key is not None
    return minibatch.key.index % 2 == 0


def mapped(source: Any) -> Any:
    return Mapper(source, double)


def filtered(source: Any) -> Any:
    return Filter(source, is_even)


def sampled(around: Any) -> gf.Datapipe:
    """Return a pipeline with a stage that draws behind one that does not come from here."""
    graph = gf.from_coo(random_edges(400, 400, 4000, 0), 400)
    return gf.NeighborSampler(around(make_items(200, 20, shuffle=True)), graph, [3])


@pytest.mark.parametrize("options", ALL)
def test_seed_and_epoch_get_through_it(options: Any) -> None:
    with gf.DataLoader(sampled(lambda source: source.transform(double)), num_workers=0, seed=3) as loader:
        expected = [digests(loader), digests(loader)]
    assert expected[0] != expected[1]
    for around in (mapped, OwnMapper, Loop):
        with gf.DataLoader(sampled(around), seed=3, **options) as loader:
            assert [digests(loader), digests(loader)] == expected, around
            loader.load_state_dict({"seed": 3, "epoch": 1, "index": 7})
            assert digests(loader) == expected[1][7:], around


def test_a_mapper_runs_in_workers_and_a_loop_in_the_main_process() -> None:
    for around, expected in ((mapped, True), (OwnMapper, True), (Loop, False)):
        with gf.DataLoader(sampled(around), num_workers=2) as loader:
            planned = loader.plan.running
            assert bool(gf.find(planned, InWorkers)) is expected
            assert type(around(make_items())).__name__ in loader.explain()


def test_a_filter_drops_mini_batches() -> None:
    assert seeds_in(ByFields(filtered(make_items(7)), 100)) == [[100, 101], [104, 105]]


def test_pipes_around_pipes_are_stages_too() -> None:
    pipe: Any = Loop(filtered(mapped(make_items(7, shuffle=True))))
    with gf.DataLoader(ByFields(pipe, 0), num_workers=2, seed=1) as loader:
        plain = [[4 * seed for seed in batch] for batch in seeds_in(make_items(7, shuffle=True).with_seed(1))]
        assert seeds_in(loader) == [plain[0], plain[2]]


def test_what_was_given_stays_as_it_was() -> None:
    source = make_items(4)
    pipe: Any = Loop(source)
    stage = ByFields(pipe, 0)
    assert seeds_in(stage) == seeds_in(stage) == [[0, 2], [4, 6]]
    assert pipe.source is source
    assert pipe.count == 0


def test_it_may_end_a_pipeline() -> None:
    with gf.DataLoader(mapped(make_items(4)), num_workers=2, seed=0) as loader:
        assert seeds_in(loader) == [[0, 2], [4, 6]]
        assert len(loader) == 2


def test_what_can_not_be_told_by_an_index_is_refused() -> None:
    def run(pipe: Any) -> list[list[int]]:
        return seeds_in(ByFields(pipe, 0))

    source: Any = make_items()
    several = r"must have its own __iter__ and read from only one stage; derive .* from"
    rows: list[Refusal] = [
        (lambda: run(Batcher(source, 2)), TypeError, "Batcher.*, must yield .* one by one, but yielded a DataChunk; "),
        (lambda: run(Shuffler(source)), ValueError, "Shuffler.*, reads ahead or changes the order, .*; derive Shuff"),
        (lambda: run(ReadsAhead(source)), ValueError, "ReadsAhead, .* reads ahead or changes .*, or put it after the"),
        (lambda: run(Concater(mapped(source), mapped(source))), TypeError, several),
        (lambda: run(Mapper(source, double).fork(2)[0]), TypeError, several),
    ]
    check_refused(rows)


def test_a_pipe_around_no_stage_is_a_source() -> None:
    batches = [gf.MiniBatch(seeds=torch.tensor([1]))]
    assert seeds_in(ByFields(mapped(batches), 1)) == [[3]]
