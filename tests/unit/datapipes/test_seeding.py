"""Draws of user-defined stages: the same with any workers, and without effect on other generators."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import graphfeed as gf
from tests.kinds.digests import assert_same, digest, digests
from tests.kinds.stages import make_items
from tests.unit.datapipes.test_pipeline_graph import Join

WATCHED_CALLS = 3
"""After so many calls that all drew from a shared generator, a stage is warned of."""
THREADS: dict[str, Any] = {"num_workers": 3}
PROCESSES: dict[str, Any] = {"num_workers": 2, "worker": "process"}
DISTRIBUTIONS: dict[Any, int] = {
    torch.distributions.Categorical: 1,
    torch.distributions.Gamma: 2,
    torch.distributions.Beta: 2,
    torch.distributions.Dirichlet: 1,
    torch.distributions.StudentT: 1,
    torch.distributions.VonMises: 2,
}
"""And how many parameters each has."""


def from_torch(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Draw with every torch function that accepts a generator."""
    half = torch.full((20,), 0.5)
    drawn = [
        torch.rand(3),
        torch.randn(20),
        torch.randint(9, (4,)),
        torch.randperm(7),
        torch.bernoulli(half),
        torch.normal(0.0, half),
        torch.multinomial(half, 3),
        torch.poisson(half),
        torch.empty(3).uniform_(),
        torch.empty(20).normal_(generator=None),
        torch.binomial(half * 8, half),
        *(kind(*[half] * count).sample() for kind, count in DISTRIBUTIONS.items()),
    ]
    return replace(minibatch, labels={str(place): value for place, value in enumerate(drawn)})


def from_all(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Draw from all global generators."""
    drawn = {
        "torch": torch.rand(3),
        "dropout": functional.dropout(torch.ones(20)),
        "numpy": torch.from_numpy(np.random.rand(3)),  # noqa: NPY002
        "python": torch.tensor([random.random()]),
    }
    return replace(minibatch, labels=drawn)


class Subclass(gf.Transform):
    """Draws in a subclass."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, indexes=torch.rand(4))


def drawn_by(pipe: gf.Datapipe, **options: Any) -> list[str]:
    with gf.DataLoader(pipe, seed=7, **options) as loader:
        return digests(loader)


def test_what_torch_draws_is_the_same_with_any_workers() -> None:
    pipe = Subclass(make_items(12).transform(from_torch)).buffer(2)
    expected = digests(pipe.with_seed(7))
    assert len(set(expected)) == 6
    torch.manual_seed(99)
    assert drawn_by(pipe, num_workers=0) == drawn_by(pipe, **THREADS) == drawn_by(pipe, **PROCESSES) == expected
    assert digests(pipe.with_seed(8)) != expected


def test_what_numpy_and_python_draw_is_the_same_inline_and_in_processes() -> None:
    pipe = make_items(6).transform(from_all)
    assert digests(pipe.with_seed(7)) == drawn_by(pipe, num_workers=0) == drawn_by(pipe, **PROCESSES)


def test_an_epoch_and_a_stage_have_draws_of_their_own() -> None:
    def keep(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, compacted_seeds=torch.rand(4))

    pipe = Subclass(make_items(4).transform(keep))
    first, second = pipe
    assert len({digest(value) for value in (first.indexes, first.compacted_seeds, second.indexes)}) == 3
    assert digests(pipe.with_seed(0, epoch=1)) != digests([first, second])


def test_the_branches_of_a_join_draw_apart_and_alike_with_any_workers() -> None:
    source = make_items(4)
    pipe: Any = Join(Subclass(source), Subclass(source))
    for num_workers in (0, 2):
        with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
            pairs = list(loader)
        assert_same(pairs, list(pipe.with_seed(0)))
    assert not any(torch.equal(left.indexes, right.indexes) for left, right in pairs)


def test_the_callers_generators_stay_as_they_are() -> None:
    def draw(pipe: gf.Datapipe | None) -> list[Any]:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        np.random.randn()  # noqa: NPY002
        if pipe is not None:
            list(pipe)
        return [torch.randn(3), np.random.randn(3), random.gauss(0, 1)]  # noqa: NPY002

    for function in (from_torch, from_all):
        assert_same(draw(make_items().transform(function)), draw(None))


@pytest.fixture
def other_bit_generator() -> Iterator[None]:
    """Give NumPy's global generator another bit generator."""
    module: Any = np.random  # which does not list them
    before = module.get_bit_generator()
    module.set_bit_generator(np.random.PCG64(1))
    yield
    module.set_bit_generator(before)


@pytest.mark.usefixtures("other_bit_generator")
def test_a_bit_generator_of_the_callers_choice_stays_as_it_is_and_is_watched() -> None:
    def draw(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=torch.from_numpy(np.random.rand(3)))  # noqa: NPY002

    pipe = make_items(2 * WATCHED_CALLS).transform(draw)
    np.random.seed(1)  # noqa: NPY002
    first = digests(pipe)
    after = np.random.rand()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert np.random.rand() == after  # noqa: NPY002
    assert digests(pipe) == first
    with gf.DataLoader(pipe, num_workers=1) as loader, pytest.warns(UserWarning, match="NumPy's global generator"):
        list(loader)
    assert drawn_by(make_items(6).transform(from_all), num_workers=0) == drawn_by(
        make_items(6).transform(from_all), **PROCESSES
    )


def test_what_runs_between_two_stages_draws_from_the_callers_generators() -> None:
    class Noise(gf.TorchBasedFeature):
        def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
            found.append(torch.rand(3))
            return super().read(ids)

    found: list[torch.Tensor] = []
    features = gf.BasicFeatureStore({("node", None, "x"): Noise(torch.zeros(9, 1))})
    pipe = make_items(9).transform(from_all).fetch_feature(features, node_feature_keys=["x"]).transform(from_all)
    torch.manual_seed(3)
    list(pipe)
    torch.manual_seed(3)
    assert_same(found, [torch.rand(3) for _ in found])


def test_a_stage_that_runs_a_pipeline_draws_what_it_would_without() -> None:
    def draw(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=torch.from_numpy(np.random.randn(3)))  # noqa: NPY002

    def draw_around(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        first = np.random.randn()  # noqa: NPY002
        list(make_items(4).transform(from_all))
        return replace(minibatch, labels=torch.tensor([first, *np.random.randn(2)]))  # noqa: NPY002

    assert digests(make_items(4).transform(draw_around)) == digests(make_items(4).transform(draw))


def test_a_stage_that_draws_from_nobody_elses_generator_may_say_so() -> None:
    class Own(Subclass, seeded=False):
        pass

    torch.manual_seed(5)
    (minibatch,) = Own(make_items(2))
    torch.manual_seed(5)
    assert_same(minibatch.indexes, torch.rand(4))


@pytest.mark.usefixtures("other_bit_generator")
def test_the_second_of_two_normals_that_the_caller_has_drawn_is_the_callers() -> None:
    def draw(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, labels=torch.from_numpy(np.random.randn(3)))  # noqa: NPY002

    found = []
    for count in (1, 2):
        state = {**np.random.get_state(legacy=False), "has_gauss": 0}  # noqa: NPY002
        np.random.set_state(state)  # noqa: NPY002
        np.random.randn(count)  # noqa: NPY002
        found.append(digests(make_items(2).transform(draw)))
    assert found[0] == found[1]


# Draws of the caller in the meantime may look like draws of the stage.
@pytest.mark.filterwarnings("ignore:torch's global generator was used each time")
def test_threads_leave_the_callers_generators_alone() -> None:
    pipe = make_items(20).transform(from_torch)
    torch.manual_seed(1)
    alone = torch.rand(10)
    torch.manual_seed(1)
    with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
        assert_same(torch.stack([torch.rand(()) for _ in loader]), alone)


def test_a_generator_of_ones_own_is_used_as_it_is() -> None:
    def draw(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        own = torch.Generator().manual_seed(minibatch.key.at(3))
        return replace(minibatch, labels=torch.rand(3, generator=own))

    pipe = make_items(4).transform(draw)
    own = torch.Generator().manual_seed(next(iter(pipe.with_seed(7))).key.at(3))
    assert_same(next(iter(pipe.with_seed(7))).labels, torch.rand(3, generator=own))
    assert drawn_by(pipe, **THREADS) == digests(pipe.with_seed(7))


RECURRENT = torch.nn.GRU(4, 4, num_layers=2, dropout=0.5)


@pytest.mark.parametrize(
    ("draw", "source"),
    [
        (lambda: np.random.rand(), "NumPy's global generator"),  # noqa: NPY002
        (random.random, "Python's random module"),
        (lambda: functional.dropout(torch.ones(9)), "torch's global generator"),
        (lambda: RECURRENT(torch.ones(3, 4)), "torch's global generator"),
    ],
    ids=["numpy", "python", "dropout", "recurrent"],
)
def test_what_threads_share_is_warned_of_once_with_the_ways_out(draw: Callable[[], Any], source: str) -> None:
    def work(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        draw()
        return minibatch

    message = rf"^{source} was used each time that .*work\) ran in a thread; .*generator.* worker='process'\) or num_w"
    pipe = make_items(2 * WATCHED_CALLS).transform(work)
    with gf.DataLoader(pipe, num_workers=1) as loader, pytest.warns(UserWarning, match=message) as found:
        list(loader)
    assert len(found) == 1


def draw_elsewhere(draw: Callable[[int], Any] = torch.rand) -> None:
    """Draw in a separate thread."""
    thread = threading.Thread(target=draw, args=(3,))
    thread.start()
    thread.join()


def test_a_stage_is_not_blamed_for_what_others_draw_now_and_then() -> None:
    for draw in (torch.rand, np.random.rand):
        calls = iter(range(100))

        def work(minibatch: gf.MiniBatch, draw: Any = draw, calls: Any = calls) -> gf.MiniBatch:
            if next(calls) < WATCHED_CALLS - 1:
                draw_elsewhere(draw)
            return minibatch

        drawn_by(make_items(4 * WATCHED_CALLS).transform(work), num_workers=1)  # a warning would be an error
        assert next(calls) == 2 * WATCHED_CALLS


def test_what_draws_nothing_gives_no_warning() -> None:
    def work(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        functional.dropout(torch.ones(9), training=False)
        torch.empty(3, device="meta").uniform_()
        return replace(minibatch, labels=torch.rand(3, dtype=torch.float64))

    pipe = make_items(4 * WATCHED_CALLS).transform(work)
    assert drawn_by(pipe, **THREADS) == digests(pipe.with_seed(7))


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_draws_on_a_gpu_are_the_same(num_workers: int) -> None:
    def work(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        drawn = torch.rand(3, device="cuda"), torch.rand(3, device="cuda", generator=minibatch.generator("cuda"))
        return replace(minibatch, labels=torch.stack(drawn))

    pipe = make_items(4).copy_to("cuda").transform(work)
    before = torch.cuda.get_rng_state()
    expected = digests(pipe.with_seed(7))
    assert drawn_by(pipe, num_workers=num_workers) == expected
    assert_same(torch.cuda.get_rng_state(), before)
