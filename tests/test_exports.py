"""What is public: listed in the `__all__` of a folder, in order, there, and described."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import pytest

import graphfeed
from graphfeed.datapipes.datapipe import Datapipe

MODULES = [importlib.import_module("graphfeed")] + [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(graphfeed.__path__, "graphfeed.")
    if "cuda" not in info.name.split(".")
]
PACKAGES = [module for module in MODULES if hasattr(module, "__path__")]
PUBLIC = [(package, name) for package in PACKAGES for name in getattr(package, "__all__", ())]

each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)


def stages() -> list[type[Any]]:
    """Return the stages that the package has, without the bases and private classes."""
    return [
        value
        for module in MODULES
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Datapipe)
        if value.__module__ == module.__name__ != Datapipe.__module__ and not name.startswith("_")
    ]


def place(name: str) -> tuple[bool, bool, str]:
    """Return the key that ruff sorts `__all__` by: CONSTANTS, Classes, functions."""
    is_constant = name.isupper() and len(name) > 1
    return not is_constant, not name[0].isupper(), name


@each_package
def test_the_list_is_sorted_and_without_doubles(package: ModuleType) -> None:
    names = list(getattr(package, "__all__", ()))
    assert names == sorted(set(names), key=place)


@each_package
def test_nothing_public_is_missing(package: ModuleType) -> None:
    there = {name for name, value in vars(package).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert there - set(getattr(package, "__all__", ())) == set()


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=[f"{package.__name__}.{name}" for package, name in PUBLIC])
def test_a_public_name_is_there_and_described(package: ModuleType, name: str) -> None:
    value = getattr(package, name)
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        # The text that a dataclass writes for itself is its signature.
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize("stage", stages())
def test_a_stage_is_public_in_a_file_of_its_name(stage: type[Any]) -> None:
    assert stage.__module__.rpartition(".")[2].replace("_", "") == stage.__name__.lower()
    assert stage.__name__ in graphfeed.__all__ or stage.__module__.startswith("graphfeed.loader.")


def test_what_a_pipeline_is_written_with_is_at_the_top() -> None:
    written = {stage.__name__ for stage in stages() if ".datapipes." in stage.__module__}
    assert written <= set(graphfeed.__all__)
