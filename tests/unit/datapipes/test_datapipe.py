"""The properties of a stage, and its fields: each wrong value raises an error that names the field."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes import Source
from tests.kinds.refusals import MOST_LETTERS
from tests.kinds.stages import (
    BUILDERS,
    HERE,
    USERS,
    ByFields,
    ByInit,
    ByMethod,
    Chained,
    Join,
    Odd,
    make_items,
    make_join,
    seeds_in,
    seeds_of,
)


def in_a_copy(stage: gf.Datapipe) -> gf.Datapipe:
    """Change every stage, like a rule that touches all of them."""
    return stage.changed()


def test_a_stage_of_ones_own_does_its_work() -> None:
    assert seeds_in(USERS["by method"]()) == [[5, 6], [7, 8], [9, 10], [11, 12], [13, 14]]
    assert seeds_in(USERS["by fields"]()) == [[10, 11], [12, 13], [14, 15], [16, 17], [18, 19]]
    assert seeds_in(USERS["by init"]()) == seeds_in(USERS["by method"]())
    assert seeds_in(USERS["in pairs"]()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 8, 9]]
    assert seeds_in(USERS["odd"]()) == [[2, 3], [6, 7]]
    assert seeds_in(USERS["join"]())[0] == [100, 101, 200, 201]
    assert seeds_in(USERS["chained"]()) == [[0, 1], [2, 3], [50, 51], [52, 53]]


def test_with_seed_reaches_every_source() -> None:
    pipe = Chained((make_items(8, shuffle=True), make_items(8, shuffle=True)))
    result = pipe.with_seed(3, epoch=2, start=1)
    for batch in result:
        assert (batch.key.seed, batch.key.epoch) == (3, 2)
    assert [batch.key.index for batch in result] == [1, 2, 3] * 2
    assert [stage.seed for stage in gf.find(pipe, gf.ItemSampler)] == [None, None]  # type: ignore[attr-defined]


def test_subclasses_of_stages_of_ones_own() -> None:
    class More(ByFields):
        extra: int = 10

        def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
            return gf.MiniBatch(seeds=seeds_of(super().__call__(minibatch)) + self.extra)

    class Other(ByMethod):
        def _work(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
            return gf.MiniBatch(seeds=seeds_of(minibatch) * self.by)

    assert seeds_in(More(make_items(), 5, extra=20))[0] == [25, 26]
    other: Any = Other
    assert seeds_in(other(make_items(), 5).rewrite(in_a_copy))[0] == [0, 5]


def test_inputs_are_the_fields_that_are_stages() -> None:
    items = make_items()
    other = ByInit(items, 1)
    assert items.inputs == ()
    assert other.inputs == (items,)
    assert Join(items, other).inputs == (items, other)
    assert Chained((items, other, items)).inputs == (items, other, items)
    assert Odd([1, 2]).inputs == ()


def test_sharing_is_kept() -> None:
    result = make_join().rewrite(in_a_copy)
    assert isinstance(result, Join)
    (left,), (right,) = result.left.inputs, result.right.inputs
    assert left is right


def test_a_rule_sees_each_stage_once_and_its_inputs_before() -> None:
    seen: list[gf.Datapipe] = []

    def note(stage: gf.Datapipe) -> gf.Datapipe:
        assert all(any(source is other for other in seen) for source in stage.inputs)
        seen.append(stage)
        return stage

    make_join().rewrite(note)
    assert [type(stage) for stage in seen] == [gf.ItemSampler, ByFields, ByMethod, Join]


def test_a_stage_inside_a_tuple_is_rewritten() -> None:
    pipe = Chained((make_items(4), make_items(6)))
    result = pipe.rewrite(lambda stage: ByInit(stage, 7) if isinstance(stage, gf.ItemSampler) else stage)
    assert isinstance(result, Chained)
    assert [type(part) for part in result.parts] == [ByInit, ByInit]
    assert seeds_in(result)[0] == [7, 8]


def test_changing_a_field_changes_that_alone() -> None:
    stage = ByFields(make_items(), 5, again=2)
    result = stage.changed(by=6)
    assert (result.by, result.again, result.datapipe) == (6, 2, stage.datapipe)
    assert (stage.by, stage.again) == (5, 2)


def test_stages_are_found_by_class_base_or_protocol() -> None:
    pipe = make_join()
    assert gf.find(pipe, ByFields) == [pipe.left]
    assert gf.find(pipe, gf.Transform) == [pipe.left, pipe.right]
    assert gf.find(pipe, gf.MiniBatchTransformer) == [pipe.right]
    assert [type(stage) for stage in gf.find(pipe, Source)] == [gf.ItemSampler]
    assert gf.find(pipe, gf.CopyTo) == []


def test_a_stage_is_replaced_in_a_copy() -> None:
    pipe = make_join()
    result = gf.replace(pipe, pipe.left, ByInit(pipe.left, 1000))
    assert seeds_in(result)[0] == [1100, 1101, 200, 201]
    assert seeds_in(pipe)[0] == [100, 101, 200, 201]
    assert isinstance(result, Join)
    assert result.right is pipe.right


def test_a_source_that_two_share_is_replaced_for_both() -> None:
    pipe = make_join()
    (source,) = gf.find(pipe, gf.ItemSampler)
    result = gf.replace(pipe, source, make_items(4, batch_size=1))
    assert seeds_in(result) == [[100 + seed, 200 + seed] for seed in range(4)]
    assert len(gf.find(result, gf.ItemSampler)) == 1


ODD: list[Any] = [
    object(), "text", "x" * 1000, b"x", -1, 1.5, float("nan"), 1 << 100, None, True, [], {}, (1, "a"), [None], {"a": 1},
    range(3), ["x" * 1000] * 9, {"x" * 99: "y" * 1000}, [[1] * 9] * 9, torch.ones(2, 2), torch.ones(10_000), np.ones(2),
]  # fmt: skip
KINDS = (TypeError, ValueError, IndexError, KeyError)
NAMES_OF_ATTRIBUTES = "prob_name", "probs_name", "node_timestamp_attr_name", "edge_timestamp_attr_name"
CALLED = dict.fromkeys(NAMES_OF_ATTRIBUTES, "attribute")
"""How errors call what no attribute of the graph has the name of."""


def given(stage: gf.Datapipe) -> dict[str, Any]:
    """Return the arguments of a stage's constructor."""
    return {name: getattr(stage, name) for name in inspect.signature(type(stage)).parameters}


def refusal(kind: Any, values: dict[str, Any]) -> Exception | None:
    """Create a stage and its first mini-batch. Return the error, if there is one."""
    try:
        next(iter(kind(**values)), None)
    except Exception as error:
        return error
    return None


def is_clear(error: Exception, name: str) -> bool:
    """Return whether an error has a usual type and names a field in a few words."""
    text = str(error)
    named = name in text or CALLED.get(name, name) in text
    return isinstance(error, KINDS) and named and len(text) <= MOST_LETTERS


@pytest.mark.filterwarnings("ignore")
def test_a_value_is_taken_or_refused_by_a_short_error_that_names_its_field() -> None:
    wrong = []
    for kind in HERE:
        values = given(BUILDERS[kind]())
        for name in values:
            for odd in ODD:
                if name == "datapipe" and hasattr(odd, "__iter__"):
                    continue  # user-defined stages may use other objects as mini-batches
                error = refusal(kind, values | {name: odd})
                if error is not None and not is_clear(error, name):
                    wrong.append(f"{kind.__name__}({name}={str(odd)[:40]}): {error!r}")
    assert not wrong, "\n".join(wrong)


def test_what_is_of_no_kind_is_refused_for_each_field() -> None:
    for kind in HERE:
        values = given(BUILDERS[kind]())
        for name in values:
            assert refusal(kind, values | {name: object()}) is not None, (kind, name)
