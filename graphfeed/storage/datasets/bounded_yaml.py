"""Reads YAML of plain values in bounded time and memory, whoever wrote the file."""

from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 1 << 20
MOST_VALUES = 100_000
"""The most values of a file, those of an alias counted each time that it is used."""
LONGEST_SCALAR = 1 << 12


class BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a file that would become much more than it is, before it does."""

    num_composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node, if there are not too many yet: the tree of a whole file takes seconds to make."""
        self.num_composed += 1
        if self.num_composed > MOST_VALUES:
            line = self.peek_event().start_mark.line + 1
            raise yaml.YAMLError(f"there are more than {MOST_VALUES} values up to line {line}")
        return super().compose_node(parent, index)

    def get_single_node(self) -> Any:
        """Return the tree of the file, checked."""
        root = super().get_single_node()
        if root is not None:
            count_values(root, {})
        return root


def count_values(node: Any, counts: dict[Any, int | None]) -> int:
    """Return how many values a node stands for; a node in many places is visited once."""
    known = counts.setdefault(node, 0)
    if known is None:
        raise yaml.YAMLError(f"the value at line {node.start_mark.line + 1} contains itself")
    if known:
        return known
    counts[node] = None
    total = 1 + sum(count_values(part, counts) for part in parts_of(node))
    if total > MOST_VALUES:
        raise yaml.YAMLError(f"the value at line {node.start_mark.line + 1} stands for more than {MOST_VALUES} values")
    counts[node] = total
    return total


def parts_of(node: Any) -> list[Any]:
    """Return the nodes inside a node."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if len(node.value) > LONGEST_SCALAR:
        raise yaml.YAMLError(f"the value at line {node.start_mark.line + 1} has {len(node.value)} letters")
    return []


def load_yaml(path: Path) -> Any:
    """Return the contents of a YAML file of plain values; no other objects are created.

    A file has at most 1 MiB and 100,000 values. A value that stands for others by an alias counts as many as they are.

    Raises:
        ValueError: The file is not YAML, or too large.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a description of a dataset has {MOST_BYTES} at most")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), BoundedLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} can't be read as YAML: {error}") from error
    except (LookupError, AttributeError, TypeError) as error:  # of PyYAML's functions for tags, such as `!!int ""`
        raise ValueError(f"{path} can't be read as YAML: a value does not fit its tag ({error!r})") from error
    except RecursionError as error:
        raise ValueError(f"{path} can't be read as YAML: it has too many levels") from error
