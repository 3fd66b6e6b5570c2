import pytest

import graphfeed as gf
from graphfeed.datapipes.datapipe import Source
from tests.datapipes.stages import ByFields, ByInit, ByMethod, Join, make_items, make_join, seeds_in


def test_each_stage_comes_once_and_after_its_inputs() -> None:
    pipe = make_join()
    assert [type(stage) for stage in gf.traverse(pipe)] == [gf.ItemSampler, ByFields, ByMethod, Join]
    assert gf.traverse(pipe)[-1] is pipe


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


def test_the_last_stage_can_be_replaced() -> None:
    pipe, other = make_join(), make_items()
    assert gf.replace(pipe, pipe, other) is other


def test_replacing_by_itself_changes_nothing() -> None:
    pipe = make_join()
    assert gf.replace(pipe, pipe.left, pipe.left) is pipe


def test_a_stage_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"ItemSampler is no stage of this pipeline; find\(\) returns those that are"):
        gf.replace(make_join(), make_items(), make_items())
