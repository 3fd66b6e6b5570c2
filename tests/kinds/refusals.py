"""Tables of errors: a call, the type of its error, and the words of its message that users rely on."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

Kind = type[Exception] | tuple[type[Exception], ...]
Refusal = tuple[Callable[[], object], Kind, str]
MOST_LETTERS = 300
"""Messages are read in a terminal, below a traceback. The length of folder names does not count."""


def check_refused(table: Iterable[Refusal]) -> None:
    """Make each call of a table, with a regular expression for each message; report all calls that end differently."""
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
    """Check that a function rejects each of the values with the same message."""
    check_refused((partial(read, value), kind, words) for value in values)
