import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.stages import ByFields, make_items, seeds_in, shifted


class Failing(gf.Transform):
    """Fails at one mini-batch."""

    at: int

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        assert minibatch.key is not None
        if minibatch.key.index == self.at:
            raise ArithmeticError("no")
        return minibatch


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def test_a_failure_is_noted_with_stage_mini_batch_and_worker() -> None:
    with pytest.raises(ArithmeticError, match="no") as caught:
        list(Failing(make_items().transform(), 3).with_seed(0, epoch=2))
    assert notes(caught.value) == ["in Failing, stage 3, mini-batch 3 of epoch 2, in the main thread"]


def test_a_failure_without_a_key_is_noted_without_a_mini_batch() -> None:
    class Broken(gf.Transform):
        def __call__(self, minibatch: Any) -> Any:
            raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no") as caught:
        list(Broken(gf.IterableSource([1])))
    assert notes(caught.value) == ["in Broken, stage 2, in the main thread"]


def test_any_iterable_becomes_a_source() -> None:
    sources: list[Any] = [[1, 2], (1, 2), range(1, 3)]
    for source in sources:
        stage: Any = gf.Transform(source)
        assert type(stage.datapipe) is gf.IterableSource
        assert [int(part) for part in stage.datapipe] == [1, 2]
        assert len(stage) == 2


class EvenOnly(gf.MiniBatchTransformer):
    """Has its own loop, like a user's filter."""

    def __iter__(self) -> Iterator[gf.MiniBatch]:
        yield from (batch for batch in self.datapipe if batch.key.index % 2 == 0)


def test_a_stage_that_loops_itself_is_run_by_its_loop() -> None:
    pipe = ByFields(EvenOnly(ByFields(make_items(7), 10)), 100)
    choices: list[dict[str, Any]] = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 1, "worker": "process"}]
    for options in choices:
        with gf.DataLoader(pipe, seed=0, **options) as loader:
            assert seeds_in(loader) == [[110, 111], [114, 115]]
            with pytest.raises(TypeError, match="the number of mini-batches of EvenOnly is unknown"):
                len(loader)
            loader.load_state_dict({"seed": 0, "epoch": 0, "index": 1})
            assert seeds_in(loader) == [[114, 115]]


class ReturnsNothing(gf.Transform):
    def __call__(self, minibatch: gf.MiniBatch) -> None:
        minibatch.to("cpu")


class Exits(gf.Transform):
    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        raise SystemExit(f"with {minibatch.seeds.tolist()}")


def test_an_exception_of_any_class_says_where_it_came_from() -> None:
    wrong: list[tuple[Any, type[BaseException], str]] = [
        (ReturnsNothing, TypeError, "ReturnsNothing returned None; return the mini-batch"),
        (Exits, SystemExit, "with"),
    ]
    for (kind, error, words), num_workers in product(wrong, (0, 1)):
        with gf.DataLoader(kind(make_items()), num_workers, seed=0) as loader:
            with pytest.raises(error, match=words) as caught:
                next(iter(loader))
            assert caught.value.__notes__[0].startswith(f"in {kind.__name__}, stage 2, mini-batch 0 of epoch 0")


class Replaces(gf.Transform):
    """Returns a mini-batch with the same fields."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return replace(minibatch, seeds=minibatch.seeds + 1)


@pytest.mark.filterwarnings("ignore::graphfeed.datapipes.sources.minibatcher.ItemNameWarning")
def test_attributes_that_are_no_fields_stay() -> None:
    items = gf.ItemSet((torch.arange(4), torch.arange(4.0)), names=("seeds", "weight"))
    with gf.DataLoader(Replaces(gf.ItemSampler(items, batch_size=2)), num_workers=2) as loader:
        assert [vars(minibatch)["weight"].tolist() for minibatch in loader] == [[0.0, 1.0], [2.0, 3.0]]


class OwnInit(gf.Transform):
    """Has a constructor that doesn't call the base's."""

    def __init__(self, datapipe: gf.Datapipe, name: str) -> None:
        vars(self)["name"] = name

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return minibatch


def test_a_constructor_that_forgets_the_base_s_is_told() -> None:
    stage = OwnInit(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2), "x")
    with pytest.raises(AttributeError, match=r"the field 'datapipe' of 'OwnInit' was not set: call super\(\)"):
        next(iter(stage))


def by_ten(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return shifted(minibatch, 10)


def nothing(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return None  # type: ignore[return-value]


class ByModule(torch.nn.Module):
    def forward(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        return shifted(minibatch, 10)


def test_any_function_of_a_mini_batch_is_a_stage() -> None:
    functions: list[Any] = [by_ten, ByModule(), lambda minibatch: shifted(minibatch, 10)]
    for function in functions:
        assert seeds_in(make_items(4).transform(function)) == [[10, 11], [12, 13]]
        assert seeds_in(gf.MiniBatchTransformer(make_items(4), function)) == [[10, 11], [12, 13]]


def test_what_is_no_mini_batch_is_named() -> None:
    with gf.DataLoader(make_items().transform(nothing), num_workers=2) as loader:
        with pytest.raises(
            TypeError, match=r"should be an instance of MiniBatch, but is None; return the .* graphfeed.Transform"
        ) as caught:
            list(loader)
        assert "in MiniBatchTransformer, stage 2, mini-batch 0 of epoch 0" in caught.value.__notes__[0]


def test_the_given_mini_batch_stays_where_it_is() -> None:
    (batch, *_) = pipelines.heterogeneous()
    before = copy.deepcopy(batch)
    stage = gf.CopyTo([batch], "meta")  # type: ignore[arg-type]
    moved = stage(batch)
    assert moved is not batch
    assert moved.input_nodes["user"].device.type == "meta"
    assert_same(batch, before)


def test_whatever_flows_is_moved() -> None:
    for device in ("meta", torch.device("meta")):
        moved = gf.CopyTo(gf.IterableSource([]), device)({"a": [torch.ones(2)], "b": ("text", torch.ones(1))})
        assert moved["a"][0].device.type == moved["b"][1].device.type == "meta"
        assert moved["b"][0] == "text"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named_when_it_runs() -> None:
    pipe = pipelines.homogeneous().copy_to("cuda")
    for run in (pipe, gf.DataLoader(pipe, 0), gf.DataLoader(pipe, 2)):
        with pytest.raises(RuntimeError, match=r"copy_to needs the device 'cuda', and torch .* finds no CUDA device"):
            next(iter(run))


def test_a_stage_that_loops_itself_may_know_its_length() -> None:
    class First(EvenOnly):
        def __iter__(self) -> Iterator[gf.MiniBatch]:
            yield next(iter(self.datapipe))

        def __len__(self) -> int:
            return 1

    assert len(First(make_items())) == len(gf.DataLoader(First(make_items()), num_workers=2)) == 1


class Numbers(gf.Datapipe[int]):
    """Counts, and records its progress."""

    seen: list[int]

    def __iter__(self) -> Iterator[int]:
        for number in range(5):
            self.seen.append(number)
            yield number


def test_a_buffer_reads_ahead_by_its_size() -> None:
    for size in (1, 3, 9):
        source = Numbers([])
        ahead = [(item, len(source.seen)) for item in gf.Bufferer(source, size)]
        assert ahead == [(number, min(number + 1 + size, 5)) for number in range(5)]
