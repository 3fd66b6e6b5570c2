"""Tables of what is refused: a call, the kind of its error, and the words in it that users rely on."""

import re
from collections.abc import Callable, Iterable

Refusal = tuple[Callable[[], object], type[Exception], str]
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
        wrong.append(f"{getattr(call, '__code__', call)}: {ended}, where {kind.__name__} {words!r} was expected")
    assert not wrong, "\n".join(wrong)
