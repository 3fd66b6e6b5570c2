"""Tables of what is refused: a call, the kind of its error, and the words in it that users rely on."""

import re
from collections.abc import Callable, Iterable

Refusal = tuple[Callable[[], object], type[Exception], str]
MOST_LETTERS = 300
"""An error is read in a terminal, below a traceback."""


def check_refused(table: Iterable[Refusal]) -> None:
    """Make each call of a table, a regular expression for the words of each error; tell of all that end otherwise."""
    wrong = []
    for call, kind, words in table:
        try:
            ended = f"returned {call()!r:.100}"
        except Exception as error:
            if isinstance(error, kind) and re.search(words, str(error)) and len(str(error)) <= MOST_LETTERS:
                continue
            ended = f"raised {error!r}"
        wrong.append(f"line {call.__code__.co_firstlineno}: {ended}, where {kind.__name__} {words!r} was expected")
    assert not wrong, "\n".join(wrong)
