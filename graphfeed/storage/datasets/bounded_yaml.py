"""Read YAML with plain values in bounded time and memory, even from an untrusted file."""

from functools import cache
from pathlib import Path
from typing import Any

from graphfeed.ops.process import regular_file

MOST_BYTES = 1 << 20
MOST_VALUES = 100_000
"""Maximum number of values in a file. The values of an alias count each time that it is used."""


@cache
def loader_class() -> Any:
    """Return a loader that rejects a file that would expand to much more than its size, before it does."""
    import yaml  # noqa: PLC0415 - only data sets need it, and importing it takes a tenth of `import graphfeed`

    class BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.num_values = 0
            self.sizes: dict[Any, int] = {}
            """Number of values in each finished node."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            event, before = self.peek_event(), self.num_values
            where = f"the value at line {event.start_mark.line + 1}"
            if isinstance(event, yaml.ScalarEvent) and len(event.value) > 1 << 12:
                raise yaml.YAMLError(f"{where} has {len(event.value)} letters")
            self.count(1, event)  # before it is built: the tree of a whole file takes seconds
            node = super().compose_node(parent, index)
            # Including all nested values.
            if not isinstance(event, yaml.AliasEvent):
                self.sizes[node] = self.num_values - before
            elif node in self.sizes:
                # An alias repeats all of these: a few lines of aliases of aliases can stand for billions.
                self.count(self.sizes[node] - 1, event)
            else:
                # An alias inside of the value that it refers to.
                raise yaml.YAMLError(f"{where} contains itself")
            return node

        def count(self, values: int, event: Any) -> None:
            self.num_values += values
            if self.num_values > MOST_VALUES:
                raise yaml.YAMLError(f"there are more than {MOST_VALUES} values up to line {event.start_mark.line + 1}")

    return BoundedLoader


def load_yaml(path: Path) -> Any:
    """Return the contents of a YAML file with plain values. No other objects are created.

    A file may have at most 1 MiB and 100,000 values; otherwise a ValueError is raised. An alias counts as many values
    as it stands for.
    """
    import yaml  # noqa: PLC0415

    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; a description of a dataset has {MOST_BYTES} at most")
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            return yaml.load(file.read(), loader_class())
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} can't be read as YAML: {error}") from error
    except (LookupError, AttributeError, TypeError) as error:  # from PyYAML's functions for tags, such as `!!int ""`
        raise ValueError(f"{path} can't be read as YAML: a value does not fit its tag ({error!r})") from error
    except RecursionError as error:
        raise ValueError(f"{path} can't be read as YAML: it has too many levels") from error
