"""String representations of records of tensors, with all values or only with dtypes and shapes."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

LONGEST = 100
"""Maximum length of a value on one line, in characters. A longer list or dict has one line per element."""
MOST_PARTS = 8
"""Number of elements of a list or dict that are shown."""
BRACKETS: dict[type, tuple[str, str]] = {dict: ("{", "}"), list: ("[", "]"), tuple: ("(", ")")}
PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, np.generic)


def indent_continuation(text: str, width: int) -> str:
    return text.replace("\n", "\n" + " " * width)


def tensor_repr(name: str, values: Mapping[str, Any]) -> str:
    """Return a record as a string, with each element of a list on its own line.

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


def shapes_repr(name: str, values: Mapping[str, Any]) -> str:
    """Return a record as a string, one field per line, with the dtypes and shapes of tensors instead of their values.

    Example:
        >>> print(shapes_repr("Point", {"x": torch.zeros(2, 3), "y": [1, "a"]}))
        Point(
          x=float32[2, 3],
          y=[1, 'a'],
        )
    """
    lines = "".join(f"  {field}={indent_continuation(shape_text(value), 2)},\n" for field, value in values.items())
    return f"{name}(\n{lines})" if lines else f"{name}()"


def shape_text(value: Any) -> str:
    """Return a short string: the dtype and shape of an array, or the first elements of a container."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return f"{text} on {value.device}" if isinstance(value, torch.Tensor) and not value.is_cpu else text
    if type(value) not in BRACKETS:
        # The repr of another object may be long, and slow to compute.
        is_record = is_dataclass(value)
        text = repr(value) if is_record or isinstance(value, PLAIN) else "\n"
        return text if "\n" not in text and (is_record or len(text) <= LONGEST) else f"{type(value).__name__}(...)"
    if type(value) is dict:
        parts = [f"{key!r}: {shape_text(part)}" for key, part in islice(value.items(), MOST_PARTS)]
    else:
        parts = [shape_text(part) for part in value[:MOST_PARTS]]
    if len(value) > MOST_PARTS:
        parts.append(f"... {len(value) - MOST_PARTS} more")
    left, right = BRACKETS[type(value)]
    line = f"{left}{', '.join(parts)}{right}"
    if len(line) <= LONGEST:
        return line
    return left + "".join(f"\n  {indent_continuation(part, 2)}," for part in parts) + f"\n{right}"
