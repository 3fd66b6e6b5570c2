"""Traits of stages: arguments of the class statement, and attributes of a stage."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.datapipes.pipeline import Traits

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/own-stage.md"
MAIN = gf.Placement.MAIN


class Counts(gf.Transform, runs_in=MAIN, draws=True, keeps_size=True, seeded=False):
    """A stage that says all that one of a user may."""


def source() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)


def test_the_how_to_describes_each_trait() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE) == [field.name for field in fields(Traits)]


def test_a_subclass_has_the_traits_of_its_base_but_is_seeded_unless_it_says_no() -> None:
    class Same(Counts):
        pass

    class Less(Counts, draws=False, seeded=False):
        pass

    inherited = Traits(MAIN, draws=True, seeded=True, one_to_one=True, keeps_size=True, own_loop=False)
    assert Same(source()).traits == inherited
    assert Counts(source()).traits == replace(inherited, seeded=False)
    assert Less(source()).traits == replace(inherited, draws=False, seeded=False)


def test_a_loop_runs_in_the_main_process_unless_its_class_says_otherwise() -> None:
    class Loop(gf.Transform):
        def __iter__(self) -> Iterator[Any]:
            yield from self.datapipe

    class Anywhere(gf.Transform, runs_in=gf.Placement.AUTO, one_to_one=True):
        def __iter__(self) -> Iterator[Any]:
            yield from self.datapipe

    assert Loop(source()).traits == Traits(MAIN)
    assert Anywhere(source()).traits == Traits(one_to_one=True)


def test_an_attribute_sets_a_trait_of_one_stage() -> None:
    stage = Counts(source())
    assert stage.changed(runs_in=gf.Placement.WORKER).traits.runs_in is gf.Placement.WORKER
    assert stage.traits.runs_in is MAIN
    sampled = source().sample_neighbor(gf.from_coo(([0], [1]), 4), [1], overlap_fetch=True)
    assert sampled.traits.overlap_fetch
    assert not sampled.changed(overlap_fetch=False).traits.overlap_fetch


def test_a_trait_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"class Wrong\(\) has no argument 'draw'; did you mean 'draws'"):

        class Wrong(gf.Transform, draw=True):
            pass


def test_class_attributes_of_the_release_before_are_read_with_a_warning() -> None:
    words = r"write class Before\(\.\.\., draws=True, runs_in=Placement\.MAIN\) instead of setting needs_key, runs_in"
    with pytest.warns(DeprecationWarning, match=words) as caught:

        class Before(gf.Transform):
            runs_in = MAIN
            needs_key = True
            foreign: bool = False  # a field

    assert Path(caught[0].filename) == Path(__file__)
    assert Before(source()).traits == Traits(MAIN, draws=True, one_to_one=True, own_loop=False)
    with pytest.warns(DeprecationWarning, match=r"write class Ahead\(\.\.\., overlap_fetch=True\) instead of"):

        class Ahead(gf.Transform):
            overlap_fetch = True

    assert Ahead(source()).traits.overlap_fetch
