"""A loader: its options, epochs, workers, and what it shows of itself."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.memory import pinned
from tests import pipelines
from tests.digests import digest, digests
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_an_epoch_limits_the_threads_that_read_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LIMIT", pinned.Limit())
    pipe = gf.ItemSampler(gf.ItemSet(5, names="seeds"), batch_size=5)
    with gf.DataLoader(pipe, num_workers=0, max_uva_threads=99) as loader:
        assert ops.max_uva_threads() == pinned.DEFAULT_UVA_THREADS
        next(iter(loader))
        assert ops.max_uva_threads() == 99


def test_by_default_there_are_no_workers_where_sampling_is_on_a_gpu() -> None:
    (sampler,) = gf.find(pipelines.homogeneous(), gf.NeighborSampler)
    assert isinstance(sampler, gf.NeighborSampler)
    pipe = sampler.datapipe.copy_to("cuda").sample_neighbor(sampler.graph, [2])
    assert gf.DataLoader(pipe).num_workers == 0


def test_a_plan_for_a_gpu_can_be_looked_at_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", torch.device("cuda:3")):
        with gf.DataLoader(pipelines.homogeneous().copy_to(device), 2) as loader:
            assert f"device={device!r}" in loader.explain()
            with pytest.raises(RuntimeError, match=r"install a torch that is built for CUDA"):
                next(iter(loader))


def test_set_epoch_chooses_the_next_epoch() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2, seed=1) as loader:
        first, second = digests(loader), digests(loader)
        loader.set_epoch(1)
        assert digests(loader) == second
        loader.set_epoch(0)
        assert digests(loader) == first


def test_len_is_the_number_of_mini_batches() -> None:
    with gf.DataLoader(pipelines.homogeneous(), num_workers=2) as loader:
        assert len(loader) == len(list(loader)) == 10


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


def test_a_state_brings_its_seed() -> None:
    with gf.DataLoader(pipelines.shuffled(), num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [digest(batch) for batch in batches]
    torch.manual_seed(99)
    with gf.DataLoader(pipelines.shuffled(), num_workers=1) as loader:
        loader.load_state_dict(state)
        assert digests(loader) == rest


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


def test_another_thread_takes_the_place_of_one_that_hangs() -> None:
    release = threading.Event()

    def hang_in_the_first_epoch(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        if minibatch.key.epoch == 0:
            release.wait(60)
        return minibatch

    pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2).transform(hang_in_the_first_epoch)
    with gf.DataLoader(pipe, num_workers=1, timeout=0.5) as loader:
        with pytest.raises(
            TimeoutError, match="graphfeed_0 is in MiniBatchTransformer, stage 2, mini-batch 0 of epoch"
        ):
            next(iter(loader))
        assert len(list(loader)) == 4
        release.set()


def test_the_pipeline_is_not_changed() -> None:
    pipe = pipelines.heterogeneous()
    before = {id(stage): dict(vars(stage)) for stage in gf.traverse(pipe)}
    with gf.DataLoader(pipe, num_workers=2) as loader:
        list(loader)
    for stage in gf.traverse(pipe):
        now = {name: value for name, value in vars(stage).items() if name != "number"}
        assert all(before[id(stage)][name] is value for name, value in now.items())


def test_options_that_users_bring_change_no_mini_batch() -> None:
    pipe = pipelines.shuffled()
    expected = [digests(pipe.with_seed(4, epoch)) for epoch in range(2)]
    for options in ({"persistent_workers": False}, {"max_uva_threads": 1}):
        with gf.DataLoader(pipe, 2, seed=4, **options) as loader:
            assert [digests(loader), digests(loader)] == expected, options


def test_it_prints_its_plan_in_one_line() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()
    stages, pool, threads = "ItemSampler -> MiniBatchTransformer", ThreadPoolExecutor(1), "worker='thread'"
    assert repr(gf.DataLoader(pipe, 0, seed=4)) == f"DataLoader(main: {stages}, seed=4)"
    assert repr(gf.DataLoader(pipe, 2, seed=4)) == f"DataLoader(worker: {stages}, num_workers=2, {threads}, seed=4)"
    assert repr(gf.DataLoader(pipe, 2, seed=4, executor=pool)) == (
        f"DataLoader(worker: {stages}, num_workers=2, executor=ThreadPoolExecutor, seed=4)"
    )


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
