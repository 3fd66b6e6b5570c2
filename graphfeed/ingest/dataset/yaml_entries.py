"""Tables of a specification as mappings of plain values, in YAML."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from graphfeed.ingest.dataset.split import Split
from graphfeed.ops.arguments import brief
from graphfeed.storage.datasets import Section


def as_entry(table: Any) -> dict[str, Any]:
    """Return the settings of a table that differ from the defaults, as plain values."""
    entry: dict[str, Any] = {}
    for setting in dataclasses.fields(table):
        value = getattr(table, setting.name)
        default = setting.default_factory() if setting.default_factory is not dataclasses.MISSING else setting.default
        if isinstance(value, Split):
            value = {key: part for key, part in dataclasses.asdict(value).items() if part is not None}
        elif isinstance(value, tuple):
            value = [os.fspath(part) for part in value]
            value = value[0] if len(value) == 1 else value or default
        elif isinstance(value, dict):
            value = {name: plain_value(part) for name, part in value.items()}
        of_row = getattr(table, "source_is_row", False) and setting.name == "source"
        is_end = not of_row and setting.name in {"source", "destination"} and getattr(table, "reverse_of", None) is None
        if value != default or is_end:
            entry[setting.name] = value
    return entry


def plain_value(part: Any) -> Any:
    """Return columns as a list, or as the only one; other values are returned unchanged."""
    return part if not isinstance(part, tuple) else list(part) if len(part) > 1 else part[0]


def read_entry(section: Section, cls: type) -> Any:
    """Build a table, or the split of one, from a section."""
    section.read |= {setting.name for setting in dataclasses.fields(cls)}
    refuse_rest(section)
    values = {name: value for name, value in section.values.items() if value is not None}
    if isinstance(values.get("split"), Mapping):
        values["split"] = read_entry(Section(values["split"], section.name("split"), section.file), Split)
    files = values.get("files", "")
    if not all(isinstance(path, str) for path in (files if isinstance(files, list) else [files])) or files == []:
        name = section.name("files")
        raise ValueError(f"{section.file}: {name} must be a path or a list of paths, but is {brief(files)}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{section.file}: {section.key}: {error}") from error


def refuse_rest(section: Section) -> None:
    for key in section.rest():
        known = ", ".join(sorted(section.read))
        raise ValueError(f"{section.file}: {section.name(str(key))} is unknown; the keys are {known}")
