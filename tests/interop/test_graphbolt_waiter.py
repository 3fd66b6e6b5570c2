from typing import Any

import pytest

import graphfeed as gf
from graphfeed.datapipes.sources.iterable_source import IterableSource


class Task:
    def __init__(self) -> None:
        self.waited = 0

    def wait(self) -> None:
        self.waited += 1


def test_each_is_waited_for_and_passed_on() -> None:
    tasks: list[Any] = [Task(), Task()]
    assert list(IterableSource(tasks).wait()) == tasks
    assert [task.waited for task in tasks] == [1, 1]


def test_what_cannot_be_waited_for_is_named() -> None:
    pipe: Any = IterableSource([gf.MiniBatch()])
    with pytest.raises(TypeError, match=r"a MiniBatch arrived that has no wait\(\); leave wait\(\) out"):
        list(pipe.wait())
