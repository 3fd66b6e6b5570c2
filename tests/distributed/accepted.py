"""Many values that one function refuses in the same words, as loops rather than cases."""

import re
from collections.abc import Callable, Iterable
from typing import Any


def accepted(
    read: Callable[[Any], object],
    values: Iterable[Any],
    words: str,
    error: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> list[str]:
    """Return those of some values, each with its place, that a function accepts, or refuses in other words."""
    found = []
    for place, value in enumerate(values):
        try:
            ended = f"returned {read(value)!r:.100}"
        except error as caught:
            if re.search(words, str(caught)) and len(str(caught)) <= 500:
                continue
            ended = f"raised {caught!r:.600}"
        found.append(f"{place}, {value!r:.100}: {ended}")
    return found
