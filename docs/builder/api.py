"""The reference of public names, generated from docstrings and grouped as these group them."""

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
"""The optional rooms that have a page of their own, with its title."""
RETURNED = {
    "graphfeed.loader.profile.Profile": "What a loader measured",
    "graphfeed.loader.Observer": "What an observer of a loader is told",
    "graphfeed.datapipes.pipeline.BatchSizeEstimate": "What a stage estimates of its mini-batches",
    "graphfeed.storage.DeferredRead": "What a feature returns that reads ahead",
}
"""Classes that no program imports by name, but works with, or writes one like them."""
DATA_SETS = ("wordnet",)
"""What `graphfeed.datasets` has for programs, beside what the package shows itself."""


@dataclass(frozen=True)
class Group:
    """Names that one page describes."""

    title: str
    text: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    """The title of each section, and its names, with the module that shows them."""

    @property
    def page(self) -> str:
        """The name of the page's file."""
        return f"{re.sub(r'[^a-z]+', '-', self.title.lower()).strip('-')}.rst"

    @property
    def names(self) -> list[str]:
        """All names, with their modules."""
        return [name for _, names in self.sections for name in names]


def write_api(folder: Path) -> None:
    """Write a page for each group of names, and one that lists the pages."""
    folder.mkdir(parents=True)
    found = list(groups())
    for group in found:
        (folder / group.page).write_text("\n".join(lines(group)))
    (folder / "index.rst").write_text("\n".join(index(found)))


def groups() -> Iterator[Group]:
    """Yield the groups of the package's stub, the optional rooms, and what else the package finds by name."""
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
        "Passed to your code", "What public functions return, and what your own classes may derive from.", sections
    )
    in_rooms = {f"graphfeed.{room}" for room in ROOMS}
    by_module: dict[str, list[str]] = {}
    for name, module_name in graphfeed._FOUND_IN.items():
        if module_name not in in_rooms:
            by_module.setdefault(module_name, []).append(f"graphfeed.{name}")
    yield Group(
        "Further names",
        "Found in graphfeed on first use: names of other libraries, and parts of stages and stores.",
        tuple((module_name, tuple(names)) for module_name, names in sorted(by_module.items())),
    )


def index(found: Iterable[Group]) -> Iterator[str]:
    """Yield the lines of the page that lists all names."""
    yield heading("API", "=")
    yield "What each public name is, takes, returns and raises. A program finds the names of the first five pages, and"
    yield "those of the last one, in ``graphfeed``."
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
        yield heading(f"``{title}``" if "." in title else sentence(title), "-")
        for name in names:
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
    """Yield the fields that a class has of bases which readers don't meet, such as `fanouts` of samplers."""
    for field in fields(value) if is_dataclass(value) else ():
        owner = next(base for base in value.__mro__ if field.name in vars(base).get("__annotations__", ()))
        if owner is not value and owner.__name__ not in dir(graphfeed) and not field.name.startswith("_"):
            yield field.name


def find(name: str) -> Any:
    """Return what a name with its module stands for."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def is_ours(value: Any) -> bool:
    """Tell whether something is described by a docstring of this package, not by that of another or of a type."""
    if isinstance(value, GenericAlias):
        return False
    return getattr(value, "__module__", "graphfeed").startswith("graphfeed")


def sentence(text: str) -> str:
    """Return a text that begins with a capital."""
    return text[:1].upper() + text[1:]


def heading(text: str, line: str) -> str:
    """Return a heading, underlined."""
    return f"{text}\n{line * len(text)}\n"
