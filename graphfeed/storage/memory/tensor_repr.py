"""The text of a record that holds tensors: one aligned field per line."""

from collections.abc import Mapping
from typing import Any


def indent_continuation(text: str, width: int) -> str:
    """Indent every line of a text except the first."""
    return text.replace("\n", "\n" + " " * width)


def tensor_repr(name: str, values: Mapping[str, Any]) -> str:
    """Return a record as text, with each element of a list on a line of its own.

    Example:
        >>> print(tensor_repr("Point", {"x": [1, 2], "y": 3}))
        Point(x=[1,
                 2],
              y=3,
        )
    """
    width = len(name) + 1
    lines = []
    for field, value in values.items():
        start = width + len(field) + 1
        if isinstance(value, list):
            text = indent_continuation(f"[{(',' + chr(10)).join(map(str, value))}]", start + 1)
        else:
            text = indent_continuation(str(value), start)
        lines.append(f"{field}={text},\n")
    return f"{name}({(' ' * width).join(lines)})"
