"""The text of a record with tensors: a field a line, aligned."""

from collections.abc import Mapping
from typing import Any


def shift(text: str, width: int) -> str:
    """Indent all lines of a text but its first."""
    return text.replace("\n", "\n" + " " * width)


def show(name: str, values: Mapping[str, Any]) -> str:
    """Return a record as text; the elements of a list have a line each.

    Example:
        >>> print(show("Point", {"x": [1, 2], "y": 3}))
        Point(x=[1,
                 2],
              y=3,
        )
    """
    width = len(name) + 1
    lines = []
    for field, value in values.items():
        start = width + len(field) + 1
        parts = [shift(str(part), start + 1) for part in value] if isinstance(value, list) else []
        text = f"[{(',' + chr(10) + ' ' * (start + 1)).join(parts)}]" if parts else shift(str(value), start)
        lines.append(f"{field}={text},\n")
    return f"{name}({(' ' * width).join(lines)})"
