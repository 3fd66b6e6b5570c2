"""Where optional rooms have what they add to the core: each is imported when it is first used.

The core asks for an addition by a name of its own, such as "to_pyg_data". The root package, which alone knows all
rooms, fills the table, so that no room names one above it. Every import of a module runs the root package first, also
where a process unpickles a stage.
"""

import sys
from pkgutil import resolve_name
from typing import Any

ENTRY_POINTS: dict[str, dict[str, str]] = {"converters": {}, "executors": {}, "rules": {}, "runs": {}, "stages": {}}
"""The additions of each group as "module:name", by the name that the core asks for; stages have their fluent names."""


def load_entry_point(group: str, name: str) -> Any:
    """Return what an optional room adds under a name, importing its module if necessary."""
    return resolve_name(ENTRY_POINTS[group][name])


def imported_entry_points(group: str) -> list[Any]:
    """Return the additions of those rooms that the program has imported, for whom others have no use."""
    return [resolve_name(place) for place in ENTRY_POINTS[group].values() if place.partition(":")[0] in sys.modules]
