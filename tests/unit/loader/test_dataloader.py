"""A loader: its options, epochs, state and representation."""

import copy
import json
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.distributed import PartBook
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.stand_ins.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_an_epoch_limits_the_threads_that_read_pinned_memory() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(5, names="seeds"), batch_size=5)
    with limits(), gf.DataLoader(pipe, num_workers=0, max_uva_threads=99) as loader:
        assert ops.max_uva_threads() == 10240
        next(iter(loader))
        assert ops.max_uva_threads() == 99


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_plan_for_a_gpu_can_be_looked_at_where_there_is_none() -> None:
    for device in ("cuda", torch.device("cuda:3")):
        with gf.DataLoader(pipelines.homogeneous().copy_to(device), 2) as loader:
            assert f"device={device!r}" in loader.explain()
            with pytest.raises(RuntimeError, match=r"install a torch that is built for CUDA"):
                next(iter(loader))


def place_of(loader: gf.DataLoader) -> dict[str, int]:
    """Return the state without the fingerprint."""
    state = loader.state_dict()
    assert state.pop("fingerprint")
    return state


def test_state_counts_what_was_given_out_not_what_was_prefetched() -> None:
    made: list[gf.MiniBatch] = []

    def make(batch: gf.MiniBatch) -> gf.MiniBatch:
        made.append(batch)
        return batch

    with gf.DataLoader(pipelines.shuffled().transform(make), num_workers=2, seed=1) as loader:
        assert place_of(loader) == {"seed": 1, "epoch": 0, "index": 0}
        batches = iter(loader)
        next(batches)
        next(batches)
        wait_until(lambda: len(made) > 2)
        assert place_of(loader) == {"seed": 1, "epoch": 0, "index": 2}


def test_after_the_last_mini_batch_the_state_is_the_next_epoch_s() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, seed=1) as loader:
        batches = iter(loader)
        for _ in range(len(loader)):
            next(batches)
        assert place_of(loader) == {"seed": 1, "epoch": 1, "index": 0}
        assert list(batches) == []
        assert place_of(loader) == {"seed": 1, "epoch": 1, "index": 0}


def test_resuming_is_as_quick_at_the_end_as_at_the_start() -> None:
    touched: list[int] = []

    class Items:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: Any) -> Any:
            touched.append(len(index))
            return index

    pipe = gf.ItemSampler(gf.ItemSet(Items(), names="seeds"), batch_size=10)
    with gf.DataLoader(pipe, num_workers=0, seed=0) as loader:
        loader.load_state_dict({"seed": 0, "epoch": 3, "index": 98})
        assert len(list(loader)) == 2
    assert touched == [10, 10]


def test_manual_seed_repeats_a_run_without_a_seed() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        with gf.DataLoader(pipelines.shuffled(), num_workers=2) as loader:
            runs.append(digests(loader))
    with gf.DataLoader(pipelines.shuffled(), num_workers=2) as loader:
        other = digests(loader)
    assert runs[0] == runs[1] != other


def test_the_sampler_s_seed_counts_where_the_loader_has_none() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(50, names="seeds"), batch_size=5, shuffle=True, seed=9)
    with gf.DataLoader(pipe, num_workers=0) as loader:
        assert loader.seed == 9
        assert digests(loader) == [digest(batch) for batch in pipe]
    with gf.DataLoader(pipe, num_workers=0, seed=8) as loader:
        assert loader.seed == 8


def test_the_state_at_the_end_of_an_epoch_is_accepted() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=1) as loader:
        whole = {**loader.state_dict(), "index": len(loader)}
        loader.load_state_dict(whole)
        assert list(loader) == []
        assert loader.state_dict()["epoch"] == 1


def leave_open(loader: gf.DataLoader) -> Any:
    """Return the iterator of an epoch, after some mini-batches."""
    epoch = iter(loader)
    for _ in range(2):
        next(epoch)
    return epoch


def use(loader: gf.DataLoader, history: str) -> Any:
    """Use a loader in one of several ways, and return what has to stay alive."""
    if history == "whole epochs":
        assert [len(list(loader)) for _ in range(2)] == [len(loader)] * 2
    elif history == "a break":
        for _ in loader:
            break
    elif history == "a closed iterator":
        leave_open(loader).close()
    elif history == "an iterator that never began":
        return iter(loader)
    elif history == "an open iterator":
        return leave_open(loader)
    elif history == "a closed iterator and another one":
        leave_open(loader).close()
        return leave_open(loader)
    elif history == "another state":
        loader.load_state_dict({"seed": 1, "epoch": 9, "index": 1})
    elif history == "another state and an open iterator":
        loader.load_state_dict({"seed": 1, "epoch": 9, "index": 1})
        return leave_open(loader)
    elif history == "another epoch":
        loader.set_epoch(7)
    return None


HISTORIES = [
    "none",
    "whole epochs",
    "a break",
    "a closed iterator",
    "an iterator that never began",
    "an open iterator",
    "a closed iterator and another one",
    "another state",
    "another state and an open iterator",
    "another epoch",
]


@pytest.mark.parametrize("history", HISTORIES)
def test_the_state_is_the_one_that_was_loaded_or_the_beginning_of_the_epoch_that_was_set(history: str) -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, seed=1) as source:
        states = [source.state_dict()]
        states += [source.state_dict() for _ in source]
    chosen = [states[0], states[3], states[-1], {**states[0], "epoch": 5, "index": 2}]
    assert [(state["epoch"], state["index"]) for state in chosen] == [(0, 0), (0, 3), (1, 0), (5, 2)]
    for state, num_workers in product(chosen, (0, 2)):
        with gf.DataLoader(pipelines.shuffled(), num_workers=num_workers, seed=1) as loader:
            old = use(loader, history)
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            if old is not None:
                next(old)  # An epoch that began before goes on, but is no longer the latest.
                assert loader.state_dict() == state
            assert digests(loader) == digests(pipelines.shuffled().with_seed(1, state["epoch"]))[state["index"] :]
            assert place_of(loader) == {"seed": 1, "epoch": state["epoch"] + 1, "index": 0}

    with gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=1) as loader:
        old = use(loader, history)
        loader.set_epoch(5)
        assert place_of(loader) == {"seed": 1, "epoch": 5, "index": 0}
        if old is not None:
            next(old)
            assert place_of(loader) == {"seed": 1, "epoch": 5, "index": 0}


def test_every_whole_number_is_the_same_seed() -> None:
    items = gf.ItemSet(10, names="seeds")
    expected = digests(pipelines.shuffled().with_seed(3))
    sampled = digests(gf.ItemSampler(items, 2, shuffle=True, seed=3))
    numbers: list[Any] = [3, np.int32(3), np.uint64(3), torch.tensor(3)]
    for seed in numbers:
        assert digests(gf.DataLoader(pipelines.shuffled(), 0, seed=seed)) == expected
        assert digests(pipelines.shuffled().with_seed(seed)) == expected
        assert digests(gf.ItemSampler(items, 2, shuffle=True, seed=seed)) == sampled
    assert gf.DataLoader(pipelines.shuffled(), 0, seed=2**64 - 1).seed == 2**64 - 1


def test_a_copy_begins_the_next_epoch_and_its_state_is_where_the_loader_was() -> None:
    loader = gf.DataLoader(pipelines.shuffled(), num_workers=0, seed=1)
    epoch = iter(loader)
    first = digests(next(epoch) for _ in range(3))
    other = copy.deepcopy(loader)
    state = other.state_dict()
    assert digests(other) == digests(pipelines.shuffled().with_seed(1, 1)) == digests(loader)
    other.load_state_dict(state)
    assert first + digests(other) == digests(pipelines.shuffled().with_seed(1))


def rank_loaders(count: int, world_size: int, **options: Any) -> list[gf.DataLoader]:
    """Return the loaders of all ranks, with the given number of mini-batches in total."""
    items = gf.ItemSet(3 * count, names="seeds")
    pipes = [
        gf.DistributedItemSampler(items, 3, shuffle=True, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    return [gf.DataLoader(pipe.transform(), num_workers=0, seed=7) for pipe in pipes]


def keys_of(loader: Iterable[Any]) -> list[tuple[int, ...]]:
    return [tuple(sorted(batch.seeds.tolist())) for batch in loader]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (1, 6), (2, 2)])
def test_other_ranks_go_on_where_all_were(before: int, after: int) -> None:
    go_on(before, after)


@pytest.mark.filterwarnings("ignore:owners has 2 parts")
def test_other_ranks_go_on_where_all_owners_were() -> None:
    for before, after in ((1, 2), (2, 1), (2, 3)):
        go_on(before, after, owners=PartBook.from_bounds([0, 30, 60]))


def go_on(before: int, after: int, **options: Any) -> None:
    """Check that ranks yield the rest of an epoch that another number of ranks began."""
    expected = sorted(keys_of(rank_loaders(20, 1, **options)[0]))
    seen, states = [], []
    for loader in rank_loaders(20, before, **options):
        epoch = iter(loader)
        seen += keys_of(next(epoch) for _ in range(6 // before))
        states.append(json.loads(json.dumps(loader.state_dict())))
    for state in states:
        rest = []
        for loader in rank_loaders(20, after, **options):
            loader.load_state_dict(state)
            rest += keys_of(loader)
        assert sorted(seen + rest) == expected


def test_ranks_that_can_t_share_what_is_left_are_refused() -> None:
    (loader,) = rank_loaders(50, 1)
    epoch = iter(loader)
    keys_of(next(epoch) for _ in range(21))
    state = loader.state_dict()
    with pytest.raises(ValueError, match=r"21 mini-batches .* are not a multiple of the 2 ranks here"):
        rank_loaders(50, 2)[0].load_state_dict(state)
    for three in rank_loaders(50, 3):
        three.load_state_dict(state)
        assert three.state_dict()["index"] == 7


@pytest.mark.parametrize("uneven", ["", "pad_uneven_inputs", "drop_uneven_inputs"])
def test_the_last_round_of_ranks_is_over_for_all_of_them_at_once(uneven: str) -> None:
    options = {uneven: True} if uneven else {}
    expected = keys_of(rank_loaders(7, 1)[0])
    two = rank_loaders(7, 2, **options)
    epochs = [iter(loader) for loader in two]
    for made in range(2, 7, 2):
        keys_of(next(epoch) for epoch in epochs)
        for loader in two:
            state, (one,) = loader.state_dict(), rank_loaders(7, 1, **options)
            if made == 6 and uneven == "drop_uneven_inputs":
                assert (state["epoch"], state["index"]) == (1, 0)
            else:
                one.load_state_dict(state)
                assert keys_of(one) == expected[made:]
    for loader, epoch in zip(two, epochs, strict=True):
        assert len(keys_of(epoch)) == len(loader) - 3
        assert (loader.state_dict()["epoch"], loader.state_dict()["index"]) == (1, 0)


def test_a_state_from_before_is_of_as_many_ranks() -> None:
    state = {"seed": 7, "epoch": 0, "index": 4}
    for loader in rank_loaders(20, 2):
        loader.load_state_dict(state)
        assert len(keys_of(loader)) == 6


def test_auto_workers_are_the_usual_number_with_a_warning() -> None:
    auto: Any = "auto"
    with pytest.warns(DeprecationWarning, match=r"num_workers='auto' is deprecated .*profile\(\)") as caught:
        loader = gf.DataLoader(pipelines.seeds(), num_workers=auto, seed=0)
    assert caught[0].filename == __file__
    assert loader.num_workers == gf.DataLoader(pipelines.seeds()).num_workers
