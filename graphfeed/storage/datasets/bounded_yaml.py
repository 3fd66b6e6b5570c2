"""Reads YAML of plain values in bounded time and memory, whoever wrote the file."""

from pathlib import Path
from typing import Any

import yaml

from graphfeed.ops.process import regular_file

MOST_BYTES = 1 << 20
MOST_VALUES = 100_000
"""The most values of a file, those of an alias counted each time that it is used."""


class BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a file that would become much more than it is, before it does."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.num_values = 0
        self.sizes: dict[Any, int] = {}
        """How many values each finished node stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.peek_event(), self.num_values
        where = f"the value at line {event.start_mark.line + 1}"
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > 1 << 12:
            raise yaml.YAMLError(f"{where} has {len(event.value)} letters")
        self.count(1, event)  # before it is made: the tree of a whole file takes seconds
        node = super().compose_node(parent, index)
        # With all that lies inside of it.
        if not isinstance(event, yaml.AliasEvent):
            self.sizes[node] = self.num_values - before
        elif node in self.sizes:
            # An alias stands for all of these again: a few lines of aliases of aliases stand for billions.
            self.count(self.sizes[node] - 1, event)
        else:
            # An alias inside of what it names.
            raise yaml.YAMLError(f"{where} contains itself")
        return node

    def count(self, values: int, event: Any) -> None:
        self.num_values += values
        if self.num_values > MOST_VALUES:
            raise yaml.YAMLError(f"there are more than {MOST_VALUES} values up to line {event.start_mark.line + 1}")


def load_yaml(path: Path) -> Any:
    """Return the contents of a YAML file of plain values; no other objects are created.

    A file has at most 1 MiB and 100,000 values, or it is a ValueError. A value that stands for others by an alias
    counts as many as they are.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a description of a dataset has {MOST_BYTES} at most")
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            return yaml.load(file.read(), BoundedLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} can't be read as YAML: {error}") from error
    except (LookupError, AttributeError, TypeError) as error:  # of PyYAML's functions for tags, such as `!!int ""`
        raise ValueError(f"{path} can't be read as YAML: a value does not fit its tag ({error!r})") from error
    except RecursionError as error:
        raise ValueError(f"{path} can't be read as YAML: it has too many levels") from error
