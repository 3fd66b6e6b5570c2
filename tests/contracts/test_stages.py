"""Laws for every stage, of the library and of users: each test loops over all stages, and names one that fails."""

import copy
import inspect
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader

import graphfeed as gf
from graphfeed.datapipes.pipeline.fluent import find_stage, list_names
from graphfeed.ops import Key
from graphfeed.testing import check_stage
from tests.kinds.digests import digest, digests
from tests.kinds.stages import ALL, BATCHES, BUILDERS, HERE, USERS, with_torch_workers

SEED = 11
BASES = {gf.Datapipe, gf.FanoutSampler, gf.NegativeSampler, gf.SubgraphSampler, gf.TemporalSampler, gf.Transform}
SPEED = {"overlap_fetch": True, "non_blocking": True}
"""Options that only affect the speed."""


def stages() -> set[type]:
    """Return the stages for users: the public ones, and those with a fluent name."""
    public = {getattr(gf.datapipes, name) for name in gf.datapipes.__all__}
    named = {find_stage(name) for name in list_names()}
    found = {kind for kind in public | named if inspect.isclass(kind) and issubclass(kind, gf.Datapipe)}
    return {kind for kind in found if kind.__module__.startswith("graphfeed.")} - BASES


def seeded(name: str, epoch: int = 0, start: int = 0) -> gf.Datapipe:
    return ALL[name]().with_seed(SEED, epoch, start)


@cache
def expected(name: str) -> list[str]:
    """Return the mini-batches of an epoch, computed inline and without a loader."""
    return digests(seeded(name))


def transforms() -> dict[str, Any]:
    """Return pipelines whose last stage maps one mini-batch to one."""
    made = {name: seeded(name) for name in ALL}
    return {name: pipe for name, pipe in made.items() if isinstance(pipe, gf.Transform)}


def test_every_stage_is_held_to_it() -> None:
    assert set(BUILDERS) == stages()
    for kind in HERE:
        assert type(BUILDERS[kind]()) is kind
        assert len(set(expected(kind.__name__))) == BATCHES, kind


def test_each_passes_the_check_that_users_have_and_leaves_torch_s_generator() -> None:
    """The same when iterated twice, pickled small, with any number of workers, resumed in the middle."""
    before = torch.get_rng_state()
    for name in ALL:
        pipe = ALL[name]()
        unseeded = digests(pipe)
        try:
            check_stage(pipe)
        except AssertionError as error:
            error.add_note(name)
            raise
        assert digests(pipe) == unseeded, name
        if name not in USERS:
            assert len(pipe) == BATCHES, name
    assert torch.equal(torch.get_rng_state(), before)


def test_two_iterators_of_one_pipeline_do_not_meet() -> None:
    for name in ALL:
        pipe = seeded(name)
        one, two = iter(pipe), iter(pipe)
        first = digest(next(one))
        assert digests(two) == [first, *digests(one)] == expected(name), name


def test_a_mini_batch_depends_on_no_other_and_the_given_one_stays_as_it_is() -> None:
    for name, stage in transforms().items():
        sources = list(stage.datapipe)
        before = digests(sources)
        assert digests(map(stage, reversed(sources)))[::-1] == expected(name), name
        if name != "Waiter":  # which lets the mini-batch itself wait
            assert digests(sources) == before, name


def with_key(minibatch: Any, key: Key) -> Any:
    """Return a copy of a mini-batch, with attributes that are not fields, and another key."""
    result = copy.copy(minibatch)
    result.key = key
    return result


def test_draws_follow_each_part_of_the_key() -> None:
    for name, stage in transforms().items():
        if stage.traits.draws:
            first = next(iter(stage.datapipe))
            keys = [Key(0, 0, 0), Key(1, 0, 0), Key(0, 1, 0), Key(0, 0, 1)]
            made = [digest(replace(stage(with_key(first, key)), key=None)) for key in keys]
            assert len(set(made)) == len(keys), name


def test_stages_in_a_row_draw_apart() -> None:
    """An additional stage without draws does not change the draws of others."""
    for name, stage in transforms().items():
        if stage.traits.draws:
            first = next(iter(stage.datapipe))
            between = stage.changed(datapipe=stage.datapipe.transform())
            after = stage.changed(datapipe=stage)
            same, same_too, other = (digest(one(first)) for one in (stage, between, after))
            assert same == same_too != other, name


def test_options_for_speed_change_nothing() -> None:
    for kind in HERE:
        pipe = BUILDERS[kind]().with_seed(SEED)
        options = {name: value for name, value in SPEED.items() if name in inspect.signature(kind).parameters}
        if options:
            assert digests(pipe.changed(**options)) == expected(kind.__name__), kind


def test_it_can_be_copied() -> None:
    for name in ALL:
        assert digests(copy.copy(seeded(name))) == digests(copy.deepcopy(seeded(name))) == expected(name), name


def test_it_prints_in_few_words() -> None:
    for name in ALL:
        text = repr(ALL[name]())
        assert f"{type(ALL[name]()).__name__}(" in text, name
        assert "Sampler(item_set=" in text or "IterableSource(iterable=" in text, name
        assert " at 0x" not in text, name
        assert len(text) < 500, name


def test_rewriting_makes_another_pipeline_or_leaves_it_as_it_is() -> None:
    for name in ALL:
        pipe = seeded(name)
        before = [dict(vars(stage)) for stage in gf.traverse(pipe)]
        copied = pipe.rewrite(lambda stage: stage.changed())
        assert pipe.rewrite(lambda stage: stage) is pipe.with_inputs(lambda stage: stage) is pipe, name
        assert digests(copied) == expected(name), name
        assert not set(map(id, gf.traverse(copied))) & set(map(id, gf.traverse(pipe))), name
        assert [dict(vars(stage)) for stage in gf.traverse(pipe)] == before, name


def test_it_starts_anywhere() -> None:
    for kind in HERE:
        for start in (3, BATCHES):
            pipe = seeded(kind.__name__, start=start)
            assert digests(pipe) == expected(kind.__name__)[start:], kind
            assert len(pipe) == BATCHES, kind


def test_another_epoch_is_another() -> None:
    """Only the keys distinguish the epochs of a source with a fixed order."""
    for name in ALL:
        other: Any = list(seeded(name, epoch=1))
        assert not set(digests(other)) & set(expected(name)), name
        if name != "ToPyGData":
            assert {batch.key.epoch for batch in other} == {1}, name


@with_torch_workers
def test_torch_s_data_loader_takes_it_and_its_workers_share_the_mini_batches() -> None:
    """If each depends only on its index; a stage that merges two mini-batches is given every other one."""
    for name in ALL:
        assert digests(TorchLoader(seeded(name), batch_size=None)) == expected(name), name
    for name in ("ItemSampler", "DistributedItemSampler", "IterableSource", "by method", "by init", "join"):
        loader: Any = TorchLoader(seeded(name), batch_size=None, num_workers=2)
        assert sorted(digests(loader)) == sorted(expected(name)), name
