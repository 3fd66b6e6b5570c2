"""Tables of what is refused: a call, the kind of its error, and the words in it that users rely on."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Kind = type[Exception] | tuple[type[Exception], ...]
Refusal = tuple[Callable[[], object], Kind, str]
MOST_LETTERS = 300
"""An error is read in a terminal, below a traceback. The folder of a file may be as long as it is."""


def check_refused(table: Iterable[Refusal]) -> None:
    """Make each call of a table, a regular expression for the words of each error; tell of all that end otherwise."""
    wrong = []
    for call, kind, words in table:
        try:
            ended = f"returned {call()!r:.100}"
        except Exception as error:
            letters = len(re.sub(r"\S*/", "", str(error)))
            if isinstance(error, kind) and re.search(words, str(error)) and letters <= MOST_LETTERS:
                continue
            ended = f"raised {error!r}"
        wrong.append(f"{getattr(call, '__code__', call)}: {ended}, where {kind} {words!r} was expected")
    assert not wrong, "\n".join(wrong)


def check_all_refused(
    read: Callable[[Any], object], values: Iterable[Any], words: str, kind: Kind = ValueError
) -> None:
    """Check that a function refuses each of some values in the same words."""
    check_refused((partial(read, value), kind, words) for value in values)
