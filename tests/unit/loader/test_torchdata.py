"""torchdata, both ways: a loader as a node, nodes as sources of pipelines, and pipelines in its data loader."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler
from torchdata.nodes import (
    BaseNode,
    Batcher,
    IterableWrapper,
    Loader,
    Mapper,
    MultiNodeWeightedSampler,
    Prefetcher,
    SamplerWrapper,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests


@pytest.fixture
def expected() -> list[list[str]]:
    pipe = pipelines.shuffled()
    return [digests(pipe.with_seed(3, epoch)) for epoch in range(3)]


def loader(num_workers: int = 2, seed: int = 3) -> gf.DataLoader:
    return gf.DataLoader(pipelines.shuffled(), num_workers=num_workers, seed=seed)


def test_its_loader_runs_epoch_after_epoch(expected: list[list[str]]) -> None:
    with loader() as own:
        nodes = Loader(own.as_node())
        assert [digests(nodes) for _ in range(3)] == expected


def test_a_batcher_and_a_prefetcher_compose(expected: list[list[str]]) -> None:
    with loader() as own:
        nodes = Loader(Batcher(Prefetcher(own.as_node(), 2), batch_size=2, drop_last=False))
        groups = [digests(group) for group in nodes]
    assert [value for group in groups for value in group] == expected[0]
    assert {len(group) for group in groups[:-1]} == {2}


def test_a_state_of_the_loader_itself_resumes_a_node(expected: list[list[str]]) -> None:
    own = loader(0)
    epoch = iter(own)
    next(epoch)
    node = loader(0).as_node()
    node.reset(own.state_dict())
    assert digests(node) == expected[0][1:]


def plain() -> BaseNode:
    return loader(0).as_node()


def ahead() -> BaseNode:
    return Prefetcher(loader(1).as_node(), 3)


def grouped() -> BaseNode:
    return Prefetcher(Batcher(loader(0).as_node(), batch_size=2, drop_last=False), 2)


def mixed(stop: str) -> Callable[[], BaseNode]:
    def make() -> BaseNode:
        nodes = {"own": loader(1).as_node(), "other": Prefetcher(loader(0, seed=8).as_node(), 2)}
        return Prefetcher(MultiNodeWeightedSampler(nodes, {"own": 0.7, "other": 0.3}, stop_criteria=stop), 2)

    return make


GRAPHS = {
    "plain": plain,
    "ahead": ahead,
    "grouped": grouped,
    "until the first ends": mixed("FIRST_DATASET_EXHAUSTED"),
    "until all end": mixed("ALL_DATASETS_EXHAUSTED"),
    "in cycles": mixed("CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED"),
}


def shown(item: Any) -> list[str]:
    return digests(item) if isinstance(item, list) else [digest(item)]


def two_epochs(nodes: Loader) -> list[list[Any]]:
    return [[shown(item) for item in nodes] for _ in range(2)]


@pytest.mark.parametrize("make", GRAPHS.values(), ids=list(GRAPHS))
def test_graphs_of_nodes_resume_at_each_mini_batch(make: Callable[[], BaseNode]) -> None:
    first, second = two_epochs(Loader(make()))
    assert len(first) > 2
    assert first != second
    nodes = Loader(make())
    states = [nodes.state_dict()]
    states += [nodes.state_dict() for _ in nodes]
    assert len(states) == len(first) + 1
    for taken, state in enumerate(states):
        resumed = Loader(make())
        resumed.load_state_dict(copy.deepcopy(state))
        rest = [shown(item) for item in resumed]
        # At the end of an epoch, torchdata's loader starts the next one.
        assert rest == (first[taken:] or second), taken
        if taken < len(first):
            assert [shown(item) for item in resumed] == second, taken


class Seeds(BaseNode):  # type: ignore[misc]
    """Yields seeds from its state on; counts what it yields, and its epochs like torchdata's nodes."""

    def __init__(self, count: int = 12) -> None:
        super().__init__()
        self.count, self.epoch, self.place, self.yielded, self.has_begun = count, 0, 0, 0, False

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        if initial_state is None:
            self.epoch, self.place = self.epoch + self.has_begun, 0
        else:
            self.epoch, self.place = initial_state["epoch"], initial_state["place"]
        self.has_begun = False

    def next(self) -> gf.MiniBatch:
        self.has_begun = True
        if self.place == self.count:
            raise StopIteration
        self.place += 1
        self.yielded += 1
        return gf.MiniBatch(seeds=torch.tensor([100 * self.epoch + self.place]))

    def get_state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "place": self.place}


def as_minibatch(numbers: list[int]) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=torch.tensor(numbers))


def sampled() -> BaseNode:
    order = RandomSampler(range(20), generator=torch.Generator().manual_seed(5))
    return Prefetcher(Mapper(Batcher(SamplerWrapper(order), 3, drop_last=False), as_minibatch), 2)


def drawn(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    noise = torch.randint(1 << 40, (1,), generator=minibatch.generator())
    return gf.MiniBatch(seeds=minibatch.seeds, labels=noise)


class Doubled(gf.Transform):
    """Yields each mini-batch twice, so that a loader can't begin at an index."""

    def __iter__(self) -> Iterator[Any]:
        for minibatch in self.datapipe:
            yield minibatch
            yield minibatch


def fed(node: BaseNode, doubled: bool = False, **options: Any) -> gf.DataLoader:
    pipe: Any = gf.IterableSource(node).transform(drawn)
    return gf.DataLoader(Doubled(pipe) if doubled else pipe, **{"num_workers": 2, "seed": 1, **options})


def values(batches: Any) -> list[tuple[list[int], int]]:
    return [(batch.seeds.tolist(), int(batch.labels)) for batch in batches]


def stopped_after(count: int, node: BaseNode) -> tuple[dict[str, Any], list[tuple[list[int], int]]]:
    """Return the state of a loader after some mini-batches, and the values of the others of its epoch."""
    with fed(node) as loader:
        batches = iter(loader)
        for _ in range(count):
            next(batches)
        return loader.state_dict(), values(batches)


@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_node_as_a_source_resumes_at_each_mini_batch(epoch: int, doubled: bool) -> None:
    with fed(Seeds(), doubled) as whole:
        expected = [values(whole) for _ in range(4)]
    assert [seeds for seeds, _ in expected[epoch]][-1] == [100 * epoch + 12]
    with fed(Seeds(), doubled) as stopped:
        for _ in range(epoch):
            values(stopped)
        batches = iter(stopped)
        states = [stopped.state_dict()]
        states += [stopped.state_dict() for _ in batches]
        states.append(stopped.state_dict())
    for taken, state in enumerate(states):
        for num_workers in (0, 2):
            with fed(Seeds(), doubled, num_workers=num_workers) as resumed:
                resumed.load_state_dict(json.loads(json.dumps(state)))
                assert resumed.state_dict() == state
                rest = [values(resumed) for _ in range(2)]
            if taken < len(states) - 1:
                assert rest == [expected[epoch][taken:], expected[epoch + 1]], taken
            else:
                assert rest == expected[epoch + 1 : epoch + 3]


def test_resuming_replays_nothing() -> None:
    state, _ = stopped_after(9, Seeds())
    node = Seeds()
    with fed(node) as resumed:
        resumed.load_state_dict(state)
        assert len(values(resumed)) == 3
        assert node.yielded == 3
        assert len(values(resumed)) == 12
        assert node.yielded == 15


def test_a_state_without_the_node_s_reads_it_from_the_start() -> None:
    state, rest = stopped_after(5, Seeds())
    del state["sources"]
    with fed(Seeds()) as resumed:
        resumed.load_state_dict(state)
        assert values(resumed) == rest


def test_graphs_of_torchdata_s_nodes_are_sources() -> None:
    torch.manual_seed(0)
    state, rest = stopped_after(3, sampled())
    torch.manual_seed(0)
    with fed(sampled()) as resumed:
        resumed.load_state_dict(state)
        assert values(resumed) == rest


def test_loaders_and_nodes_nest() -> None:
    def nest() -> Loader:
        return Loader(Prefetcher(fed(Seeds(), num_workers=1).as_node(), 2))

    nodes = nest()
    expected = [values(nodes) for _ in range(3)]
    for epoch in range(2):
        nodes = nest()
        for _ in range(epoch):
            values(nodes)
        for taken, state in enumerate([nodes.state_dict() for _ in nodes], 1):
            resumed = nest()
            resumed.load_state_dict(state)
            assert values(resumed) == (expected[epoch][taken:] or expected[epoch + 1]), (epoch, taken)


def test_a_node_is_read_by_one_epoch_at_a_time() -> None:
    loader = fed(Seeds(), num_workers=0)
    first = iter(loader)
    next(first)
    assert len(values(loader)) == 12
    with pytest.raises(RuntimeError, match="Seeds is being read by another epoch"):
        next(first)


@pytest.mark.parametrize(
    "sources", [3, {"states": []}, {"states": [{}, {}], "over": False}, {"states": [{}], "over": 1}]
)
def test_states_of_other_nodes_are_rejected(sources: Any) -> None:
    loader = fed(Seeds(), num_workers=0)
    with pytest.raises(ValueError, match="the pipeline's 1 nodes"):
        loader.load_state_dict({**loader.state_dict(), "sources": sources})


@pytest.mark.filterwarnings("ignore:torch's DataLoader repeats epoch 0", "ignore:'set_vital'")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", [pipelines.shuffled, lambda: gf.IterableSource(Seeds()).transform(drawn)])
def test_its_data_loader_divides_a_pipeline_among_workers(make: Callable[[], gf.Datapipe], num_workers: int) -> None:
    given = StatefulDataLoader(make(), batch_size=None, num_workers=num_workers)
    batches = iter(given)
    taken = [digest(next(batches)) for _ in range(3)]
    state = given.state_dict()
    rest = digests(batches)
    assert sorted(taken + rest) == sorted(digests(make()))
    resumed = StatefulDataLoader(make(), batch_size=None, num_workers=num_workers)
    resumed.load_state_dict(state)
    assert digests(resumed) == rest


@pytest.mark.filterwarnings("ignore:'set_vital'")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_its_data_loader_rejects_a_loader_with_the_remedy(num_workers: int) -> None:
    given = StatefulDataLoader(loader(0), batch_size=None, num_workers=num_workers)
    with pytest.raises(TypeError, match="pass them the pipeline itself"):
        next(iter(given))


def test_a_weighted_mix_takes_from_the_loader(expected: list[list[str]]) -> None:
    with loader() as own:
        mix = MultiNodeWeightedSampler(
            {"own": own.as_node(), "numbers": IterableWrapper(range(100))},
            {"own": 0.5, "numbers": 0.5},
            stop_criteria="FIRST_DATASET_EXHAUSTED",
        )
        given = [digest(item) for item in Loader(mix) if isinstance(item, gf.MiniBatch)]
    assert given == expected[0][: len(given)]
    assert len(given) > 0
