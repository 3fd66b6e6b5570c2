"""A stage can't change after its construction: copies of it run, in which the change would be lost."""

import copy
import pickle
import threading
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any

import pytest

import graphfeed as gf
from tests.kinds.stages import ByFields, ByInit, ByMethod, make_items, seeds_in


class CountsByInit(gf.Transform):
    """Counts in itself."""

    def __init__(self, datapipe: gf.Datapipe) -> None:
        super().__init__(datapipe)
        self.n = 0

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        self.n += 1
        return minibatch


class CountsByMethod(gf.MiniBatchTransformer):
    """Counts in itself, in a method that it passes to its base."""

    def __init__(self, datapipe: gf.Datapipe) -> None:
        self.n = 0
        super().__init__(datapipe, self.work)

    def work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        self.n += 1
        return minibatch


class CountsByFields(gf.Transform):
    """Counts in a field."""

    n: int = 0

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        self.n += 1  # type: ignore[misc]
        return minibatch


class Inner(CountsByInit):
    """Sets attributes before and after its base does."""

    def __init__(self, datapipe: gf.Datapipe) -> None:
        self.before = 1
        super().__init__(datapipe)
        self.after = 2


class WithoutLock:
    """Pickles without its lock, and creates a new one when it is unpickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.lock = threading.Lock()


class Locks(WithoutLock, gf.Transform):
    """Gets its state from a base that is not a stage."""

    def __init__(self, datapipe: gf.Datapipe) -> None:
        super().__init__(datapipe)
        self.lock = threading.Lock()

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        with self.lock:
            return minibatch


class LocksMore(Locks):
    """Adds to the state of its base."""

    @cached_property
    def table(self) -> list[int]:
        return [5]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.arrived = True


class LocksByFields(gf.Transform):
    """Doesn't define `__init__`."""

    n: int = 0

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch

    __getstate__ = WithoutLock.__getstate__
    __setstate__ = WithoutLock.__setstate__


def test_counting_in_a_stage_is_an_error_that_names_the_ways_out() -> None:
    kinds: list[Any] = [CountsByInit, CountsByMethod, CountsByFields, Inner]
    for kind in kinds:
        pipe = kind(make_items())
        message = rf"can't set 'n' of an? {kind.__name__}: .* count in the loop .* functools.cached_property"
        for runs in (pipe, gf.DataLoader(pipe, num_workers=0), gf.DataLoader(pipe, num_workers=2)):
            with pytest.raises(FrozenInstanceError, match=message):
                list(runs)
        assert pipe.n == 0


def test_a_stage_that_was_made_can_be_changed_by_nobody() -> None:
    made: list[Any] = [ByFields(make_items(), 5), ByInit(make_items(), 5)]
    for stage in [*made, *map(copy.copy, made), *(one.changed(by=6) for one in made)]:
        with pytest.raises(
            FrozenInstanceError, match=r"to use another value, (make a copy with changed\(\w+=|create another stage)"
        ):
            stage.by = 7
        with pytest.raises(FrozenInstanceError, match="can't delete 'by'"):
            del stage.by
        with pytest.raises(TypeError, match=r"has no field 'bye'; did you mean 'by'"):
            stage.changed(bye=7)


def test_an_init_may_set_its_own_fields() -> None:
    class SetsItsSource(gf.Transform):
        def __init__(self, datapipe: Any) -> None:
            self.datapipe = datapipe  # type: ignore[misc]

        def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
            return minibatch

    assert seeds_in(SetsItsSource(make_items(3))) == [[0, 1], [2]]


def test_what_is_made_once_may_be_cached() -> None:
    class Opens(ByMethod):
        def __init__(self, datapipe: gf.Datapipe) -> None:
            super().__init__(datapipe, 5)

        @cached_property
        def table(self) -> list[int]:
            return [self.by]

        def _work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
            assert self.table == [5]
            return super()._work(minibatch)

    with gf.DataLoader(Opens(make_items(3)), num_workers=2) as loader:
        assert seeds_in(loader) == [[5, 6], [7]]


def test_a_stage_may_set_its_own_state_on_arrival_and_can_not_change_then() -> None:
    kinds: list[Any] = [Locks, LocksMore, LocksByFields]
    for kind in kinds:
        stage = kind(make_items(3))
        assert getattr(stage, "table", [5]) == [5]
        for same in (copy.copy(stage), copy.deepcopy(stage), pickle.loads(pickle.dumps(stage))):
            assert same.lock is not getattr(stage, "lock", None)
            assert seeds_in(same) == [[0, 1], [2]]
            assert getattr(same, "table", [5]) == [5]
            assert vars(same).get("arrived", False) is (kind is LocksMore)
            with pytest.raises(FrozenInstanceError, match="can't set 'lock'"):
                same.lock = None


def test_worker_processes_get_a_stage_that_sets_its_own_state() -> None:
    with gf.DataLoader(LocksMore(make_items(3)), num_workers=1, worker="process") as loader:
        assert seeds_in(loader) == [[0, 1], [2]]


def test_a_name_that_every_stage_has_is_refused_for_something_else() -> None:
    own = {name for base in gf.Datapipe.__mro__[:5] for name in vars(base) if not name.startswith("_")}
    assert {"changed", "inputs", "number", "position", "traits", "with_inputs"} < own
    for name in own - {"estimate_size", "leave_run"}:
        words = rf"Own\.{name} must have another name: graphfeed uses it in every stage"
        for body in ({name: 3}, {name: lambda _: 3}, {"__annotations__": {name: int}}):
            with pytest.raises(TypeError, match=words):
                type("Own", (gf.Transform,), dict(body))

        def init(stage: Any, datapipe: Any, name: str = name) -> None:
            super(type(stage), stage).__init__(datapipe)
            setattr(stage, name, 3)

        with pytest.raises(AttributeError, match=words):
            type("Own", (gf.Transform,), {"__init__": init})(make_items())


def test_names_of_traits_are_free_for_fields() -> None:
    class Own(gf.Transform):
        draws: int
        inserted: int
        foreign: int = 3

    assert not Own(make_items(), 1, 2).traits.draws
    assert (Own(make_items(), 1, 2).draws, Own(make_items(), 1, 2).inserted) == (1, 2)
