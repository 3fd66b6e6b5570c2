"""The reference of public names, generated from docstrings and grouped as in the package's stub."""

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import GenericAlias
from typing import Any

import graphfeed

ROOMS = {
    "distributed": "Many machines",
    "ingest": "Files in",
    "pyg": "PyG's loaders",
    "channels": "Channels",
    "testing": "Tests of your own stages",
}
"""Optional packages with a separate page, and the titles of these pages."""
RETURNED = {
    "graphfeed.loader.profile.Profile": "Measurements of a loader",
    "graphfeed.loader.Observer": "Events of a loader",
    "graphfeed.datapipes.pipeline.BatchSizeEstimate": "Estimated size of a stage's mini-batches",
    "graphfeed.storage.DeferredRead": "A read of a feature that was started ahead",
}
"""Classes that programs use or derive from without importing them by name, and their titles."""
DATA_SETS = ("wordnet",)
"""Functions of `graphfeed.datasets` that are not public names of the package itself."""


@dataclass(frozen=True)
class Group:
    """The names on one page."""

    title: str
    text: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    """The title of each section, and its names with their modules."""

    @property
    def page(self) -> str:
        """File name of the page."""
        return f"{re.sub(r'[^a-z]+', '-', self.title.lower()).strip('-')}.rst"

    @property
    def names(self) -> list[str]:
        """All names, with their modules."""
        return [name for _, names in self.sections for name in names]


def write_api(folder: Path) -> None:
    """Write a page for each group of names, and an index of the pages."""
    folder.mkdir(parents=True)
    found = list(groups())
    for group in found:
        (folder / group.page).write_text("\n".join(lines(group)))
    (folder / "index.rst").write_text("\n".join(index(found)))


def groups() -> Iterator[Group]:
    """Yield the groups of the package's stub, the optional packages, and the other names of the package."""
    shown = set()
    stub = Path(graphfeed.__file__).with_suffix(".pyi").read_text().partition("\n__version__")[0] + "\n"
    for title, text, block in re.findall(r"^# (\w+): (.*)\n((?:.+\n)+)", stub, re.MULTILINE):
        described = [part.partition("\n") for part in block.removeprefix("# - ").split("\n# - ")]
        sections = tuple(
            (what, tuple(f"graphfeed.{name}" for name in re.findall(r" as (\w+)", imports)))
            for what, _, imports in described
        )
        group = Group(title, text, sections)
        shown |= {name.removeprefix("graphfeed.") for name in group.names}
        yield group
    for room, title in ROOMS.items():
        module = importlib.import_module(f"graphfeed.{room}")
        summary, _, text = (module.__doc__ or "").partition("\n\n")
        names = sorted(set(module.__all__) - shown, key=str.lower)
        yield Group(title, summary, ((f"graphfeed.{room}", tuple(f"graphfeed.{room}.{name}" for name in names)),))
    sections = tuple((title, (name,)) for name, title in RETURNED.items())
    yield Group(
        "Passed to your code", "Results of public functions, and base classes of user-defined classes.", sections
    )
    in_rooms = {f"graphfeed.{room}" for room in ROOMS}
    by_module: dict[str, list[str]] = {}
    for name, module_name in graphfeed._FOUND_IN.items():
        if module_name not in in_rooms:
            by_module.setdefault(module_name, []).append(f"graphfeed.{name}")
    yield Group(
        "Further names",
        "Imported from graphfeed on first use: names of other libraries, and parts of stages and stores.",
        tuple((module_name, tuple(names)) for module_name, names in sorted(by_module.items())),
    )


def index(found: Iterable[Group]) -> Iterator[str]:
    """Yield the lines of the index of all names."""
    yield heading("API", "=")
    yield "The public names, with their arguments, results and errors. The names of the first five pages and the last"
    yield "one are in ``graphfeed``."
    yield from (
        "",
        ".. toctree::",
        "   :hidden:",
        "",
        *(f"   {group.page.removesuffix('.rst')}" for group in found),
        "",
    )
    for group in found:
        yield from ("", f".. rubric:: :doc:`{group.page.removesuffix('.rst')}`", "")
        for title, names in group.sections:
            links = ", ".join(f":py:obj:`~{name}`" for name in names)
            yield f"- {links}" if "." in title else f"- {sentence(title)}: {links}"


def lines(group: Group) -> Iterator[str]:
    """Yield the lines of a group's page."""
    yield from (heading(group.title, "="), sentence(group.text), "")
    for title, names in group.sections:
        if "." in title:
            yield heading(f"``{title}``", "-")
        for name in names:
            yield heading(f"``{name.rpartition('.')[2]}``", "~" if "." in title else "-")
            yield from ("" if "." in title else f"{sentence(title)}.", "")
            yield from directive(name)


def directive(name: str) -> Iterator[str]:
    """Yield the lines that describe a name."""
    value = find(name)
    if not is_ours(value):
        yield from (f".. py:class:: {name}", "", f"   Is {inspect.formatannotation(value)}.", "")
    elif inspect.ismodule(value):
        yield from (f".. py:module:: {name}", "", *(f".. autofunction:: {name}.{own}" for own in DATA_SETS), "")
    elif inspect.isclass(value):
        yield from (f".. autoclass:: {name}", "   :members:", "   :show-inheritance:", "   :member-order: bysource", "")
        yield from (f"   .. autoattribute:: {name}.{own}\n" for own in inherited_fields(value))
    else:
        yield from (f".. {'autofunction' if callable(value) else 'autodata'}:: {name}", "")


def inherited_fields(value: type) -> Iterator[str]:
    """Yield the fields that a class inherits from undocumented bases; docstrings of stages list such fields."""
    for field in fields(value) if is_dataclass(value) and not issubclass(value, graphfeed.Datapipe) else ():
        owner = next(base for base in value.__mro__ if field.name in vars(base).get("__annotations__", ()))
        if owner is not value and owner.__name__ not in dir(graphfeed) and not field.name.startswith("_"):
            yield field.name


def find(name: str) -> Any:
    """Return the object with a qualified name."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def is_ours(value: Any) -> bool:
    """Return whether a value has a docstring of this package, not one of another package or of a built-in type."""
    if isinstance(value, GenericAlias):
        return False
    return getattr(value, "__module__", "graphfeed").startswith("graphfeed")


def sentence(text: str) -> str:
    """Return the string with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def heading(text: str, line: str) -> str:
    """Return a heading, underlined."""
    return f"{text}\n{line * len(text)}\n"
