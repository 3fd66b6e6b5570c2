from collections.abc import Iterator
from typing import Any

import pytest

from graphfeed import Datapipe
from graphfeed.loader.progress import Progress


class Digested(Datapipe):
    """A source whose order has some digest."""

    digest: str

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def digest_order(self) -> str:
        return self.digest


class Plain(Datapipe):
    """A stage that reads from others."""

    datapipes: tuple[Datapipe, ...] = ()


def test_the_digests_of_all_sources_are_noted_and_none_without_such_a_source() -> None:
    progress = Progress(0, 0)
    progress.note_order(Plain())
    assert progress.order is None
    progress.note_order(Plain((Digested("a"), Digested("b"))))
    assert progress.order == "a b"


def test_an_epoch_that_begins_anew_may_have_any_order() -> None:
    progress = Progress(0, 0, order="a")
    progress.note_order(Digested("b"))
    assert progress.order == "b"


def test_another_order_in_the_middle_of_an_epoch_is_refused() -> None:
    progress = Progress(2, 3, order="a")
    with pytest.raises(ValueError, match="another order of epoch 2 than the one in state_dict"):
        progress.note_order(Digested("b"))
    assert progress.order == "a"
    progress.note_order(Digested("a"))
