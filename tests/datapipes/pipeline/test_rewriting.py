from typing import Any

import pytest

import graphfeed as gf
from tests.datapipes.stages import (
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
)
from tests.digests import digests

each_kind = pytest.mark.parametrize("make", USERS.values(), ids=USERS.keys())


def unchanged(stage: gf.Datapipe) -> gf.Datapipe:
    return stage


def in_a_copy(stage: gf.Datapipe) -> gf.Datapipe:
    """Change every stage, as a rule that touches all of them would."""
    return stage.changed()


def test_inputs_are_the_fields_that_are_stages() -> None:
    items = make_items()
    other = ByInit(items, 1)
    assert items.inputs == ()
    assert other.inputs == (items,)
    assert Join(items, other).inputs == (items, other)
    assert Chained((items, other, items)).inputs == (items, other, items)
    assert Odd([1, 2]).inputs == ()


@each_kind
def test_nothing_changes_where_a_rule_changes_nothing(make: Any) -> None:
    pipe = make()
    assert pipe.rewrite(unchanged) is pipe
    assert pipe.with_inputs(unchanged) is pipe


@each_kind
def test_a_rewritten_pipeline_is_another_and_the_given_one_stays(make: Any) -> None:
    pipe = make()
    stages = gf.traverse(pipe)
    expected = digests(pipe)
    before = [dict(vars(stage)) for stage in stages]
    result = pipe.rewrite(in_a_copy)
    assert digests(result) == expected
    assert not {id(stage) for stage in gf.traverse(result)} & {id(stage) for stage in stages}
    assert gf.traverse(pipe) == stages
    assert [dict(vars(stage)) for stage in stages] == before


def test_a_method_that_was_handed_over_is_the_copys_own() -> None:
    pipe = ByMethod(make_items(), 5)
    result = pipe.changed(by=50)
    assert seeds_in(result)[0] == [50, 51]
    assert seeds_in(pipe)[0] == [5, 6]


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
