"""Apply a program's edits of `yaml_data` to the metadata of the preprocessed files."""

from collections.abc import Iterator, Mapping
from typing import Any

from graphfeed.ops.arguments import brief
from graphfeed.storage.datasets.metadata import FILE_NAME
from graphfeed.storage.datasets.processed_arrays import SEEDS

MISSING = object()


def apply_edits(source: Mapping[str, Any], edited: Mapping[str, Any], processed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the preprocessed files, with a program's changes of the metadata of the source."""
    result = dict(processed)
    for key in (*source, *(key for key in edited if key not in source)):
        value, before = edited.get(key, MISSING), source.get(key, MISSING)
        # Values that were not edited stay as preprocessing wrote them.
        if value == before:
            continue
        if key == "graph":
            raise ValueError(
                f"yaml_data['graph'] was edited, but the graph is built from {FILE_NAME}; edit that file instead"
            )
        if key in {"feature_data", "tasks"}:
            # An entry that still has the file of the source reads the preprocessed file; a path that the program chose
            # is read unchanged.
            result[key] = with_files(value, pair_files(before, processed.get(key), key)) if value is not MISSING else []
        elif value is MISSING:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            old = before if isinstance(before, Mapping) else {}
            # Only the program's changes within it.
            result[key] = result[key] | {name: own for name, own in value.items() if old.get(name, MISSING) != own}
        else:
            result[key] = value
    return result


def named_files(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries that name a file, in an order that doesn't depend on the order of the keys."""
    if isinstance(value, Mapping):
        if isinstance(value.get("path"), str):
            yield value
        value = [value[name] for name in sorted(value, key=str)]
    for part in value if isinstance(value, list) else ():
        yield from named_files(part)


def file_key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    # These determine the preprocessed file of an entry: seeds get the dtype of the graph's ids.
    return str(entry.get("format")), str(entry.get("path")), entry.get("name") == SEEDS


def pair_files(source: Any, processed: Any, key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return format, path and encoding of the preprocessed files by the descriptions of their sources."""
    before, after = list(named_files(source)), list(named_files(processed))
    names = [[(entry.get("domain"), entry.get("name")) for entry in entries] for entries in (before, after)]
    # Both list the same files in the same order, unless the dataset was preprocessed from other sources.
    if names[0] != names[1]:
        raise ValueError(
            f"yaml_data[{key!r}] was edited, but {FILE_NAME} has changed since: it names {brief(names[1])}, and named "
            f"{brief(names[0])}; open the dataset again"
        )
    pairs = zip(before, after, strict=True)
    files = {}
    for old, new in pairs:
        made = {name: new[name] for name in ("format", "path", "encoding") if name in new}
        # Entries with the same file may have different codes; a renamed entry has those of the first.
        files[entry_key(old)] = made
        files.setdefault(file_key(old), made)
    return files


def entry_key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of an entry among those with the same file."""
    return *file_key(entry), *(str(entry.get(name)) for name in ("domain", "type", "name"))


def with_files(value: Any, files: Mapping[tuple[Any, ...], Mapping[str, Any]]) -> Any:
    if isinstance(value, list):
        return [with_files(part, files) for part in value]
    if isinstance(value, Mapping):
        return {name: with_files(part, files) for name, part in value.items()} | dict(
            files.get(entry_key(value)) or files.get(file_key(value), {})
        )
    return value
